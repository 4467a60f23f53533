//! Names of descriptors, written into the trace on request: once for each number, and again when
//! the number has come to mean another file.

use alloc::boxed::Box;

use softring_host::os::fs::FileType;

use super::writer::Writer;
use super::{Event, FIXED, LOCAL, PEER, Step};
use softring_host::calls::sockets::{ADDRESS, address};
use softring_host::sys;

/// Name that was last written for a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WrittenName {
    /// Number plus one; 0: nothing.
    number: u64,
    fixed: bool,
    file: (u64, u64),
    /// Hash of a socket's other end, which comes later than the socket.
    peer: u64,
}

/// Names written last: a number shares its slot with others. In a box once there is one: few rings
/// are traced.
#[derive(Debug, Default)]
pub(super) struct Names(Option<Box<[WrittenName; SLOTS]>>);

const SLOTS: usize = 64;

impl Names {
    fn slot(&mut self, number: i32) -> &mut WrittenName {
        let all = self.0.get_or_insert_with(|| Box::new([WrittenName::default(); SLOTS]));
        &mut all[number as usize % SLOTS]
    }
}

/// Hashes an address by FNV-1a, to see whether it has changed.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

fn socket_type(fd: i32) -> u8 {
    const SOL_SOCKET: u32 = 1;
    const SO_TYPE: u32 = 3;
    sys::socket_option(fd, SOL_SOCKET, SO_TYPE).map_or(0, |[kind]: [u32; 1]| kind as u8)
}

impl Writer {
    /// Returns whether descriptors are to be named.
    pub(crate) fn names_wanted(&self) -> bool {
        self.wants_names
    }

    /// Writes what `number`, a descriptor or a slot, means, if that has changed; `fd` is a
    /// descriptor of the same file.
    #[cold]
    pub(crate) fn name_file(&mut self, time: u64, number: i32, fd: i32, fixed: bool) {
        let stat = sys::borrow(fd).and_then(|fd| softring_host::substitute::fstat(fd).ok());
        let Some(stat) = stat else { return };
        let socket = FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
        let peer = if socket { address(fd, true) } else { ([0; ADDRESS], 0) };
        let name = WrittenName {
            number: u64::from(number.cast_unsigned()) + 1,
            fixed,
            file: (stat.st_dev, stat.st_ino),
            peer: hash(&peer.0[..peer.1]),
        };
        let slot = self.names.slot(number);
        if *slot == name {
            return;
        }
        *slot = name;
        let flags = if fixed { FIXED } else { 0 };
        let (data, req, tid, step, opcode) = (0, 0, 0, Step::Name, 0);
        let mut event = Event { time, data, req, tid, step, opcode, flags, value: number };
        let path = softring_host::files::path_of(fd).unwrap_or_default();
        self.put_bytes(&mut event, &path);
        if socket {
            event.step = Step::Address;
            event.opcode = socket_type(fd);
            for (which, (bytes, len)) in [(LOCAL, address(fd, false)), (PEER, peer)] {
                event.req = which;
                self.put_bytes(&mut event, &bytes[..len]);
            }
        }
    }
}
