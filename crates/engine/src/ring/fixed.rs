//! Registered buffers of requests. Kernel counterpart: `io_import_reg_buf`, `io_import_reg_vec`.

use crate::resources::buffers::BufNode;
use crate::ring::ctx::Resources;
use crate::ring::opdef;
use crate::ring::request::{Call, FileRef, Req};
use softring_host::fd::is_path_only;
use softring_uapi::IORING_SEND_VECTORIZED;
use softring_uapi::errno::{Errno, Result};

impl Resources {
    /// Looks the registered buffer up and checks the range against it (`io_import_reg_buf`).
    ///
    /// # Errors
    /// `EFAULT`.
    pub(crate) fn assign_buffer(&self, req: &mut Req) -> Result<()> {
        let needs = req.row.has(opdef::FIXED) || req.transfers_fixed();
        // The parts of a message are in the buffer; any other send has its address there.
        let vectorized = req.call.sqe().ioprio & IORING_SEND_VECTORIZED != 0;
        let parts = vectorized || req.row.has(opdef::MESSAGE);
        let call = &mut req.call;
        if !needs || call.buf.is_some() {
            return Ok(());
        }
        // A number that is closed, or open for its path only, fails first.
        let closed = |e| match call.file {
            FileRef::Plain(fd) if is_path_only(fd) => Errno::EBADF,
            _ => e,
        };
        let node = self.buffers.get(call.sqe().buf_index).and_then(|node| {
            in_buffer(&node, call, parts)?;
            Ok(node)
        });
        call.buf = Some(node.map_err(closed)?);
        Ok(())
    }
}

/// Checks a transfer against its registered buffer. `parts`: that of a message has parts.
fn in_buffer(node: &BufNode, call: &Call, parts: bool) -> Result<()> {
    let of_message = || Some(&call.state.message().filter(|_| parts)?.iov[..]);
    let Some(iov) = call.state.vector().or_else(of_message) else {
        return node.check(call.io().addr.addr(), u64::from(call.io().len));
    };
    // A part of no length is refused; a vector of no parts is not (`io_vec_fill_bvec`).
    if iov.iter().any(|v| v.len == 0) {
        return Err(Errno::EFAULT);
    }
    iov.iter().try_for_each(|v| node.check(v.base, v.len))
}
