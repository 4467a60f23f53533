//! The file in which the library records the programs that it has named because they start without
//! it (`SOFTRING_RUN`). There is one file for each run, made when there is something to record.
//! Nobody outlives a run to remove its file; the next run does.

use crate::files;
use rustix::process::{Pid, getpid, test_kill_process};
use softring_host::refused;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn folder() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if files::status(shared).is_ok_and(files::Status::is_dir) {
        shared.to_owned()
    } else {
        env::temp_dir()
    }
}

/// Returns a file name for this run, which is this process.
pub fn file() -> PathBuf {
    let (folder, mine) = (folder(), format!("softring-run-{}-", files::own_ids().0));
    // Under a filter, other runs sweep: a policy may kill for the calls that sweeping takes.
    if !refused::is_filtered() {
        sweep(&folder, &mine);
    }
    folder.join(format!("{mine}{}-{:x}", own_pid(), files::random()))
}

fn own_pid() -> i32 {
    let pid = files::proc_status("Pid").and_then(|pid| pid.parse().ok());
    pid.unwrap_or_else(|| getpid().as_raw_nonzero().get())
}

/// Removes the files whose run is over.
fn sweep(folder: &Path, mine: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(mine));
        let pid = rest.and_then(|rest| rest.split('-').next()?.parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw)
            && test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_ended_runs_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let child = std::process::Command::new("true").spawn();
        let gone = child.and_then(|mut c| c.wait().map(|_| c.id())).unwrap();
        let alive = std::process::id();
        let names =
            [format!("x-{gone}-1"), format!("x-{alive}-1"), format!("y-{gone}-1"), "x-".into()];
        for name in &names {
            fs::write(dir.path().join(name), "").unwrap();
        }
        sweep(dir.path(), "x-");
        let left = names.map(|name| dir.path().join(name).exists());
        assert_eq!(left, [false, true, true, true]);
    }
}
