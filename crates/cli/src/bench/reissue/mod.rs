//! `softring bench reissue`: the gain of issuing a read again if its data came between its attempt
//! and its arming, instead of giving the read to a worker. [`lines`] measures the four ways of a
//! read, [`share`] how many reads go the new way by themselves.

mod lines;
mod share;

use super::plot;
use super::summary::{count, time};
use crate::cli::ReissueArgs;
use crate::out;
use comfy_table::{Cell, CellAlignment, Table};
use hdrhistogram::Histogram;
use rustix::pipe::pipe;
use serde::Serialize;
use softring_uapi::{
    IORING_OP_READ, IORING_OP_RECV, IORING_OP_SEND, IORING_OP_WRITE, io_uring_sqe,
};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

/// Outcomes of a read, in the order of the table.
const LINES: [&str; 4] =
    ["data ready", "ready at arm, reissued", "queueing to a worker", "completion through a worker"];

/// A stream: its reader, its writer and the opcode of a read.
struct Stream {
    name: &'static str,
    reader: OwnedFd,
    writer: OwnedFd,
    opcode: u8,
}

impl Stream {
    fn tcp() -> anyhow::Result<Stream> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let writer = TcpStream::connect(listener.local_addr()?)?;
        writer.set_nodelay(true)?;
        let (reader, writer) = (listener.accept()?.0.into(), writer.into());
        Ok(Stream { name: "tcp", reader, writer, opcode: IORING_OP_RECV })
    }

    fn pipe() -> anyhow::Result<Stream> {
        let (reader, writer) = pipe()?;
        Ok(Stream { name: "pipe", reader, writer, opcode: IORING_OP_READ })
    }

    /// Returns the SQE of a read of `len` bytes to `addr`.
    fn read(&self, addr: usize, len: u32) -> io_uring_sqe {
        let fd = self.reader.as_raw_fd();
        io_uring_sqe { opcode: self.opcode, fd, addr: addr as u64, len, ..Default::default() }
    }

    /// Returns the SQE of a write of the `len` bytes at `addr`.
    fn write(&self, addr: usize, len: u32) -> io_uring_sqe {
        let opcode = if self.opcode == IORING_OP_RECV { IORING_OP_SEND } else { IORING_OP_WRITE };
        let fd = self.writer.as_raw_fd();
        io_uring_sqe { opcode, fd, addr: addr as u64, len, ..Default::default() }
    }
}

/// One line of the table, in nanoseconds.
#[derive(Debug, Serialize)]
struct Line {
    line: &'static str,
    avg: f64,
    min: u64,
    max: u64,
    stddev: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
}

impl Line {
    fn new(line: &'static str, h: &Histogram<u64>) -> Line {
        let q = |q| h.value_at_quantile(q);
        let (p50, p90, p99, p999) = (q(0.5), q(0.9), q(0.99), q(0.999));
        let (avg, stddev) = (h.mean(), h.stdev());
        Line { line, avg, min: h.min(), max: h.max(), stddev, p50, p90, p99, p999 }
    }
}

/// One stream's result.
#[derive(Debug, Serialize)]
struct Result {
    stream: &'static str,
    lines: Vec<Line>,
    /// Average completion through a worker, as a multiple of the average by reissue.
    times_faster: f64,
    /// Flag, true if reissue's 99.9th percentile is below the worker's median.
    tail_below_median: bool,
    shares: Vec<share::Share>,
}

/// The whole result, for JSON output.
#[derive(Debug, Serialize)]
struct Outcome {
    softring: &'static str,
    kernel: String,
    reads: u32,
    bytes: u32,
    streams: Vec<Result>,
}

/// Runs `softring bench reissue`.
pub fn command(args: &ReissueArgs) -> anyhow::Result<()> {
    plot::check(args.plot.as_deref())?;
    // Closes are reported to the engine, as under `softring run`. The claim holds here, too: what
    // the engine sees stays open to the end.
    softring_host::fd::closes_are_reported();
    softring_host::fd::closes_are_all_reported(true);
    let mut streams = Vec::new();
    let bar = out::progress(4);
    for stream in [Stream::tcp()?, Stream::pipe()?] {
        bar.set_message(stream.name);
        let times = lines::measure(&stream, args)?;
        bar.inc(1);
        let shares = vec![
            share::measure(&stream, args, Some(args.rate))?,
            share::measure(&stream, args, None)?,
        ];
        bar.inc(1);
        let lines: Vec<Line> =
            LINES.into_iter().zip(&times).map(|(l, h)| Line::new(l, h)).collect();
        streams.push(Result {
            stream: stream.name,
            times_faster: lines[3].avg / lines[1].avg,
            tail_below_median: lines[1].p999 < lines[3].p50,
            lines,
            shares,
        });
    }
    bar.finish_and_clear();
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let softring = env!("CARGO_PKG_VERSION");
    let outcome = Outcome { softring, kernel, reads: args.reads, bytes: args.bytes, streams };
    if let Some(path) = &args.plot {
        let title = format!("reads of {} bytes, {} per line", args.bytes, args.reads);
        let curve = |l: &Line| [l.p50, l.p90, l.p99, l.p999, l.max].map(|ns| ns as f64);
        let panel = |r: &Result| (r.stream.to_owned(), r.lines.iter().map(curve).collect());
        let panels: Vec<_> = outcome.streams.iter().map(panel).collect();
        plot::draw_percentiles(path, &title, &LINES, &panels)?;
    }
    if args.json { out::json(&outcome) } else { print(&outcome) }
}

fn table(lines: &[Line]) -> Table {
    let header = ["", "avg", "min", "max", "stddev", "p50", "p99", "p99.9"];
    let mut t = out::table(&header);
    for l in lines {
        let whole = [l.min, l.max].map(|ns| ns as f64);
        let tail = [l.p50, l.p99, l.p999].map(|ns| ns as f64);
        let times = [l.avg, whole[0], whole[1], l.stddev, tail[0], tail[1], tail[2]];
        let cell = |ns| Cell::new(time(ns)).set_alignment(CellAlignment::Right);
        t.add_row([Cell::new(l.line)].into_iter().chain(times.map(cell)));
    }
    t
}

fn print(o: &Outcome) -> anyhow::Result<()> {
    for r in &o.streams {
        out::line(&format!("{}: {} bytes, {} reads per line", r.stream, o.bytes, o.reads))?;
        out::line(&table(&r.lines).to_string())?;
        let below = if r.tail_below_median { "below" } else { "not below" };
        out::line(&format!(
            "On average, reissue is {:.1} times as fast as a worker; the p99.9 of reissue, {}, is \
             {below} the median of the worker, {}.",
            r.times_faster,
            time(r.lines[1].p999 as f64),
            time(r.lines[3].p50 as f64)
        ))?;
        for s in &r.shares {
            let rate = s.mbit.map_or("as fast as possible".into(), |n| format!("at {n} Mbit/s"));
            out::line(&format!(
                "Writes {rate}: {} reads, {} ready at once, {} waited, {} ready at arm ({:.2} %).",
                count(s.reads as f64),
                count(s.at_once as f64),
                count(s.waited as f64),
                count(s.ready_at_arm as f64),
                s.percent
            ))?;
        }
    }
    Ok(())
}
