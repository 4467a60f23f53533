//! A picture of a few requests of a trace, for users without a viewer at hand.

use super::json::phase;
use super::record::{Record, Recorded, began};
use crate::stats::pages::op_name;
use softring_engine::stats::trace::Step;
use std::collections::HashMap;
use std::fmt::Write;

/// Most requests, and most threads, that are shown.
const ROWS: usize = 24;
const THREADS: usize = 6;
/// Sizes in pixels: the picture, the names' column, a row.
const WIDTH: f64 = 960.0;
const NAMES: f64 = 170.0;
const ROW: f64 = 16.0;

/// Parts that are shown, with their colours, in the order of the key.
const COLOURS: [(&str, &str); 13] = [
    ("submit", "#9aa0a6"),
    ("issue", "#4285f4"),
    ("inline", "#4285f4"),
    ("armed", "#fdd9a0"),
    ("reissue", "#34a853"),
    ("punted", "#c58af9"),
    ("aio", "#4ecde6"),
    ("model", "#4ecde6"),
    ("queued", "#f6c343"),
    ("drained", "#f28b82"),
    ("enter", "#a8c7fa"),
    ("sleep", "#e3e6ea"),
    ("work", "#a142f4"),
];

/// A line of the picture: its name, and its parts with their times.
struct Row {
    name: String,
    parts: Vec<(&'static str, f64, f64)>,
    /// Part that has not ended.
    open: Option<(&'static str, f64)>,
}

impl Row {
    fn new(name: String) -> Row {
        Row { name, parts: Vec::new(), open: None }
    }

    fn close(&mut self, ts: f64) {
        if let Some((what, from)) = self.open.take() {
            self.parts.push((what, from, ts));
        }
    }

    fn end(&self) -> f64 {
        self.parts.last().map_or(0.0, |p| p.2)
    }
}

/// Draws the picture of `events`, which are in order; `at` converts their times to µs.
pub fn draw(events: &[Recorded], record: &Record, at: impl Fn(u64) -> f64) -> String {
    let requests = requests(events, record, &at);
    let start = requests.iter().filter_map(|r| Some(r.parts.first()?.1)).fold(f64::MAX, f64::min);
    let end = requests.iter().map(Row::end).fold(0.0, f64::max);
    let threads = threads(events, record, &at, start.min(end), end);
    let rows: Vec<Row> = requests.into_iter().chain(threads).collect();
    paint(&rows, start.min(end), end)
}

/// Returns the index of the event at which the picture begins: with the first request that had to
/// wait, if one had.
fn first(events: &[Recorded]) -> usize {
    use Step::{Aio, Armed, Drained, Model, Punt, Queued, Submit};
    let waits = |k: &&Recorded| {
        matches!(k.event.step, Armed | Punt | Aio | Model | Queued | Drained) && k.event.req != 0
    };
    let Some(first) = events.iter().find(waits) else { return 0 };
    let taken = |k: &Recorded| {
        let own = (k.source, k.event.req) == (first.source, first.event.req);
        own && k.event.step == Submit
    };
    events.iter().position(taken).unwrap_or(0)
}

fn requests(events: &[Recorded], record: &Record, at: &impl Fn(u64) -> f64) -> Vec<Row> {
    let (mut rows, mut known) = (Vec::<Row>::new(), HashMap::new());
    let last = events.last().map_or(0.0, |k| at(k.event.time));
    for Recorded { source, event: e, .. } in &events[first(events)..] {
        let ring = record.sources[*source as usize].ring;
        let (name, ts) = (format!("ring {ring} {}", op_name(e.opcode.into())), at(e.time));
        match e.step {
            Step::Inline if rows.len() < ROWS => {
                let parts = vec![("inline", at(began(e)), ts)];
                rows.push(Row { parts, ..Row::new(name) });
            }
            Step::Submit if rows.len() < ROWS => {
                known.insert((*source, e.req), rows.len());
                rows.push(Row { open: Some(("submit", ts)), ..Row::new(name) });
            }
            _ if e.step.is_span() => {}
            Step::More | Step::Text | Step::Name | Step::Address | Step::Fault => {}
            _ => {
                let Some(&row) = known.get(&(*source, e.req)) else { continue };
                rows[row].close(ts);
                rows[row].open = phase(e.step).map(|what| (what, ts));
                if e.step == Step::Done {
                    known.remove(&(*source, e.req));
                }
            }
        }
    }
    rows.iter_mut().for_each(|row| row.close(last));
    rows
}

fn threads(
    events: &[Recorded],
    record: &Record,
    at: &impl Fn(u64) -> f64,
    start: f64,
    end: f64,
) -> Vec<Row> {
    let (mut rows, mut known) = (Vec::<Row>::new(), HashMap::new());
    for Recorded { source, event: e, .. } in events.iter().filter(|k| k.event.step.is_span()) {
        let (from, to) = (at(began(e)), at(e.time));
        let what = match e.step {
            Step::Enter | Step::Pass => "enter",
            Step::Work => "work",
            _ => "sleep",
        };
        if to < start || from > end || (e.step == Step::Drive) {
            continue;
        }
        let thread = (record.sources[*source as usize].pid, e.tid);
        let row = *known.entry(thread).or_insert_with(|| {
            let name = record.threads.get(&thread).map_or("", |name| name);
            rows.push(Row::new(format!("{name} {}", e.tid)));
            rows.len() - 1
        });
        rows[row].parts.push((what, from.max(start), to.min(end)));
    }
    rows.truncate(THREADS);
    for row in &mut rows {
        // A part that lies within another comes behind it.
        row.parts.sort_by(|a, b| a.1.total_cmp(&b.1).then(b.2.total_cmp(&a.2)));
    }
    rows
}

fn paint(rows: &[Row], start: f64, end: f64) -> String {
    let scale = (WIDTH - NAMES - 10.0) / (end - start).max(0.001);
    let height = ROW * rows.len() as f64 + 60.0;
    let x = |ts: f64| NAMES + (ts - start) * scale;
    // Writing to a string does not fail.
    let mut s = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for i in 0..=8 {
        let ts = start + (end - start) * f64::from(i) / 8.0;
        let (x, y) = (x(ts), height - 34.0);
        let _ = writeln!(
            s,
            "<path d=\"M{x:.1} 4V{y:.1}\" stroke=\"#e8eaed\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" \
             fill=\"#5f6368\">{:.0} µs</text>",
            y + 13.0,
            ts - start
        );
    }
    for (i, row) in rows.iter().enumerate() {
        let y = 6.0 + ROW * i as f64;
        let name = crate::xml::escaped(&row.name);
        let _ = writeln!(s, "<text x=\"6\" y=\"{:.1}\" fill=\"#202124\">{name}</text>", y + 11.0);
        for (what, from, to) in &row.parts {
            let colour = COLOURS.iter().find(|(name, _)| name == what).map_or("#000", |c| c.1);
            let (x, w) = (x(*from), ((to - from) * scale).max(0.6));
            let _ = writeln!(
                s,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{:.1}\" \
                 fill=\"{colour}\"><title>{what} {:.1} µs</title></rect>",
                ROW - 3.0,
                to - from
            );
        }
    }
    let used = |what: &str| rows.iter().flat_map(|r| &r.parts).any(|p| p.0 == what);
    for (i, (what, colour)) in COLOURS.iter().filter(|c| used(c.0)).enumerate() {
        let (x, y) = (NAMES + 80.0 * i as f64, height - 14.0);
        let _ = writeln!(
            s,
            "<rect x=\"{x}\" y=\"{y}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{}\" fill=\"#202124\">{what}</text>",
            x + 14.0,
            y + 9.0
        );
    }
    s.push_str("</svg>\n");
    s
}
