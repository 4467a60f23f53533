//! The environment of the program to start: that of this process, entry by entry, in its order,
//! doubled names and entries without `=` included. Only variables that softring sets are changed.

use crate::sys;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The entries of an environment, as execve(2) takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(Vec<CString>);

impl Environment {
    /// Returns this process's environment.
    pub fn own() -> Environment {
        Environment(sys::environ())
    }

    /// Returns the value that getenv(3) finds under a name: the first entry's.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.iter().find_map(|entry| value(entry, name)).map(OsStr::from_bytes)
    }

    /// Returns the value that the dynamic linker finds under a name: the last entry's.
    pub fn get_last(&self, name: &str) -> Option<&OsStr> {
        self.0.iter().rev().find_map(|entry| value(entry, name)).map(OsStr::from_bytes)
    }

    /// Sets a name: in place if it is there, else behind all others. The name is then there once,
    /// as readers differ in which of several they take.
    pub fn set(&mut self, name: &str, value_of: impl Into<OsString>) {
        let mut bytes = format!("{name}=").into_bytes();
        bytes.extend(value_of.into().into_vec());
        // A NUL cannot come from a command line or an environment.
        let Ok(new) = CString::new(bytes) else { return };
        let named = |entry: &CString| value(entry, name).is_some();
        let at = self.0.iter().position(named).unwrap_or(self.0.len());
        self.0.retain(|entry| !named(entry));
        self.0.insert(at, new);
    }

    pub fn entries(&self) -> &[CString] {
        &self.0
    }
}

/// Returns the value of an entry, if it has this name.
fn value<'a>(entry: &'a CString, name: &str) -> Option<&'a [u8]> {
    entry.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(entries: &[&str]) -> Environment {
        Environment(entries.iter().map(|e| CString::new(*e).unwrap()).collect())
    }

    #[test]
    fn unset_options_keep_the_environment() {
        let mut env = environment(&["B=2", "odd", "A=1", "A=3", "=x", "AA=4"]);
        env.set("C", "5");
        assert_eq!(env, environment(&["B=2", "odd", "A=1", "A=3", "=x", "AA=4", "C=5"]));
        assert_eq!(env.get("A"), Some(OsStr::new("1")));
        assert_eq!(env.get_last("A"), Some(OsStr::new("3")));
        env.set("A", "6");
        assert_eq!(env, environment(&["B=2", "odd", "A=6", "=x", "AA=4", "C=5"]));
        assert_eq!((env.get("odd"), env.get("")), (None, Some(OsStr::new("x"))));
    }
}
