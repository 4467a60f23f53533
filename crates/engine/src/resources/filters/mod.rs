//! BPF filters of requests: each opcode may have programs that check a request before it is queued,
//! and all of them must allow it. Kernel counterpart: `io_uring/bpf_filter.c`.

mod text;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use softring_host::bpf;
use softring_host::user::{self, UserPtr};
use softring_uapi::errno::{Errno, Result};
use softring_uapi::version::played;
use softring_uapi::*;

/// Size of the data that a filter loads from: ten words.
pub(crate) const DATA: usize = 40;
type Program = bpf::Program<DATA>;

/// Check of an opcode's requests.
#[derive(Clone, Debug, Default)]
enum Verdict {
    /// Allowed, without a program.
    #[default]
    Allow,
    /// Denied, whatever is added later.
    Deny,
    /// A program, and the verdict from before it was added.
    Ask(Arc<(Program, Verdict)>),
}

impl Verdict {
    fn allows(&self, data: &[u8; DATA]) -> bool {
        let mut at = self;
        loop {
            match at {
                Verdict::Allow => return true,
                Verdict::Deny => return false,
                Verdict::Ask(asked) if asked.0.run(data) == 0 => return false,
                Verdict::Ask(asked) => at = &asked.1,
            }
        }
    }
}

/// A ring's filters, or a task's for the rings that it creates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters(Option<Arc<Vec<Verdict>>>);

impl Filters {
    /// Returns whether there are any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether the filters allow a request, which has passed all other checks. `data`
    /// returns the data that a filter may load.
    pub(crate) fn allow(&self, opcode: u8, data: impl FnOnce() -> [u8; DATA]) -> bool {
        let verdicts = self.0.as_deref();
        let of = verdicts.and_then(|v| v.get(usize::from(opcode)));
        match of {
            None | Some(Verdict::Allow) => true,
            Some(Verdict::Deny) => false,
            Some(ask) => ask.allows(&data()),
        }
    }

    /// Reads a filter and adds it as the first (`io_register_bpf_filter`). `own` returns the number
    /// of bytes that an opcode's requests provide beyond the common ones.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL`; `EMSGSIZE` if the program wants more bytes of a request than there are.
    pub(crate) fn add(&mut self, addr: UserPtr, own: fn(u8) -> u8) -> Result<()> {
        let mut reg: io_uring_bpf = user::read(addr.addr())?;
        let unknown = reg.flags & !(IO_URING_BPF_FILTER_DENY_REST | IO_URING_BPF_FILTER_SZ_STRICT);
        if reg.cmd_type != IO_URING_BPF_CMD_FILTER
            || (reg.cmd_flags, reg.resv, reg.resv1, reg.resv2) != (0, 0, [0; 3], [0; 5])
            || reg.opcode >= u32::from(played().ops)
            || unknown != 0
            || reg.filter_ptr == 0
            || reg.filter_len == 0
            || reg.filter_len > MAX_INSNS
        {
            return Err(Errno::EINVAL);
        }
        let opcode = reg.opcode as u8;
        let (asked, there) = (reg.pdu_size, own(opcode));
        if asked != there {
            reg.pdu_size = there;
            user::write(addr, &reg)?;
            if asked > there || reg.flags & IO_URING_BPF_FILTER_SZ_STRICT != 0 {
                return Err(Errno::EMSGSIZE);
            }
        }
        let mut insns = vec![sock_filter::default(); reg.filter_len as usize];
        user::read_slice(reg.filter_ptr, &mut insns)?;
        self.put(opcode, Program::new(insns)?, reg.flags & IO_URING_BPF_FILTER_DENY_REST != 0);
        Ok(())
    }

    fn put(&mut self, opcode: u8, program: Program, deny_rest: bool) {
        let none = || Arc::new(vec![Verdict::Allow; usize::from(IORING_OP_LAST)]);
        let verdicts = Arc::make_mut(self.0.get_or_insert_with(none));
        let of = &mut verdicts[usize::from(opcode)];
        *of = Verdict::Ask(Arc::new((program, core::mem::take(of))));
        if deny_rest {
            let free = verdicts.iter_mut().filter(|v| matches!(v, Verdict::Allow));
            free.for_each(|v| *v = Verdict::Deny);
        }
    }
}

/// `BPF_MAXINSNS`.
const MAX_INSNS: u32 = 4096;
