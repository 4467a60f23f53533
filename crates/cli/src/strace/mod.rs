//! `softring strace`: a line for every request, as strace(1) writes one for every system call.

mod address;
mod args;
mod errnos;
mod flags;
mod lines;
pub mod select;
mod summary;
mod times;

use crate::cli::StraceArgs;
use crate::trace::session::{self, Session, Sink};
use crate::trace::{Readers, nothing_seen, refuse_kernel};
use crate::{container, fail, out, signals};
use lines::{How, Lines, Waiting};
use select::{Ops, Select};
use softring_engine::stats::clean::printable;
use softring_engine::stats::trace::read::Source;
use softring_engine::stats::trace::{Event, LOCAL, Step};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use summary::Summary;
use times::{Format, Times};

/// Quotes a text; bytes that a terminal would act on are written as strace(1) writes them.
pub fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\r' => text.push_str("\\r"),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                // An octal number has three digits if a digit follows.
                let digit = bytes.get(at + 1).is_some_and(u8::is_ascii_digit);
                let octal = if digit { format!("\\{byte:03o}") } else { format!("\\{byte:o}") };
                text.push_str(&octal);
            }
        }
    }
    text + "\""
}

/// Returns the name of a file from the events that tell it; the last event of a socket completes
/// its name. `local` keeps the address that comes before.
pub fn file_name(event: &Event, bytes: Vec<u8>, local: &mut Vec<u8>) -> Option<String> {
    match event.step {
        Step::Address if event.req == LOCAL => {
            *local = bytes;
            None
        }
        Step::Address => address::socket(event.opcode, local, &bytes),
        _ => Some(printable(&bytes)).filter(|name| !name.is_empty()),
    }
}

/// Returns the name of a signal as kill(1) knows it, with the prefix.
pub fn signal_name(signal: i32) -> String {
    const NAMES: &str = "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM \
                         STKFLT CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO \
                         PWR SYS";
    let name = usize::try_from(signal - 1).ok().and_then(|at| NAMES.split(' ').nth(at));
    name.map_or_else(|| format!("signal {signal}"), |name| format!("SIG{name}"))
}

/// Sink that makes lines of the events.
struct Strace {
    lines: Lines,
    /// Events that have come, which earlier ones may follow.
    waiting: Vec<Waiting>,
    /// Source of the last event.
    source: Option<Arc<Source>>,
    /// Processes whose container has been named.
    containers_named: BTreeSet<u32>,
    out: Box<dyn Write>,
    /// Error if nobody reads any more, or there is no room. It is told at the end, as the program
    /// goes on.
    broken: Option<io::Error>,
    lost: u64,
    seen: bool,
}

impl Strace {
    fn new(args: &StraceArgs) -> anyhow::Result<Strace> {
        let select = Select { ops: Ops::of(&args.ops), failed: args.failed, slow: args.slow };
        let format = match (args.relative, args.time) {
            (true, _) => Format::Relative,
            (_, 1) => Format::Seconds,
            (_, 3..) => Format::Epoch,
            _ => Format::Micros,
        };
        let summary = (args.summary || args.summary_too).then(Summary::new);
        let how =
            How { verbose: args.verbose, digits: args.precision.digits(), lines: !args.summary };
        let out: Box<dyn Write> = match &args.output {
            Some(path) => Box::new(File::create(path).map_err(|e| {
                let hint = "name a file that you may write: softring strace -o FILE";
                fail::usage(format!("cannot write {}: {e}", path.display()), hint)
            })?),
            None => Box::new(io::stderr()),
        };
        let lines = Lines::new(how, select, Times::new(format), summary);
        Ok(Strace {
            lines,
            waiting: Vec::new(),
            source: None,
            containers_named: BTreeSet::new(),
            out,
            broken: None,
            lost: 0,
            seen: false,
        })
    }

    /// Takes the waiting events up to a moment in ticks.
    fn take_until(&mut self, end: u64, readers: &Readers) {
        self.waiting.sort_by_key(|w| w.event.time);
        let n = self.waiting.partition_point(|w| w.event.time <= end);
        let ns = |ticks| readers.ns(ticks);
        for waiting in self.waiting.drain(..n) {
            self.lines.take(waiting, &ns);
        }
        let lost = readers.dropped();
        if lost > self.lost {
            let n = lost - self.lost;
            self.lines.text.push_str(&format!("--- {n} events lost: they came too fast ---\n"));
            self.lost = lost;
        }
        self.flush();
    }

    /// Names the container of a process once, before its first line.
    fn name_container(&mut self, process: u32, source: &Source) {
        if !self.containers_named.insert(process) || source.pid == 0 || !self.lines.has_lines() {
            return;
        }
        let (pid, place) = (source.pid, container::words_of(source.pid.cast_signed()));
        if !place.is_empty() {
            self.lines.text.push_str(&format!("--- process {pid} ({}){place} ---\n", source.comm));
        }
    }

    fn flush(&mut self) {
        let text = std::mem::take(&mut self.lines.text);
        if self.broken.is_none()
            && let Err(e) = self.out.write_all(text.as_bytes())
        {
            self.broken = Some(e);
        }
    }

    /// Writes the last lines, when the trace is over.
    fn finish(&mut self, readers: &Readers, status: Option<ExitStatus>) {
        self.take_until(u64::MAX, readers);
        self.lines.unfinished(readers.ns(readers.polled_at()));
        if let Some(summary) = &self.lines.summary {
            self.lines.text.push_str(&summary.text());
        } else if let Some(status) = status {
            let how = match status.signal() {
                Some(signal) => format!("+++ killed by {} +++\n", signal_name(signal)),
                None => format!("+++ exited with {} +++\n", status.code().unwrap_or(0)),
            };
            self.lines.text.push_str(&how);
        }
        self.flush();
    }
}

impl Sink for Strace {
    fn event(&mut self, process: u32, source: &Source, event: Event, more: &[u64]) {
        self.seen = true;
        // Most events come in runs of one ring.
        let source = match &self.source {
            Some(known) if **known == *source => known.clone(),
            _ => {
                self.name_container(process, source);
                self.source.insert(Arc::new(source.clone())).clone()
            }
        };
        self.waiting.push(Waiting { process, source, event, more: more.to_vec() });
    }

    fn passed(&mut self, readers: &Readers) {
        self.take_until(readers.polled_at(), readers);
    }
}

/// Runs `softring strace`.
pub fn command(args: &StraceArgs) -> anyhow::Result<()> {
    refuse_kernel(args.under.engine)?;
    let found = args.pid.map(session::find).transpose()?;
    let mut strace = Strace::new(args)?;
    signals::ignore_sigpipe();
    let mut session = match found {
        Some(found) => Session::attach(found, args.names)?,
        None => Session::start(&args.under, &args.command, args.names)?,
    };
    let status = session.follow(args.seconds, &mut strace)?;
    if let Some(code) = session.never_ran(status) {
        std::process::exit(code);
    }
    let readers = &session.readers;
    strace.finish(readers, status);
    let missing = readers.missing();
    for who in &missing {
        out::note(&format!("not traced: {who}"));
    }
    if !strace.seen && missing.is_empty() {
        nothing_seen(args.pid.is_some());
    }
    if let Some(e) = strace.broken {
        let hint = "softring loses all later events: give the file room, or the pipe a reader";
        return Err(fail::work_hint(format!("cannot write the trace: {e}"), hint));
    }
    session::end_as(status)
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn text_is_quoted_as_strace_does() {
        assert_eq!(quoted(b"/a \"b\"\\\n\t\r"), r#""/a \"b\"\\\n\t\r""#);
        assert_eq!(quoted(b"\x1b1\x1bx\xff"), r#""\0331\33x\377""#);
    }
}
