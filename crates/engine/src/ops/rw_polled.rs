//! Reads and writes of rings that poll for completions (IOPOLL). Kernel counterpart:
//! `io_rw_init_file` in `io_uring/rw.c`.

use crate::io::kinds::is_direct;
use crate::ops::rw;
use crate::ring::ctx::Setup;
use crate::ring::opdef;
use crate::ring::request::{Req, kind_of};
use softring_host::fd::kind::Kind;
use softring_uapi::RWF_HIPRI;
use softring_uapi::errno::{Errno, Result};

impl Setup {
    /// Checks that a polled read or write has a file with O_DIRECT (`io_rw_init_file`).
    ///
    /// # Errors
    /// `EOPNOTSUPP`; `EBADF` as ever.
    pub(crate) fn check_polled(&self, req: &mut Req) -> Result<()> {
        if !self.polls() || !req.row.has(opdef::AIO) {
            return Ok(());
        }
        // All I/O of a polled ring is RWF_HIPRI.
        req.call.set_flags(req.call.io().flags & !RWF_HIPRI);
        let file = &req.call.file;
        // A file in memory is of kind `Memory` even if it was opened with O_DIRECT.
        let memory = || kind_of(file) == Kind::Memory && is_direct(file.fd());
        if kind_of(file) == Kind::Direct || memory() {
            return Ok(());
        }
        Err(rw::first_of(&req.call, Errno::EOPNOTSUPP))
    }
}
