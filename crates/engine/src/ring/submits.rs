//! Requests of the state of a ring to its submission.

use crate::io::token::ReqId;
use softring_uapi::errno::Errno;

/// Submission of a ring's requests.
pub(crate) trait Submits {
    /// Finds another place to wait for a request that the poll set does not take.
    fn abort(&mut self, id: ReqId, e: Errno);
}
