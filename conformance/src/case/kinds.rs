//! Descriptor numbers that mean a stream, then a file, then a stream again: each transfer is one of
//! the kind that the number has now.

use super::prelude::*;
use std::os::fd::RawFd;

pub const CASES: &[Case] = &[
    any_order!("kinds", read, [Op(IORING_OP_READ)], "a number that was read as a stream means a file, whoever closed it"),
    any_order!("kinds", written, [Op(IORING_OP_WRITE)], "the same with writes"),
    any_order!("kinds", shared_table, [Op(IORING_OP_READ)], "a process that has the same table of descriptors gives a number to a file"),
    any_order!("kinds", shared_table_closes, [Op(IORING_OP_READ)], "a process that has the same table of descriptors closes a number on which a request waits"),
    any_order!("kinds", own_table_closes, [Op(IORING_OP_READ)], "a thread with a table of its own closes a number on which a request waits"),
];

/// Means by which a number comes to mean another file.
const WAYS: [&str; 5] = ["close", "close_range", "dup2", "CLOSE", "by the entry point"];

/// Gives `number` to the file of `to`.
fn become_file(cx: &mut Cx, ring: &mut Ring, way: &str, number: RawFd, to: RawFd) {
    let closed = match way {
        "close" => os::close(number),
        "close_range" => os::close_range(number, number),
        "CLOSE" => {
            cx.one(ring, "CLOSE", sqe::op(IORING_OP_CLOSE, number), 0);
            0
        }
        "by the entry point" => entry::close(cx.entry, number) as i32,
        _ => 0,
    };
    cx.is(&format!("{way}: closed"), closed, 0);
    let is = if way == "dup2" { os::dup2(to, number) } else { os::dup(to) };
    cx.holds(&format!("{way}: the number means the other"), is == number);
}

fn shared_table(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let file = cx.file("f", b"0123456789")?;
    let mut buf = [0; 2];
    let number = os::dup(r.as_raw_fd());
    for _ in 0..3 {
        rustix::io::write(&w, b"ab")?;
        cx.one(&mut ring, "a stream", sqe::read(number, &mut buf, 0), 2);
    }
    let to = file.as_raw_fd();
    let child = os::in_raw_child(libc::CLONE_FILES, || i32::from(os::dup2(to, number) != number));
    cx.is("the number means the file", child, 0);
    cx.one(&mut ring, "a file", sqe::read(number, &mut buf, 4), 2);
    cx.eq("data of the file", *std::hint::black_box(&buf), *b"45");
    os::close(number);
    Ok(())
}

/// Closes a number on which a request waits, by `close`, which returns 0.
fn closes(cx: &mut Cx, close: impl FnOnce(RawFd) -> i32) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let mut buf = [0; 2];
    let number = os::dup(r.as_raw_fd());
    for _ in 0..3 {
        cx.start(&mut ring, &[sqe::read(number, &mut buf, 0).ud(1)]);
        cx.quiet(&ring, "waits", 2);
        rustix::io::write(&w, b"ab")?;
        cx.reap(&mut ring, "read", &[(1, 2)]);
    }
    cx.start(&mut ring, &[sqe::read(number, &mut buf, 0).ud(1)]);
    cx.quiet(&ring, "waits", 2);
    cx.is("closed", close(number), 0);
    rustix::io::write(&w, b"ab")?;
    cx.reap(&mut ring, "read by a number that is closed", &[(1, 2)]);
    Ok(())
}

fn shared_table_closes(cx: &mut Cx) -> Outcome {
    closes(cx, |number| os::in_raw_child(libc::CLONE_FILES, || os::close(number)))
}

fn own_table_closes(cx: &mut Cx) -> Outcome {
    closes(cx, |number| {
        let closing = std::thread::spawn(move || os::unshare_files() | os::close(number));
        closing.join().unwrap_or(-1)
    })
}

fn read(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let file = cx.file("f", b"0123456789")?;
    let mut buf = [0; 2];
    let number = os::dup(r.as_raw_fd());
    for way in WAYS {
        for _ in 0..3 {
            rustix::io::write(&w, b"ab")?;
            cx.one(&mut ring, "a stream has no position", sqe::read(number, &mut buf, 0), 2);
            cx.eq("data of the stream", *std::hint::black_box(&buf), *b"ab");
        }
        become_file(cx, &mut ring, way, number, file.as_raw_fd());
        for at in [4, 0, 4] {
            cx.one(&mut ring, "a file has", sqe::read(number, &mut buf, at), 2);
            let want = if at == 0 { *b"01" } else { *b"45" };
            cx.eq("data of the file", *std::hint::black_box(&buf), want);
        }
        become_file(cx, &mut ring, way, number, r.as_raw_fd());
    }
    os::close(number);
    Ok(())
}

fn written(cx: &mut Cx) -> Outcome {
    let mut ring = cx.ring(4, 0)?;
    let (r, w) = cx.pipe()?;
    let file = cx.file("f", b"0123456789")?;
    let mut buf = [0; 2];
    let number = os::dup(w.as_raw_fd());
    for (way, at) in WAYS.into_iter().zip(0..) {
        for _ in 0..3 {
            cx.one(&mut ring, "a stream has no position", sqe::write(number, b"ab", 0), 2);
            rustix::io::read(&r, &mut buf)?;
        }
        become_file(cx, &mut ring, way, number, file.as_raw_fd());
        cx.one(&mut ring, "a file has", sqe::write(number, b"x", at * 2), 1);
        cx.one(&mut ring, "and keeps it", sqe::write(number, b"y", at * 2 + 1), 1);
        become_file(cx, &mut ring, way, number, w.as_raw_fd());
    }
    os::close(number);
    let found = cx.content("f")?;
    cx.eq("file", String::from_utf8_lossy(&found).into_owned(), "xy".repeat(5));
    Ok(())
}
