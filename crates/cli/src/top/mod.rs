//! `softring top`: shows what the rings of all programs do now.

mod sample;
mod screen;
mod table;

pub use sample::total;
pub use table::Sort;

use crate::cli::TopArgs;
use crate::out;
use crate::stats::{nothing_there, pages};
use sample::{ProcessRow, Tick, between};
use serde::Serialize;
use std::io::IsTerminal;
use std::thread::sleep;
use std::time::Duration;

/// Width of lines in a pipe, which has none itself: all columns fit.
const PIPE_WIDTH: usize = 160;

/// One refresh, as JSON.
#[derive(Serialize)]
struct Refresh<'a> {
    /// Seconds that rates are averages over.
    seconds: f64,
    processes: &'a [ProcessRow],
}

/// Runs `softring top`.
pub fn command(args: &TopArgs) -> anyhow::Result<()> {
    if let Some(pid) = args.pid {
        // An error says why, if there is nothing to see.
        pages::one(pid)?;
    }
    let every = Duration::from_secs_f64(args.delay);
    let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    let plain = args.once || args.json || dumb || !std::io::stdout().is_terminal();
    if !plain {
        return screen::run(args, every);
    }
    let mut before = Tick::take(args.pid)?;
    pages::note_foreign(&before.foreign);
    loop {
        sleep(every);
        let now = Tick::take(args.pid)?;
        let mut rows = between(&before, &now);
        table::sort(&mut rows, args.sort, false);
        show(args, &rows)?;
        if args.once || args.pid.is_some() && now.is_empty() {
            return Ok(());
        }
        before = now;
    }
}

fn show(args: &TopArgs, rows: &[ProcessRow]) -> anyhow::Result<()> {
    if args.json {
        let refresh = Refresh { seconds: args.delay, processes: rows };
        // Many refreshes take one line each.
        return match args.once {
            true => out::json(&refresh),
            false => out::line(&serde_json::to_string(&refresh)?),
        };
    }
    let widths = table::widths(PIPE_WIDTH, rows);
    let mut text = vec![table::text(&table::header(), &widths)];
    text.extend(table::lines(rows, |_| false).iter().map(|l| table::text(&l.cells, &widths)));
    if rows.is_empty() {
        text.push(nothing_there().to_owned());
    }
    if !args.once {
        text.push(String::new());
    }
    out::line(&text.join("\n"))
}
