//! The container that a process is in, as far as its host can tell.

use crate::{files, sys};

/// Characters of an id, as Podman and Docker list them.
const SHORT: usize = 12;
/// Characters of an id in full, as the runtimes make it.
const LONG: usize = 64;

/// Name of a pid namespace below ours that nothing else names.
const UNKNOWN: &str = "other";

/// Returns the short id of the container that process `pid` is in, by its control groups. Returns
/// `other` for a process with a pid namespace below ours and no such id; None for a process of this
/// namespace, and for one of the container that we are in.
pub fn of(pid: i32) -> Option<String> {
    let groups = |pid: &str| files::proc_text(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let inner = || {
        let status = files::proc_text(&format!("/proc/{pid}/status")).ok()?;
        is_inner(&status).then(|| UNKNOWN.to_owned())
    };
    let own = id(&groups("self"));
    id(&groups(&pid.to_string())).filter(|id| own.as_ref() != Some(id)).or_else(inner)
}

/// Returns the words to put behind the name of a process that is in `container`.
pub fn words(container: &str) -> String {
    match container {
        UNKNOWN => " in another pid namespace".to_owned(),
        id => format!(" in container {id}"),
    }
}

/// Returns the same words for process `pid`; none if it is in no container.
pub fn words_of(pid: i32) -> String {
    of(pid).as_deref().map_or_else(String::new, words)
}

/// Returns the id in the paths of cgroups(7): `libpod-ID.scope`, `docker/ID`,
/// `cri-containerd-ID.scope`. The last id counts, as a container may run others.
fn id(groups: &str) -> Option<String> {
    let words = groups.rsplit(|c: char| !c.is_ascii_hexdigit());
    let mut ids = words.filter(|word| word.len() == LONG);
    ids.next().map(|id| id[..SHORT].to_owned())
}

/// Returns whether the process has a number in a pid namespace below that of /proc.
fn is_inner(status: &str) -> bool {
    sys::pids(status).count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_runtimes() {
        let long = "0123456789abcdef".repeat(4);
        for path in [
            format!("0::/machine.slice/libpod-{long}.scope/container\n"),
            format!("12:pids:/docker/{long}\n0::/\n"),
            format!("0::/kubepods/burstable/pod1234-ab/cri-containerd-{long}.scope\n"),
            format!("0::/docker/{}/docker/{long}\n", "f".repeat(64)),
        ] {
            assert_eq!(id(&path).as_deref(), Some("0123456789ab"), "{path}");
        }
        for path in ["0::/user.slice/session-3.scope\n", "", "0::/system.slice/deadbeef.service\n"]
        {
            assert_eq!(id(path), None, "{path}");
        }
    }

    #[test]
    fn a_pid_namespace_is_recognised_by_its_number() {
        assert!(is_inner("Name:\tfio\nNSpid:\t4242\t7\n"));
        assert!(!is_inner("Name:\tfio\nNSpid:\t4242\n"));
        assert!(!is_inner(""));
    }
}
