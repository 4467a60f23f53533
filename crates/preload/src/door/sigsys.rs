//! SIGSYS
pub fn open() -> bool {
    false
}
