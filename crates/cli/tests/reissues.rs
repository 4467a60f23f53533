//! Counts that `softring stats` shows of attempts at files that can be polled: for a ring in this
//! process, six counts that all differ.

#[path = "../../engine/tests/client/mod.rs"]
mod client;
mod common;

use client::{Client, sqe};
use common::{softring, text};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use softring_host::limits::MAX_ARMS;
use softring_uapi::*;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

const FIELDS: [&str; 6] =
    ["done_at_once", "armed", "ready_at_arm", "reissued", "aborted", "capped"];
const COLUMNS: [&str; 7] = ["ring", "at once", "armed", "at arm", "reissued", "aborted", "capped"];

fn io(opcode: u8, fd: &impl AsRawFd, len: u32) -> io_uring_sqe {
    let buf = Box::leak(Box::new([b'x'; 256]));
    let addr = buf.as_mut_ptr().expose_provenance() as u64;
    io_uring_sqe { fd: fd.as_raw_fd(), addr, len, ..sqe(opcode, 1) }
}

/// Enters, waits for `n` completions, and takes them: each has a byte.
fn enter(c: &Client, submit: u32, n: u32) {
    assert_eq!(c.enter(submit, n), submit as isize);
    let results: Vec<_> = std::iter::from_fn(|| c.pop()).map(|e| e.res).collect();
    assert_eq!(results, vec![1; n as usize]);
}

/// Makes requests that find no number free for a poll set.
fn aborted(c: &Client, n: u32) {
    let (r, mut w) = pipe().unwrap();
    let was = getrlimit(Resource::Nofile);
    let low = r.try_clone().unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(low), ..was }).unwrap();
    (0..n).for_each(|_| c.push(io(IORING_OP_READ, &r, 1)));
    enter(c, n, 0);
    setrlimit(Resource::Nofile, was).unwrap();
    for _ in 0..n {
        w.write_all(b"x").unwrap();
        enter(c, 0, 1);
    }
}

/// Makes reads whose data come once they wait.
fn reissued(c: &Client, (r, w): (&PipeReader, &mut PipeWriter), n: u32) {
    for _ in 0..n {
        c.push(io(IORING_OP_READ, r, 1));
        enter(c, 1, 0);
        w.write_all(b"x").unwrap();
        enter(c, 0, 1);
    }
}

/// Makes a request that is tried until it has been tried too often; it goes on with a worker.
fn capped(c: &Client) -> UnixStream {
    const MSG_WAITALL: u32 = 0x100;
    let (mut one, two) = UnixStream::pair().unwrap();
    c.push(io_uring_sqe { op_flags: MSG_WAITALL, ..io(IORING_OP_RECV, &two, 200) });
    enter(c, 1, 0);
    for _ in 0..MAX_ARMS {
        one.write_all(b"x").unwrap();
        enter(c, 0, 0);
        // A poll finds the request not ready where it is armed now.
        enter(c, 0, 0);
    }
    one
}

fn numbers(row: &str) -> Vec<u64> {
    row.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

/// Makes a ring with six counts; returns also what has to stay open.
fn counted() -> (Client, UnixStream, PipeWriter) {
    let c = Client::new(16, 0);
    aborted(&c, 2);
    let (r, mut w) = pipe().unwrap();
    reissued(&c, (&r, &mut w), 4);
    for _ in 0..3 {
        // The data come between the attempt and the poll behind its arming.
        c.push(io(IORING_OP_READ, &r, 1));
        c.push(io(IORING_OP_WRITE, &w, 1));
        enter(&c, 2, 2);
    }
    for _ in 0..7 {
        w.write_all(b"x").unwrap();
        c.push(io(IORING_OP_READ, &r, 1));
        enter(&c, 1, 1);
    }
    let goes_on = capped(&c);
    c.push(io(IORING_OP_READ, &r, 1));
    enter(&c, 1, 0);
    (c, goes_on, w)
}

fn reissue_stats(pid: &str) -> (String, Value) {
    let told = text(&softring(&["stats", "-p", pid, "--json"]).stdout);
    let page: Value = serde_json::from_str(&told).expect("JSON");
    let reissue = page[0]["rings"][0]["reissue"].clone();
    (told, reissue)
}

#[test]
fn each_reissue_count_is_correct() {
    let pid = std::process::id().to_string();
    // Only data found at once were ready at arm: if this thread was preempted, the test tries
    // again.
    let (_open, told, got) = (0..50)
        .find_map(|_| {
            let open = counted();
            let (told, got) = reissue_stats(&pid);
            (got["ready_at_arm"] == 3).then_some((open, told, got))
        })
        .expect("three that are ready at arm");
    let tries = u64::from(MAX_ARMS);
    let want = [3 + 7, 4 + 3 + tries + 1, 3, 4 + 3 + tries, 2, 1];

    let fields: serde_json::Map<_, _> =
        FIELDS.iter().zip(want).map(|(name, n)| ((*name).to_owned(), json!(n))).collect();
    assert_eq!(got, Value::Object(fields));
    let at = told.find("\"reissue\"").expect("the object");
    let places = FIELDS.map(|name| told[at..].find(&format!("\"{name}\"")).expect("a field"));
    assert!(places.is_sorted(), "{told}");

    let table = text(&softring(&["stats", "-p", &pid]).stdout);
    let mut lines = table.lines().skip_while(|l| !l.contains("at arm"));
    let header = lines.next().expect("the header");
    let places = COLUMNS.map(|name| header.find(name).expect("a column"));
    assert!(places.is_sorted(), "{header}");
    let row = lines.map(numbers).find(|row| !row.is_empty()).expect("a row");
    assert_eq!(row[1..], want, "{table}");
}
