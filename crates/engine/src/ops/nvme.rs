//! URING_CMD on NVMe: a namespace's character device (`/dev/ngXnY`) or a controller (`/dev/nvmeX`)
//! gets its command through the synchronous ioctl, in a worker. Kernel counterpart:
//! `nvme_ns_chr_uring_cmd` and `nvme_dev_uring_cmd` in `drivers/nvme/host/ioctl.c`.
//!
//! The ioctl returns what the kernel puts into the CQE: 0, the status that the device gave, or an
//! errno; and the command's result, which goes into the second half of a wide CQE.
#![allow(unsafe_code)]

use crate::io::iov::import_iov;
use crate::ring::ctx::Ctx;
use crate::ring::opdef::{Outcome, Try};
use crate::ring::request::{Call, Command, OpState, Req, ReqFlags};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use softring_host::calls::{Part, UserPtr, ioctl};
use softring_host::sys;
use softring_uapi::errno::{Errno, Result};
use softring_uapi::*;

/// Kind of an NVMe character device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    Namespace,
    Controller,
}

impl Device {
    /// Returns the kind of `fd`, as sysfs tells; none if it is neither.
    pub(crate) fn of(fd: i32) -> Option<Device> {
        let stat = softring_host::substitute::fstat(sys::borrow(fd)?).ok()?;
        let kind = softring_host::os::fs::FileType::from_raw_mode(stat.st_mode);
        if kind != softring_host::os::fs::FileType::CharacterDevice {
            return None;
        }
        let (major, minor) = (
            softring_host::os::fs::major(stat.st_rdev),
            softring_host::os::fs::minor(stat.st_rdev),
        );
        let link = format!("/sys/dev/char/{major}:{minor}/subsystem");
        let subsystem = softring_host::os::fs::readlink(link).ok()?;
        Device::in_subsystem(&subsystem)
    }

    fn in_subsystem(path: &[u8]) -> Option<Device> {
        match path.rsplit(|&b| b == b'/').next()? {
            b"nvme-generic" => Some(Device::Namespace),
            b"nvme" => Some(Device::Controller),
            _ => None,
        }
    }
}

/// Returns the ioctl for a command, and whether its data is a vector.
const fn request(device: Device, cmd_op: u32) -> Option<(u32, bool)> {
    match (device, cmd_op) {
        (Device::Namespace, NVME_URING_CMD_IO) => Some((NVME_IOCTL_IO64_CMD, false)),
        (Device::Namespace, NVME_URING_CMD_IO_VEC) => Some((NVME_IOCTL_IO64_CMD_VEC, true)),
        (Device::Controller, NVME_URING_CMD_ADMIN) => Some((NVME_IOCTL_ADMIN64_CMD, false)),
        (Device::Controller, NVME_URING_CMD_ADMIN_VEC) => Some((NVME_IOCTL_ADMIN64_CMD, true)),
        _ => None,
    }
}

/// Keeps the command of an SQE that may be one for NVMe: `rest` is the SQE's second half.
pub(crate) fn prep(ctx: &Ctx, call: &mut Call, rest: [u64; 8]) -> Box<nvme_passthru_cmd64> {
    let first = [call.sqe().addr3, call.sqe().pad2];
    if call.sqe().op_flags & IORING_URING_CMD_FIXED != 0 {
        call.buf = ctx.resources.buffers.get(call.sqe().buf_index).ok();
    }
    Box::new(command(first, rest))
}

/// Puts a command together from the words of an SQE from byte 48 on.
fn command(first: [u64; 2], rest: [u64; 8]) -> nvme_passthru_cmd64 {
    let (low, high) = (|w: u64| w as u32, |w: u64| (w >> 32) as u32);
    nvme_passthru_cmd64 {
        opcode: first[0] as u8,
        flags: (first[0] >> 8) as u8,
        rsvd1: (first[0] >> 16) as u16,
        nsid: high(first[0]),
        cdw2: low(first[1]),
        cdw3: high(first[1]),
        metadata: rest[0],
        addr: rest[1],
        metadata_len: low(rest[2]),
        data_len: high(rest[2]),
        cdw10: [
            low(rest[3]),
            high(rest[3]),
            low(rest[4]),
            high(rest[4]),
            low(rest[5]),
            high(rest[5]),
        ],
        timeout_ms: low(rest[6]),
        rsvd2: high(rest[6]),
        result: 0,
    }
}

/// Runs a command.
pub(crate) fn issue(call: &mut Call, device: Device, how: Try) -> Outcome {
    // The command needs both big SQEs and wide CQEs (`nvme_uring_cmd_checks`).
    let OpState::Command(Command { wide_cqe: true, big_sqe: true, nvme }) = &call.state else {
        return Outcome::Done(Errno::EOPNOTSUPP.res());
    };
    let (Some((request, vector)), Some(cmd)) = (request(device, call.sqe().off as u32), nvme)
    else {
        return Outcome::Done(Errno::ENOTTY.res());
    };
    if how == Try::Nonblock {
        return Outcome::Retry;
    }
    let mut cmd = **cmd;
    if let Err(e) = import_data(call, &mut cmd, request, vector) {
        return Outcome::Done(e.res());
    }
    // SAFETY: the addresses in the command are those in the program's SQE, or in its vector.
    let done = unsafe { ioctl::exchange(call.file.fd(), request, &mut cmd) };
    let res = done.map_or_else(Errno::res, |status| status as i32);
    if let OpState::Command(command) = &mut call.state {
        command.nvme = (res >= 0).then(|| Box::new(cmd));
    }
    Outcome::Done(res)
}

/// Checks that the data lies in a registered buffer if it has to, and makes plain data of a vector
/// of one part that the ioctl does not take.
fn import_data(
    call: &Call,
    cmd: &mut nvme_passthru_cmd64,
    request: u32,
    vector: bool,
) -> Result<()> {
    let fixed = call.sqe().op_flags & IORING_URING_CMD_FIXED != 0;
    let admin = request == NVME_IOCTL_ADMIN64_CMD;
    // SAFETY: the words of the program's SQE name it.
    let data = unsafe { UserPtr::of_program(cmd.addr) };
    let parts = match vector {
        true if fixed || admin => import_iov(data, cmd.data_len)?,
        true => Vec::new(),
        false => vec![Part::new(data, cmd.data_len.into())],
    };
    if fixed {
        let node = call.buf.as_ref().ok_or(Errno::EFAULT)?;
        parts.iter().try_for_each(|p| node.check(p.base, p.len))?;
    }
    if vector && admin {
        (cmd.addr, cmd.data_len) = match parts[..] {
            [] => (0, 0),
            [one] => (one.base, u32::try_from(one.len).map_err(|_| Errno::EINVAL)?),
            _ => return Err(Errno::EOPNOTSUPP),
        };
    }
    Ok(())
}

/// Sets the result of a command that the device has answered.
pub(crate) fn finish(_: &mut Ctx, req: &mut Req) {
    if let OpState::Command(Command { nvme: Some(cmd), .. }) = &req.call.state
        && req.res >= 0
    {
        req.big = [cmd.result, 0];
        req.flags |= ReqFlags::CQE32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read of 8 blocks from block 0x1_0000_0002 on, as a program writes it into an SQE.
    const READ: [u64; 10] = [0x02 | 1 << 32, 0, 0, 0x7000, 4096 << 32, 2 | 1 << 32, 7, 0, 3000, 0];

    fn read() -> nvme_passthru_cmd64 {
        let mut rest = [0; 8];
        rest.copy_from_slice(&READ[2..]);
        command([READ[0], READ[1]], rest)
    }

    fn call(cmd_op: u32, cmd: nvme_passthru_cmd64) -> Call {
        let mut call = Call::new(io_uring_sqe { off: cmd_op.into(), ..Default::default() }.into());
        let nvme = Some(Box::new(cmd));
        call.state = OpState::Command(Command { wide_cqe: true, big_sqe: true, nvme });
        call
    }

    #[test]
    fn an_sqe_is_decoded_like_the_kernel() {
        let cdw10 = [2, 1, 7, 0, 0, 0];
        let want = nvme_passthru_cmd64 {
            opcode: 2,
            nsid: 1,
            addr: 0x7000,
            data_len: 4096,
            cdw10,
            timeout_ms: 3000,
            ..nvme_passthru_cmd64::default()
        };
        assert_eq!(read(), want);
        let all = command(
            [u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]), 1 << 32 | 9],
            [10, 11, 13 << 32 | 12, 15 << 32 | 14, 17 << 32 | 16, 19 << 32 | 18, 21 << 32 | 20, 0],
        );
        assert_eq!((all.opcode, all.flags, all.rsvd1, all.nsid), (1, 2, 0x403, 0x0807_0605));
        assert_eq!((all.cdw2, all.cdw3, all.metadata, all.addr), (9, 1, 10, 11));
        assert_eq!((all.metadata_len, all.data_len), (12, 13));
        assert_eq!((all.cdw10, all.timeout_ms, all.rsvd2), ([14, 15, 16, 17, 18, 19], 20, 21));
    }

    #[test]
    fn commands_and_ioctls_have_the_kernels_numbers() {
        let uring = [0xc048_4e80, 0xc048_4e81, 0xc048_4e82, 0xc048_4e83];
        assert_eq!(uring[..2], [NVME_URING_CMD_IO, NVME_URING_CMD_IO_VEC]);
        assert_eq!(uring[2..], [NVME_URING_CMD_ADMIN, NVME_URING_CMD_ADMIN_VEC]);
        let on = |device| uring.map(|op| request(device, op));
        let (io, vec) = (Some((0xc050_4e48, false)), Some((0xc050_4e49, true)));
        assert_eq!(on(Device::Namespace), [io, vec, None, None]);
        let (one, many) = (Some((0xc050_4e47, false)), Some((0xc050_4e47, true)));
        assert_eq!(on(Device::Controller), [None, None, one, many]);
    }

    #[test]
    fn a_device_is_recognised_by_its_subsystem() {
        let of = |s: &str| Device::in_subsystem(s.as_bytes());
        assert_eq!(of("../../../../class/nvme-generic"), Some(Device::Namespace));
        assert_eq!(of("../../../../class/nvme"), Some(Device::Controller));
        assert_eq!(of("../../../../class/nvme-subsystem"), None);
        assert_eq!(of("../../../../class/mem"), None);
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Device::of(std::os::fd::AsRawFd::as_raw_fd(&null)), None);
    }

    #[test]
    fn commands_without_a_device_complete_at_once() {
        let done = |e: Errno| Outcome::Done(e.res());
        let mut small = call(NVME_URING_CMD_IO, read());
        small.state = OpState::Command(Command::default());
        let answer = issue(&mut small, Device::Namespace, Try::Nonblock);
        assert_eq!(answer, done(Errno::EOPNOTSUPP));
        let mut admin = call(NVME_URING_CMD_ADMIN, read());
        assert_eq!(issue(&mut admin, Device::Namespace, Try::Nonblock), done(Errno::ENOTTY));
        assert_eq!(issue(&mut admin, Device::Controller, Try::Nonblock), Outcome::Retry);
        // No file: the ioctl's own errno comes back, and no result with it.
        assert_eq!(issue(&mut admin, Device::Controller, Try::Block), done(Errno::EBADF));
        assert!(matches!(admin.state, OpState::Command(Command { nvme: None, .. })));
    }

    #[test]
    fn a_vector_of_one_part_becomes_plain_data() {
        let parts = [softring_uapi::iovec { base: 0x9000, len: 512 }; 2];
        let vector = |n| nvme_passthru_cmd64 {
            addr: parts.as_ptr().expose_provenance() as u64,
            data_len: n,
            ..read()
        };
        let call = call(NVME_URING_CMD_ADMIN_VEC, read());
        for (n, want) in [(0, Ok((0, 0))), (1, Ok((0x9000, 512))), (2, Err(Errno::EOPNOTSUPP))] {
            let mut cmd = vector(n);
            let done = import_data(&call, &mut cmd, NVME_IOCTL_ADMIN64_CMD, true);
            assert_eq!(done.map(|()| (cmd.addr, cmd.data_len)), want);
        }
        let mut cmd = vector(2);
        assert_eq!(import_data(&call, &mut cmd, NVME_IOCTL_IO64_CMD_VEC, true), Ok(()));
        assert_eq!(cmd, vector(2));
    }

    #[test]
    fn fixed_data_must_lie_in_a_buffer() {
        let op_flags = IORING_URING_CMD_FIXED;
        let call = Call::new(io_uring_sqe { op_flags, ..Default::default() }.into());
        let done = import_data(&call, &mut read(), NVME_IOCTL_IO64_CMD, false);
        assert_eq!(done, Err(Errno::EFAULT));
    }
}
