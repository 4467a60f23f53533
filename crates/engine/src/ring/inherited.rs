//! What a ring is to a forked child, which goes on with it.

/// A ring in a forked child.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// The process that forked this one had it before.
    pub(crate) has_parent: bool,
    /// Requests that are written down for the parent.
    pub(crate) written: usize,
    /// The parent was told to watch this child.
    pub(crate) watched: bool,
    /// The parent did not answer, and is not asked again (`process::remote_cancel`).
    pub(crate) parent_is_silent: bool,
}

impl Inherited {
    /// The state of a child that has just been forked.
    pub(crate) fn new() -> Inherited {
        Inherited { has_parent: true, ..Inherited::default() }
    }
}
