//! Filters of injected faults: each key chooses requests of a program that has two rings, and files
//! of each kind that needs no right.

mod common;

use common::{ME, build, library, text};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The same requests on both rings, one by one.
const PROGRAM: &str = r#"
#include "ring.h"
#include <sys/socket.h>
#include <sys/stat.h>
int main(void)
{
	struct ring rings[2];
	int pipes[2], pair[2];

	mkdir("sub", 0700);
	need(pipe2(pipes, O_CLOEXEC), "pipe2");
	need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), "socketpair");
	int file = new_file("sub/x.wal"), other = need(open("/dev/null", O_RDWR), "/dev/null");

	for (int i = 0; i < 2; i++)
		ring_init(&rings[i], 4, 0);
	for (int i = 0; i < 2; i++) {
		char data[8] = "data";
		ring_do(&rings[i], OP_WRITE, file, data, 4, 0);
		ring_do(&rings[i], OP_READ, file, data, 4, 0);
		ring_do(&rings[i], OP_WRITE, pipes[1], data, 4, 0);
		ring_do(&rings[i], OP_WRITE, pair[1], data, 4, 0);
		ring_do(&rings[i], OP_WRITE, other, data, 4, 0);
		ring_do(&rings[i], OP_FSYNC, file, NULL, 0, 0);
	}
	return 0;
}
"#;

/// The requests of each ring, by their numbers.
const FILE_WRITE: u64 = 0;
const FILE_READ: u64 = 1;
const PIPE: u64 = 2;
const SOCKET: u64 = 3;
const OTHER: u64 = 4;

#[test]
fn each_key_chooses_its_requests() {
    let dir = tempfile::tempdir().unwrap();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/buggy");
    let Some(program) = build(dir.path(), "program", &["-I", header.to_str().unwrap()], PROGRAM)
        .filter(|_| library())
    else {
        return;
    };
    // Faults of the program, by ring and request.
    let faults = |filter: &str| -> Vec<(u32, u64)> {
        let log = dir.path().join("log");
        let mut c = Command::new(ME);
        c.args(["run", "--quiet", "--faults", &format!("enomem=1{filter}"), "--faults-log"]);
        let o = c.arg(&log).arg("--").arg(&program).current_dir(dir.path()).output().unwrap();
        assert_eq!(o.status.code(), Some(0), "{filter}: {}", text(&o.stderr));
        let log = fs::read_to_string(&log).unwrap();
        let lines = log.lines().skip(1).map(|line| softring_faults::log::Line::parse(line));
        lines.map(|line| line.map(|line| (line.ring, line.request)).unwrap()).collect()
    };
    let both = |requests: &[u64]| -> Vec<(u32, u64)> {
        (0..2).flat_map(|ring| requests.iter().map(move |&request| (ring, request))).collect()
    };
    for (filter, wanted) in [
        ("", both(&[FILE_WRITE, FILE_READ, PIPE, SOCKET, OTHER])),
        ("@op=write", both(&[FILE_WRITE, PIPE, SOCKET, OTHER])),
        ("@op=READ", both(&[FILE_READ])),
        ("@op=read+send", both(&[FILE_READ])),
        ("@kind=file", both(&[FILE_WRITE, FILE_READ])),
        ("@kind=pipe", both(&[PIPE])),
        ("@kind=socket", both(&[SOCKET])),
        ("@kind=other", both(&[OTHER])),
        ("@kind=block", both(&[])),
        ("@path=*.wal", both(&[FILE_WRITE, FILE_READ])),
        ("@path=**/sub/?.wal", both(&[FILE_WRITE, FILE_READ])),
        ("@path=/*/x.wal", both(&[])),
        ("@path=/dev/**", both(&[OTHER])),
        ("@ring=1", vec![(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]),
        ("@request=3", both(&[SOCKET])),
        ("@nth=2", both(&[FILE_READ])),
        ("@op=write,nth=2", both(&[PIPE])),
        ("@op=write,kind=file,path=*.wal,ring=1,request=0,nth=1", vec![(1, FILE_WRITE)]),
        ("@op=FSYNC", both(&[])),
    ] {
        assert_eq!(faults(filter), wanted, "{filter}");
    }
}
