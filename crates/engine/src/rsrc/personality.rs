//! Registered personalities: credentials to act under. Kernel counterpart: `io_register_personality`.

/// A snapshot of a thread's credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Creds {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// Runs `f` under `creds`.
pub fn under<T>(_creds: Option<std::sync::Arc<Creds>>, f: impl FnOnce() -> T) -> T {
    f()
}
