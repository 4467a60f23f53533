//! The arguments of a request, each by its name.

use super::address;
use super::flags::{self as f, Names, flags, one};
use super::quoted;
use softring_uapi::*;

/// Contents of an SQE, and of the memory that it points to as far as that is known.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub sqe: io_uring_sqe,
    /// Paths and names, in the order of their addresses.
    pub texts: [Option<Vec<u8>>; 2],
    pub structure: Option<Vec<u8>>,
    /// Meaning of the SQE's descriptor.
    pub file: Option<String>,
}

/// The arguments of operations, in words that [`Said::argument`] knows. The SQE's own flags are
/// written behind them.
const OPERATIONS: [(u8, &str); 57] = [
    (IORING_OP_READV, "fd iovcnt off rwf group"),
    (IORING_OP_WRITEV, "fd iovcnt off rwf"),
    (IORING_OP_FSYNC, "fd off? len? fsync"),
    (IORING_OP_READ_FIXED, "fd off len rwf buf"),
    (IORING_OP_WRITE_FIXED, "fd off len rwf buf"),
    (IORING_OP_POLL_ADD, "fd events poll_how"),
    (IORING_OP_POLL_REMOVE, "target events? poll_how"),
    (IORING_OP_SYNC_FILE_RANGE, "fd off len flags"),
    (IORING_OP_SENDMSG, "fd msg net"),
    (IORING_OP_RECVMSG, "fd msg net group"),
    (IORING_OP_TIMEOUT, "timeout count? timeout_flags"),
    (IORING_OP_TIMEOUT_REMOVE, "target timeout_flags"),
    (IORING_OP_ACCEPT, "fd sock accept_how slot"),
    (IORING_OP_ASYNC_CANCEL, "cancelled cancel"),
    (IORING_OP_LINK_TIMEOUT, "timeout timeout_flags"),
    (IORING_OP_CONNECT, "fd address"),
    (IORING_OP_FALLOCATE, "fd falloc off length"),
    (IORING_OP_OPENAT, "dfd path open mode slot"),
    (IORING_OP_CLOSE, "closed"),
    (IORING_OP_FILES_UPDATE, "first nr"),
    (IORING_OP_STATX, "dfd path at mask"),
    (IORING_OP_READ, "fd off len rwf group"),
    (IORING_OP_WRITE, "fd off len rwf"),
    (IORING_OP_FADVISE, "fd off len fadvice"),
    (IORING_OP_MADVISE, "addr len madvice"),
    (IORING_OP_SEND, "fd len msg net group"),
    (IORING_OP_RECV, "fd len msg net group"),
    (IORING_OP_OPENAT2, "dfd path how slot"),
    (IORING_OP_EPOLL_CTL, "fd epoll_op epoll_fd"),
    (IORING_OP_SPLICE, "fd_in off_in fd off len splice"),
    (IORING_OP_PROVIDE_BUFFERS, "nr_bufs addr len group! bid"),
    (IORING_OP_REMOVE_BUFFERS, "nr_bufs group!"),
    (IORING_OP_TEE, "fd_in fd len splice"),
    (IORING_OP_SHUTDOWN, "fd shut"),
    (IORING_OP_RENAMEAT, "dfd path newdfd path2 rename"),
    (IORING_OP_UNLINKAT, "dfd path at"),
    (IORING_OP_MKDIRAT, "dfd path mode"),
    (IORING_OP_SYMLINKAT, "path dfd path2"),
    (IORING_OP_LINKAT, "dfd path newdfd path2 at"),
    (IORING_OP_MSG_RING, "fd msg_ring res data flags"),
    (IORING_OP_FSETXATTR, "fd path len flags"),
    (IORING_OP_SETXATTR, "path path2 len flags"),
    (IORING_OP_FGETXATTR, "fd path len"),
    (IORING_OP_GETXATTR, "path path2 len"),
    (IORING_OP_SOCKET, "domain type protocol slot"),
    (IORING_OP_URING_CMD, "fd cmd_op"),
    (IORING_OP_SEND_ZC, "fd len msg net"),
    (IORING_OP_SENDMSG_ZC, "fd msg net"),
    (IORING_OP_READ_MULTISHOT, "fd off len group!"),
    (IORING_OP_FIXED_FD_INSTALL, "fd flags"),
    (IORING_OP_FTRUNCATE, "fd length_off"),
    (IORING_OP_BIND, "fd address"),
    (IORING_OP_LISTEN, "fd backlog"),
    (IORING_OP_EPOLL_WAIT, "fd maxevents"),
    (IORING_OP_READV_FIXED, "fd iovcnt off rwf buf"),
    (IORING_OP_WRITEV_FIXED, "fd iovcnt off rwf buf"),
    (IORING_OP_PIPE, "open slot"),
];

/// Returns the name of an operation, such as `READ`, or `OP_` and a number that no operation has.
pub fn operation(opcode: u8) -> String {
    softring_uapi::op_name(opcode).map_or_else(|| format!("OP_{opcode}"), str::to_owned)
}

impl Said {
    /// Formats all arguments. `verbose` adds the address of the memory and the user_data.
    pub fn arguments(&self, verbose: bool) -> String {
        let s = &self.sqe;
        let known = OPERATIONS.iter().find(|(op, _)| *op == s.opcode);
        let mut all: Vec<String> = match (known, s.opcode) {
            (Some((_, words)), _) => {
                words.split(' ').filter_map(|word| self.argument(word)).collect()
            }
            (None, IORING_OP_NOP | IORING_OP_NOP128) => Vec::new(),
            (None, _) => self.raw(),
        };
        if verbose {
            all.push(format!("addr={:#x}", s.addr));
            all.push(format!("user_data={:#x}", s.user_data));
        }
        if s.personality != 0 {
            all.push(format!("personality={}", s.personality));
        }
        if s.flags != 0 {
            all.push(flags(u32::from(s.flags), f::SQE));
        }
        all.join(", ")
    }

    /// Formats the words of an SQE of which no more is known.
    fn raw(&self) -> Vec<String> {
        let s = &self.sqe;
        let hex = [("off", s.off), ("addr", s.addr), ("addr3", s.addr3)];
        let hex = hex.iter().filter(|(_, v)| *v != 0).map(|(name, v)| format!("{name}={v:#x}"));
        let small = [("len", s.len), ("flags", s.op_flags), ("file_index", s.file_index)];
        let small = small.iter().filter(|(_, v)| *v != 0).map(|(name, v)| format!("{name}={v:#x}"));
        std::iter::once(format!("fd={}", s.fd)).chain(hex).chain(small).collect()
    }

    /// Formats one argument; None if it says nothing.
    fn argument(&self, word: &str) -> Option<String> {
        self.number(word).or_else(|| self.flag(word)).or_else(|| self.special(word))
    }

    /// Formats an argument that is a number.
    fn number(&self, word: &str) -> Option<String> {
        let s = &self.sqe;
        let off = s.off.cast_signed();
        Some(match word {
            "off" => format!("off={off}"),
            "off?" if s.off != 0 => format!("off={off}"),
            "len" => format!("len={}", s.len),
            "len?" if s.len != 0 => format!("len={}", s.len),
            "iovcnt" => format!("iovcnt={}", s.len),
            "length" => format!("len={}", s.addr),
            "length_off" => format!("len={off}"),
            "buf" => format!("buf_index={}", s.buf_index),
            "group" if s.flags & IOSQE_BUFFER_SELECT != 0 => format!("buf_group={}", s.buf_index),
            "group!" => format!("buf_group={}", s.buf_index),
            "bid" => format!("bid={}", s.off),
            "nr_bufs" => format!("nr={}", s.fd),
            "nr" => format!("nr={}", s.len),
            "first" => format!("off={off}"),
            "count?" if s.off != 0 => format!("count={}", s.off),
            "target" => format!("user_data={:#x}", s.addr),
            "mode" if s.opcode == IORING_OP_MKDIRAT || s.op_flags & 0o100 != 0 => {
                format!("mode=0{:o}", s.len)
            }
            "mask" => format!("mask={:#x}", s.len),
            "addr" => format!("addr={:#x}", s.addr),
            "off_in" => format!("off_in={}", s.addr.cast_signed()),
            "res" => format!("res={}", s.len),
            "data" => format!("data={off:#x}"),
            "cmd_op" => format!("cmd_op={:#x}", s.off as u32),
            "protocol" => format!("protocol={}", s.len),
            "backlog" => format!("backlog={}", s.len),
            "maxevents" => format!("maxevents={}", s.len),
            "epoll_fd" => format!("fd={}", s.off as i32),
            "slot" => match s.file_index {
                0 => return None,
                u32::MAX => "file_index=IORING_FILE_INDEX_ALLOC".to_owned(),
                n => format!("file_index={}", n - 1),
            },
            _ => return None,
        })
    }

    /// Formats an argument that is flags, or one of several values.
    fn flag(&self, word: &str) -> Option<String> {
        let s = &self.sqe;
        let set = |bits: u32, names: Names| (bits != 0).then(|| flags(bits, names));
        match word {
            "rwf" => set(s.op_flags, f::RWF),
            "fsync" => set(s.op_flags, f::FSYNC),
            "events" => Some(flags(s.op_flags, f::POLL)),
            "events?" => set(s.op_flags, f::POLL),
            "poll_how" => set(s.len, f::POLL_HOW),
            "timeout_flags" => set(s.op_flags, f::TIMEOUT),
            "cancel" => set(s.op_flags, f::CANCEL),
            "msg" => Some(flags(s.op_flags, f::MSG)),
            "net" => set(u32::from(s.ioprio), f::NET_HOW),
            "accept_how" => set(u32::from(s.ioprio), f::ACCEPT_HOW),
            "sock" => set(s.op_flags, f::SOCK),
            "at" => Some(flags(s.op_flags, f::AT)),
            "rename" => Some(flags(s.op_flags, f::RENAME)),
            "splice" => Some(flags(s.op_flags, f::SPLICE)),
            "falloc" => Some(flags(s.len, f::FALLOCATE)),
            "fadvice" => Some(one(s.op_flags, f::FADVICE)),
            "madvice" => Some(one(s.op_flags, f::MADVICE)),
            "shut" => Some(one(s.len, f::SHUT)),
            "epoll_op" => Some(one(s.len, f::EPOLL_CTL)),
            "msg_ring" => Some(one(s.addr as u32, f::MSG_RING)),
            "domain" => Some(one(s.fd.cast_unsigned(), f::AF)),
            "type" => Some(socket_type(s.off as u32)),
            "flags" => set(s.op_flags, &[]),
            "open" => Some(open_flags(s.op_flags, s.opcode == IORING_OP_PIPE)),
            _ => None,
        }
    }

    /// Formats a descriptor, a path or a structure.
    fn special(&self, word: &str) -> Option<String> {
        let s = &self.sqe;
        let text = |n: usize| {
            let shown = |text: &Vec<u8>| {
                let cut = if text.len() >= MOST_TEXT { "..." } else { "" };
                quoted(text) + cut
            };
            self.texts[n].as_ref().map_or_else(|| "?".to_owned(), shown)
        };
        Some(match word {
            "fd" => format!("{}{}", s.fd, self.meaning()),
            "dfd" => format!("{}{}", directory(s.fd), self.meaning()),
            "newdfd" => directory(s.len.cast_signed()),
            "fd_in" => s.splice_fd_in().to_string(),
            "closed" if s.file_index != 0 => format!("file_index={}", s.file_index - 1),
            "closed" => format!("{}{}", s.fd, self.meaning()),
            "path" => text(0),
            "path2" => text(1),
            "timeout" => match self.structure.as_deref().and_then(<[u8]>::first_chunk) {
                Some(ns) => {
                    let ns = u64::from_ne_bytes(*ns);
                    let (sec, nsec) = (ns / 1_000_000_000, ns % 1_000_000_000);
                    format!("{{tv_sec={sec}, tv_nsec={nsec}}}")
                }
                None => format!("ts={:#x}", s.addr),
            },
            "address" => self.structure.as_ref().map_or("?".to_owned(), |b| address::argument(b)),
            "how" => self.structure.as_ref().map_or("?".to_owned(), |b| open_how(b)),
            "cancelled" => match s.op_flags {
                how if how & IORING_ASYNC_CANCEL_ANY != 0 => return None,
                how if how & IORING_ASYNC_CANCEL_FD != 0 => format!("{}{}", s.fd, self.meaning()),
                how if how & IORING_ASYNC_CANCEL_OP != 0 => operation(s.len as u8),
                _ => format!("user_data={:#x}", s.addr),
            },
            _ => return None,
        })
    }

    fn meaning(&self) -> String {
        self.file.as_ref().map_or_else(String::new, |file| format!("<{file}>"))
    }
}

/// Most bytes of a path that the program records.
const MOST_TEXT: usize = 992;

fn directory(fd: i32) -> String {
    if fd == libc::AT_FDCWD { "AT_FDCWD".to_owned() } else { fd.to_string() }
}

fn open_flags(bits: u32, pipe: bool) -> String {
    let (access, rest) = (bits & 3, bits & !3);
    match rest {
        rest if pipe => flags(rest, f::OPEN),
        0 => one(access, f::ACCESS),
        rest => format!("{}|{}", one(access, f::ACCESS), flags(rest, f::OPEN)),
    }
}

fn socket_type(kind: u32) -> String {
    let (kind, rest) = (kind & 0xf, kind & !0xf);
    let kind = one(kind, f::SOCK_TYPE);
    if rest == 0 { kind } else { format!("{kind}|{}", flags(rest, f::SOCK)) }
}

/// Formats a `struct open_how`.
fn open_how(bytes: &[u8]) -> String {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let [Some(open), Some(mode), Some(resolve)] = [0, 8, 16].map(word) else {
        return "?".to_owned();
    };
    let open = open_flags(open as u32, false);
    let resolve = flags(resolve as u32, f::RESOLVE);
    format!("{{flags={open}, mode=0{mode:o}, resolve={resolve}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(sqe: io_uring_sqe) -> Said {
        Said { sqe, ..Said::default() }
    }

    fn sqe(opcode: u8) -> io_uring_sqe {
        io_uring_sqe { opcode, fd: 5, ..io_uring_sqe::default() }
    }

    #[test]
    fn reads_and_writes() {
        let read = io_uring_sqe { off: 4096, len: 512, flags: 0x14, ..sqe(IORING_OP_READ) };
        let mut read = said(read);
        assert_eq!(read.arguments(false), "5, off=4096, len=512, IOSQE_IO_LINK|IOSQE_ASYNC");
        read.file = Some("/tmp/f".into());
        read.sqe.off = u64::MAX;
        read.sqe.flags = IOSQE_BUFFER_SELECT;
        read.sqe.buf_index = 3;
        let want = "5</tmp/f>, off=-1, len=512, buf_group=3, IOSQE_BUFFER_SELECT";
        assert_eq!(read.arguments(false), want);
        let verbose = said(io_uring_sqe { user_data: 7, ..sqe(IORING_OP_NOP) });
        assert_eq!(verbose.arguments(true), "addr=0x0, user_data=0x7");
    }

    #[test]
    fn what_an_sqe_points_to() {
        let open = io_uring_sqe { fd: -100, op_flags: 0o101, len: 0o644, ..sqe(IORING_OP_OPENAT) };
        let mut open = said(open);
        open.texts[0] = Some(b"/a\x1b\"".to_vec());
        let want = "AT_FDCWD, \"/a\\33\\\"\", O_WRONLY|O_CREAT, mode=0644";
        assert_eq!(open.arguments(false), want);
        let mut how = said(io_uring_sqe { fd: -100, ..sqe(IORING_OP_OPENAT2) });
        how.structure = Some([0u64, 0, 8].iter().flat_map(|w| w.to_ne_bytes()).collect());
        let want = "AT_FDCWD, ?, {flags=O_RDONLY, mode=00, resolve=RESOLVE_BENEATH}";
        assert_eq!(how.arguments(false), want);
    }

    #[test]
    fn every_operation_has_known_argument_words() {
        for (opcode, words) in OPERATIONS {
            // With all fields set, every argument says something.
            let full = io_uring_sqe { op_flags: 1 << 30 | 0o100, ..sqe(opcode) };
            let full = io_uring_sqe { off: 1, len: 1, ioprio: 1, file_index: 2, ..full };
            let full = said(io_uring_sqe { flags: IOSQE_BUFFER_SELECT, ..full });
            let unknown: Vec<&str> =
                words.split(' ').filter(|word| full.argument(word).is_none()).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?}", operation(opcode));
        }
        assert_eq!(operation(200), "OP_200");
        assert!(said(sqe(IORING_OP_WAITID)).arguments(false).starts_with("fd=5"));
    }
}
