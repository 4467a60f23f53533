//! The other end of the echo server: a process of its own, the same for every server. Each
//! connection sends a message, waits for all of it to come back, and sends the next.

use super::job::{Job, Lat, Report};
use super::phase::{Counts, Measured};
use crate::cli::{Driver, Op};
use anyhow::{Context, bail};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Most events taken at once, here and in the epoll server.
pub const EVENTS: usize = 256;

/// A client that is connected.
pub struct Peer {
    child: Child,
}

impl Peer {
    /// Starts a client and takes its connections. With `talks` the client sends.
    pub fn start(job: &Job, talks: bool) -> anyhow::Result<(Peer, Vec<TcpStream>)> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let bs = if talks { job.bs } else { 0 };
        let path = listener.local_addr()?.to_string();
        let load = Job { driver: Driver::Epoll, op: Op::EchoLoad, path, bs, ..job.clone() };
        let mut c = Command::new(crate::files::own_exe()?);
        c.arg("worker")
            .env_remove("LD_PRELOAD")
            .env("SOFTRING_FOLLOW", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = c.spawn().map_err(|e| crate::fail::cannot_start("the client", &e))?;
        if let Some(mut to) = child.stdin.take() {
            to.write_all(serde_json::to_string(&load)?.as_bytes())?;
        }
        let mut peer = Peer { child };
        let accepted = (0..job.connections).map(|_| peer.accept(&listener));
        let streams = accepted.collect::<anyhow::Result<Vec<_>>>()?;
        Ok((peer, streams))
    }

    fn accept(&mut self, listener: &TcpListener) -> anyhow::Result<TcpStream> {
        let (stream, _) = listener.accept().context("cannot accept")?;
        stream.set_nodelay(true)?;
        if let Some(status) = self.child.try_wait()? {
            bail!("the client process ended early: {status}");
        }
        Ok(stream)
    }

    /// Waits for the client's end, which follows that of the connections. Returns its latencies.
    pub fn finish(mut self) -> anyhow::Result<Lat> {
        let mut text = String::new();
        if let Some(mut from) = self.child.stdout.take() {
            from.read_to_string(&mut text)?;
        }
        self.child.wait()?;
        let report: Report = serde_json::from_str(text.trim()).context("the client's report")?;
        Ok(report.lat)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection, with its message on the way.
struct Call {
    stream: TcpStream,
    sent: Instant,
    got: usize,
}

/// Runs the client: connects, sends and receives until the server hangs up, and times the messages
/// after the warm-up.
pub fn load(job: &Job) -> anyhow::Result<(Counts, Measured)> {
    let mut counts = Counts::new(false)?;
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    let mut calls = Vec::new();
    for i in 0..job.connections {
        let stream = TcpStream::connect(&job.path).context("cannot connect")?;
        stream.set_nodelay(true)?;
        epoll::add(&set, &stream, EventData::new_u64(u64::from(i)), EventFlags::IN)?;
        calls.push(Call { stream, sent: Instant::now(), got: 0 });
    }
    let message = vec![0x55u8; job.bs as usize];
    let start = Instant::now();
    for call in &mut calls {
        call.sent = Instant::now();
        call.stream.write_all(&message)?;
    }
    let from = start + Duration::from_secs_f64(job.warmup);
    let until = from + Duration::from_secs_f64(job.seconds);
    let ((), measured) =
        Measured::of(|| talk(&set, &mut calls, &message, &mut counts, from, until));
    Ok((counts, measured))
}

/// Exchanges messages until a connection ends.
fn talk(
    set: &impl std::os::fd::AsFd,
    calls: &mut [Call],
    message: &[u8],
    counts: &mut Counts,
    from: Instant,
    until: Instant,
) {
    let mut buf = vec![0u8; message.len().max(1)];
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        events.clear();
        match epoll::wait(set, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        for event in &events {
            let call = &mut calls[event.data.u64() as usize];
            match call.stream.read(&mut buf) {
                Ok(n @ 1..) => call.got += n,
                _ => return,
            }
            if call.got < message.len() {
                continue;
            }
            call.got = 0;
            let now = Instant::now();
            if now >= from && now < until {
                let ns = now.duration_since(call.sent).as_nanos() as u64;
                counts.io(message.len() as u64, ns);
            }
            call.sent = now;
            if call.stream.write_all(message).is_err() {
                return;
            }
        }
    }
}
