//! Power cuts of a program that stores by every kind of call: what it has synced is there.

mod common;

use common::{ME, library, text};
use serde_json::Value;
use softring_testing::skipped;
use std::fs;
use std::process::Command;

/// Makes one kind of change after the other, syncs it, and tells its name. Without an argument it
/// syncs nothing.
const FILL: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
synced = len(sys.argv) > 1

def sync(*files):
    for fd in files:
        if synced:
            os.fsync(fd)
    folder = os.open('.', os.O_RDONLY)
    if synced:
        os.fsync(folder)
    os.close(folder)

def new(name, data=b'', flags=0):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o600)
    os.write(fd, data)
    return fd

def told(name):
    os.write(1, name.encode() + b'\\n')

fd = new('first', b'A' * 5000)
os.link('first', 'second')
os.unlink('first')
sync(fd)
told('link')

os.close(new('old', b'O' * 3000))
fd = new('new', b'N' * 9000)
sync(fd)
os.rename('new', 'old')
sync()
told('rename')

fd = new('x')
os.unlink('x')
os.write(fd, b'z' * 70000)
sync(fd)
os.ftruncate(fd, 10)
told('deleted')

fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b't' * 6000)
libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, b'linked', 0x400)
sync(fd)
told('tmpfile')

fd = new('f')
os.posix_fallocate(fd, 0, 10000)
os.pwrite(fd, b'q' * 5000, 0)
libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(4096))
sync(fd)
told('fallocate')

source = new('source', bytes(range(250)) * 80)
for name, call in [
    ('copy_file_range', lambda to: os.copy_file_range(source, to, 20000, 0)),
    ('sendfile', lambda to: os.sendfile(to, source, 0, 20000)),
]:
    fd = new(name)
    call(fd)
    sync(source, fd)
    told(name)

reader, writer = os.pipe()
os.write(writer, b'P' * 4000)
fd = new('splice')
os.splice(reader, fd, 4000)
sync(fd)
told('splice')

fd = new('n' * 255, b'L' * 100)
os.mkdir('d' * 255)
os.rename('n' * 255, 'd' * 255 + '/' + 'e' * 255)
os.symlink('x' * 4000, 's' * 255)
sync(fd, os.open('d' * 255, os.O_RDONLY))
told('longest')

for name in 'ab':
    os.close(new(name, name.encode()))
os.sync() if synced else None
libc.syscall(316, -100, b'a', -100, b'b', 2)
sync()
told('exchange')

fd = new('log', b'', os.O_APPEND)
for n in range(5):
    os.write(fd, b'record %d\\n' % n * 100)
    sync(fd)
    told('append')
";

const CHECK: &str = "
import os, sys
told = sys.stdin.read().split()

def is_there(name, data):
    found = open(name, 'rb').read() if os.path.exists(name) else b'nothing'
    if found != data:
        sys.exit('%s is lost' % name[:20])

pattern = bytes(range(250)) * 80
records = b''.join(b'record %d\\n' % n * 100 for n in range(told.count('append')))
for name, file, data in [
    ('link', 'second', b'A' * 5000),
    ('rename', 'old', b'N' * 9000),
    ('tmpfile', 'linked', b't' * 6000),
    ('fallocate', 'f', bytes(4096) + b'q' * 904 + bytes(5000)),
    ('copy_file_range', 'copy_file_range', pattern),
    ('sendfile', 'sendfile', pattern),
    ('splice', 'splice', b'P' * 4000),
    ('longest', 'd' * 255 + '/' + 'e' * 255, b'L' * 100),
    ('exchange', 'a', b'b'),
    ('exchange', 'b', b'a'),
]:
    if name in told:
        is_there(file, data)
if 'longest' in told and os.readlink('s' * 255) != 'x' * 4000:
    sys.exit('the symbolic link is lost')
if 'append' in told and not open('log', 'rb').read().startswith(records):
    sys.exit('a record is lost')
for gone, name in [('first', 'link'), ('x', 'deleted')]:
    if name in told and os.path.exists(gone):
        sys.exit(gone + ' is there again')
";

/// Explores power cuts of the program, in a folder on a file system that has all these calls.
fn explore(options: &[&str], words: &[&str]) -> Option<Value> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::create_dir(dir.path().join("empty")).unwrap();
    fs::write(at("fill.py"), FILL).unwrap();
    fs::write(at("check.py"), CHECK).unwrap();
    let python = Command::new("python3").args(["-c", "import os; os.splice, os.sendfile"]).output();
    if !python.is_ok_and(|o| o.status.success()) {
        skipped!("no python3 with splice(2)");
        return None;
    }
    let mut c = Command::new(ME);
    c.args(["crash", "explore", "--no-minimise", "--json", &at("json"), "--with", &at("empty")]);
    c.args(options).args(["--check", &format!("python3 {}", at("check.py")), "--", "python3"]);
    let o = c.arg(at("fill.py")).args(words).env("TMPDIR", dir.path()).output().unwrap();
    let report = fs::read(at("json")).unwrap_or_default();
    let report = serde_json::from_slice(&report);
    Some(report.unwrap_or_else(|e| panic!("{e}: {}", text(&o.stderr))))
}

#[test]
fn what_is_synced_is_there_by_whatever_call() {
    if !library() {
        return;
    }
    for model in ["model=posix-minimal", "model=ext4-ordered"] {
        let options = ["--seeds", "24", "--crash", model];
        let Some(report) = explore(&options, &["synced"]) else { return };
        assert_eq!((&report["runs"], &report["failed"]), (&24.into(), &0.into()), "{report}");
    }
    let Some(report) = explore(&["--seeds", "12"], &[]) else { return };
    assert!(report["failed"].as_u64().unwrap() > 6, "the checker notices: {report}");
}
