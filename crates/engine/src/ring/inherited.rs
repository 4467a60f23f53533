//! What a ring is to a forked child, which goes on with it.

/// A ring in a forked child.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The process that forked this one had it before.
    pub has_parent: bool,
    /// Requests that are written down for the parent.
    pub written: usize,
    /// The parent was told to watch this child.
    pub watched: bool,
    /// The parent did not answer, and is not asked again (`process::relay`).
    pub deaf_parent: bool,
}

impl Inherited {
    /// Of a child that has just been forked.
    pub fn new() -> Inherited {
        Inherited { has_parent: true, ..Inherited::default() }
    }
}
