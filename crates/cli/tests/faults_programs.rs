//! Injected faults in programs with threads and forked children, in static ones, and the replay of
//! logs that are cut off or another program's.

mod common;

use common::{ME, build, build_by, library, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Writes a file by a ring and reads it back, with each of four rings: one after the other, each in
/// a thread, or in forked children. `left`: a child leaves requests on its parent's ring.
const PROGRAM: &str = r#"
#include "ring.h"
#include <pthread.h>
#include <sys/wait.h>

static struct ring rings[4];

static void *work(void *arg)
{
	long n = (long)arg;
	char name[2] = { 'a' + n, 0 }, data[8192], back[8192];
	int fd = new_file(name);

	fill(data, sizeof(data), n);
	for (int i = 0; i < 8; i++)
		ring_write_all(&rings[n], fd, data, sizeof(data), i * sizeof(data));
	for (unsigned i = 0, done = 0; i < 8; i++, done = 0) {
		while (done < sizeof(back)) {
			int res = ring_do(&rings[n], OP_READ, fd, back + done, sizeof(back) - done,
					  i * sizeof(data) + done);

			if (res <= 0)
				wrong("READ: %d", res);
			done += res;
		}
		if (first_wrong(back, sizeof(back), n) < sizeof(back))
			wrong("ring %ld: not what was written", n);
	}
	return NULL;
}

static void leave(void)
{
	int status;
	pid_t child = fork();

	if (!child) {
		for (int i = 0; i < 4; i++)
			ring_sqe(&rings[0], OP_NOP, -1, NULL, 0, 0);
		ring_submit(&rings[0]);
		_exit(0);
	}
	waitpid(child, &status, 0);
	for (int i = 0; i < 4; i++) {
		struct cqe *cqe = ring_wait_for(&rings[0], 2000);

		if (!cqe || cqe->res)
			wrong("a NOP of the child: %d", cqe ? cqe->res : 1);
		__atomic_store_n(rings[0].cq_head, *rings[0].cq_head + 1, __ATOMIC_RELEASE);
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[4];
	int status;

	for (int i = 0; i < 4; i++)
		ring_init(&rings[i], 4, 0);
	switch (argv[1][0]) {
	case 'l':
		leave();
		break;
	case 'f':
		for (long i = 0; i < 4; i++) {
			if (!fork()) {
				work((void *)i);
				_exit(0);
			}
		}
		while (wait(&status) > 0)
			if (status)
				wrong("a child: %d", status);
		break;
	case 't':
		for (long i = 0; i < 4; i++)
			pthread_create(&threads[i], NULL, work, (void *)i);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		break;
	default:
		for (long i = 0; i < 4; i++)
			work((void *)i);
	}
	return 0;
}
"#;

/// All faults but interruptions of waits, which depend on time.
const SPEC: &str = "legal,seed=7,eintr=0,short-read=0.4,short-write=0.4,delay=0.2:1ms";

fn header() -> String {
    format!("-I{}/../../examples/buggy", env!("CARGO_MANIFEST_DIR"))
}

fn program(dir: &Path) -> Option<PathBuf> {
    build(dir, "program", &[&header(), "-pthread"], PROGRAM).filter(|_| library())
}

/// Runs a program with options of faults in a folder of its own.
fn run(program: &Path, options: &[&str], what: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut c = Command::new(ME);
    c.args(["run", "--deny", "--quiet"]).args(options).arg("--").arg(program).arg(what);
    c.current_dir(dir.path()).output().unwrap()
}

/// Returns the lines of the log of a run that succeeds, sorted, without processes and paths.
fn log(program: &Path, options: &[&str], what: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let o = run(program, &[options, &["--faults-log", log.to_str().unwrap()]].concat(), what);
    assert!(o.status.success(), "{what}: {}", text(&o.stderr));
    let lines = fs::read_to_string(log).unwrap();
    let line = |line: &str| line.split(",\"pid\"").next().unwrap().to_owned();
    let mut lines: Vec<_> = lines.lines().skip(1).map(line).collect();
    lines.sort();
    lines
}

#[test]
fn each_ring_has_its_faults_in_whatever_thread_or_process() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path()) else { return };
    let one_by_one = log(&program, &["--faults", SPEC], "one by one");
    assert!(one_by_one.len() > 40, "{one_by_one:?}");
    for what in ["threads", "forked", "threads"] {
        assert_eq!(log(&program, &["--faults", SPEC], what), one_by_one, "{what}");
    }
}

#[test]
fn what_a_child_has_done_on_its_parents_ring_is_told_as_done() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path()) else { return };
    for faults in ["delay=20ms", "reorder=1", "overflow=1", "legal,seed=3"] {
        let o = run(&program, &["--faults", faults], "left");
        assert!(o.status.success(), "{faults}: {}", text(&o.stderr));
    }
}

#[test]
fn static_programs_have_the_same_faults() {
    let dir = tempfile::tempdir().unwrap();
    let Some(shared) = program(dir.path()) else { return };
    let want = log(&shared, &["--faults", SPEC], "one by one");
    for (compiler, how) in [("cc", "-static"), ("musl-gcc", "-static")] {
        let name = format!("{compiler}-static");
        let options = [how, "-pthread", &header()];
        let Some(program) = build_by(compiler, dir.path(), &name, &options, PROGRAM) else {
            continue;
        };
        assert_eq!(log(&program, &["--faults", SPEC], "one by one"), want, "{name}");
    }
}

#[test]
fn a_replay_tells_what_it_cannot_use() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path()) else { return };
    let path = dir.path().join("log");
    let path = path.to_str().unwrap();
    let o = run(&program, &["--faults", SPEC, "--faults-log", path], "one by one");
    assert!(o.status.success(), "{}", text(&o.stderr));
    let whole = fs::read_to_string(path).unwrap();
    let replayed = log(&program, &["--faults-replay", path], "threads");
    assert_eq!(replayed, log(&program, &["--faults", SPEC], "one by one"));
    // The log is cut off in the middle of a line.
    fs::write(path, &whole[..whole.len() - 20]).unwrap();
    let o = run(&program, &["--faults-replay", path], "one by one");
    let said = text(&o.stderr);
    assert_eq!(o.status.code(), Some(2), "{said}");
    assert!(said.contains("its last line is cut off: take that out"), "{said}");
    // Another program makes other requests under the same numbers.
    fs::write(path, whole.replace("\"op\":\"WRITE\"", "\"op\":\"SEND\"")).unwrap();
    let writes = |lines: &[String]| lines.iter().any(|line| line.contains("\"WRITE\""));
    assert!(writes(&replayed));
    assert!(!writes(&log(&program, &["--faults-replay", path], "one by one")));
}
