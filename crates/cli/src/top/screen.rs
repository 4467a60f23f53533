//! `top` on a terminal.

use super::sample::{ProcessRow, Tick, between};
use super::table::{self, Kind, Line, Sort};
use crate::cli::TopArgs;
use crate::signals;
use crate::stats::nothing_there;
use anyhow::Context;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::Paragraph;
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Longest time until a signal is acted on.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);
/// Delays that keys choose between, in seconds.
const DELAYS: [f64; 6] = [0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

struct Screen {
    only: Option<i32>,
    every: Duration,
    sort: Sort,
    reverse: bool,
    /// Processes whose rings are not shown.
    folded: HashSet<i32>,
    /// Line that the cursor is on, and the first that is shown.
    cursor: usize,
    first: usize,
    help: bool,
    before: Tick,
    rows: Vec<ProcessRow>,
}

/// Action that follows a key.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    Quit,
    Stop,
}

/// Shows the table until a key or a signal ends it; the terminal is as before then, also after a
/// panic.
pub fn run(args: &TopArgs, every: Duration) -> anyhow::Result<()> {
    let mut screen = Screen::new(args.pid, every, args.sort)?;
    signals::catch_all_ends();
    signals::catch_stop();
    // `try_init` has a panic put the terminal back before it is reported.
    let terminal = ratatui::try_init().context("cannot set up the terminal")?;
    let done = screen.live(terminal);
    ratatui::try_restore().context("cannot restore the terminal")?;
    if let Some(signal) = signals::any_end() {
        signals::die_of(signal);
    }
    done
}

/// Waits `most` at most for something to read on the terminal. Returns false if the terminal is
/// gone: crossterm would read its end again and again, and never return.
fn wait_for_keys(most: Duration) -> bool {
    let most = Timespec { tv_sec: 0, tv_nsec: most.as_nanos() as i64 };
    let terminal = std::io::stdout();
    let mut fds = [PollFd::new(&terminal, PollFlags::IN)];
    // A signal ends the wait early, also the signal of a new size.
    let _ = rustix::event::poll(&mut fds, Some(&most));
    !fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

/// Gives the terminal back, with its cursor shown; stops until the shell continues us; takes the
/// terminal again. Drawing hides the cursor.
fn stop(mut terminal: DefaultTerminal) -> anyhow::Result<DefaultTerminal> {
    terminal.show_cursor().context("cannot restore the terminal")?;
    ratatui::try_restore().context("cannot restore the terminal")?;
    signals::stop();
    ratatui::try_init().context("cannot set up the terminal")
}

impl Screen {
    fn new(only: Option<i32>, every: Duration, sort: Sort) -> anyhow::Result<Screen> {
        let before = Tick::take(only)?;
        Ok(Screen {
            only,
            every,
            sort,
            reverse: false,
            folded: HashSet::new(),
            cursor: 0,
            first: 0,
            help: false,
            before,
            rows: Vec::new(),
        })
    }

    fn live(&mut self, mut terminal: DefaultTerminal) -> anyhow::Result<()> {
        // A first sample comes soon: rates need two.
        let mut due = Instant::now() + self.every.min(Duration::from_millis(300));
        loop {
            terminal.draw(|frame| self.draw(frame)).context("cannot draw")?;
            while Instant::now() < due {
                if signals::any_end().is_some() {
                    return Ok(());
                }
                if signals::stop_asked() {
                    terminal = stop(terminal)?;
                    terminal.draw(|frame| self.draw(frame)).context("cannot draw")?;
                }
                let left = due.saturating_duration_since(Instant::now());
                if !wait_for_keys(left.min(SIGNAL_CHECK)) {
                    signals::die_of(libc::SIGHUP);
                }
                if !event::poll(Duration::ZERO).context("cannot read keys")? {
                    continue;
                }
                match event::read().context("cannot read keys")? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => match self.key(key) {
                        Next::Go => {}
                        Next::Quit => return Ok(()),
                        Next::Stop => terminal = stop(terminal)?,
                    },
                    _ => {}
                }
                terminal.draw(|frame| self.draw(frame)).context("cannot draw")?;
            }
            due = Instant::now() + self.every;
            self.refresh()?;
        }
    }

    fn refresh(&mut self) -> anyhow::Result<()> {
        let now = Tick::take(self.only)?;
        self.rows = between(&self.before, &now);
        table::sort(&mut self.rows, self.sort, self.reverse);
        self.before = now;
        Ok(())
    }

    fn lines(&self) -> Vec<Line> {
        table::lines(&self.rows, |pid| self.folded.contains(&pid))
    }

    fn key(&mut self, key: KeyEvent) -> Next {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let last = self.lines().len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if control => return Next::Quit,
            KeyCode::Char('z') if control => return Next::Stop,
            KeyCode::Char('q') | KeyCode::Esc if !self.help => return Next::Quit,
            KeyCode::Char('h' | '?') => self.help = !self.help,
            _ if self.help => self.help = false,
            KeyCode::Char('i') => self.sort_by(Sort::Iops),
            KeyCode::Char('b') => self.sort_by(Sort::Bytes),
            KeyCode::Char('c') => self.sort_by(Sort::Cpu),
            KeyCode::Char('l') => self.sort_by(Sort::P99),
            KeyCode::Char('f') => self.sort_by(Sort::Inflight),
            KeyCode::Char('p') => self.sort_by(Sort::Pid),
            KeyCode::Char('r') => {
                self.reverse = !self.reverse;
                table::sort(&mut self.rows, self.sort, self.reverse);
            }
            KeyCode::Char('+') => self.slower(true),
            KeyCode::Char('-') => self.slower(false),
            KeyCode::Char(' ') | KeyCode::Enter => self.fold(),
            KeyCode::Char('a') => self.fold_all(),
            KeyCode::Down | KeyCode::Char('j') => self.cursor = (self.cursor + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::PageDown => self.cursor = (self.cursor + 10).min(last),
            KeyCode::PageUp => self.cursor = self.cursor.saturating_sub(10),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = last,
            _ => {}
        }
        Next::Go
    }

    fn sort_by(&mut self, by: Sort) {
        (self.sort, self.reverse) = (by, false);
        table::sort(&mut self.rows, by, false);
    }

    fn slower(&mut self, slower: bool) {
        let now = self.every.as_secs_f64();
        let next = match slower {
            true => DELAYS.iter().find(|d| **d > now),
            false => DELAYS.iter().rev().find(|d| **d < now),
        };
        self.every = Duration::from_secs_f64(*next.unwrap_or(&now));
    }

    /// Shows or hides the rings of the process that the cursor is on.
    fn fold(&mut self) {
        let Some(pid) = self.lines().get(self.cursor).map(|line| line.pid) else { return };
        if !self.folded.remove(&pid) {
            self.folded.insert(pid);
            let head = self.lines().iter().position(|line| line.pid == pid);
            self.cursor = head.unwrap_or(0);
        }
    }

    fn fold_all(&mut self) {
        self.cursor = 0;
        if self.folded.is_empty() {
            self.folded = self.rows.iter().map(|row| row.pid).collect();
        } else {
            self.folded.clear();
        }
    }

    fn draw(&mut self, frame: &mut Frame) {
        let area = frame.area();
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let widths = table::widths(width, &self.rows);
        let lines = self.lines();
        let room = height.saturating_sub(3);
        self.cursor = self.cursor.min(lines.len().saturating_sub(1));
        // The terminal may have no room for the cursor's line, or no size at all.
        self.first = self.first.max((self.cursor + 1).saturating_sub(room)).min(self.cursor);
        let bar = Style::new().add_modifier(Modifier::REVERSED);
        let fill = |text: String| format!("{text:<width$}");
        let mut text = vec![
            Text::from(Span::styled(self.summary(), Style::new().add_modifier(Modifier::BOLD))),
            Text::from(Span::styled(fill(table::text(&table::header(), &widths)), bar)),
        ];
        if self.help {
            text.extend(HELP.lines().take(room).map(Text::from));
        } else if lines.is_empty() {
            text.push(Text::from(nothing_there()));
        }
        let shown = lines.iter().enumerate().skip(self.first).take(room);
        for (at, line) in shown.filter(|_| !self.help) {
            let style = match line.kind {
                Kind::Process => Style::new().add_modifier(Modifier::BOLD),
                Kind::Ring => Style::new(),
                Kind::Thread => Style::new().add_modifier(Modifier::DIM),
            };
            let here = if at == self.cursor { Modifier::UNDERLINED } else { Modifier::empty() };
            let row = table::text(&line.cells, &widths);
            text.push(Text::from(Span::styled(row, style.add_modifier(here))));
        }
        text.resize(height.saturating_sub(1), Text::from(""));
        text.push(Text::from(Span::styled(fill(KEYS.chars().take(width).collect()), bar)));
        frame.render_widget(Paragraph::new(text), area);
    }

    fn summary(&self) -> String {
        let rings: usize = self.rows.iter().map(|row| row.rings.len()).sum();
        let sum = |f: fn(&ProcessRow) -> f64| self.rows.iter().map(f).sum::<f64>();
        let iops = crate::out::count_short(sum(|row| row.rates.iops));
        let bytes = sum(|row| row.rates.read_bytes + row.rates.written_bytes);
        let (n, by) = (self.rows.len(), crate::cli::name_of(self.sort));
        let reversed = if self.reverse { " reversed" } else { "" };
        let (every, bytes) = (self.every.as_secs_f64(), crate::out::bytes_short(bytes));
        let foreign = match self.before.foreign.len() {
            0 => String::new(),
            n => format!(", {n} invalid page(s) not read"),
        };
        format!(
            "softring  by {by}{reversed}, every {every} s  {n} process(es), {rings} ring(s), \
             {iops} IOPS, {bytes}B/s{foreign}"
        )
    }
}

const KEYS: &str = "q quit h help  sort: i iops b bytes c cpu l p99 f in flight p pid r reverse";

const HELP: &str = "\
PROCESS   a process, then its rings, then its threads that poll
IOPS      completions per second       READ/s WRIT/s  bytes per second
P50 P99   latency of the requests that completed since the last refresh
INFL      requests in flight now
CPU%      processor time; of a thread that polls, its share of a processor
WORK%     of such a thread: the share of a processor in which it had work
ROUTES    routes of requests: inline, poll, aio, worker, model, queued
WORKERS   workers running/all, and OPERATIONS per second (on wide terminals)

i b c l f p   sort by IOPS, bytes, CPU, P99, in flight, PID; r reverses
up down j k   move       space, enter  show or hide the rings of a process
a             all rings  + -           refresh less or more often
h             this help  q             quit";

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn any_terminal_size_can_be_drawn() {
        let mut screen = Screen::new(None, Duration::from_secs(1), Sort::Iops).unwrap();
        for (width, height) in [(0, 0), (1, 1), (80, 2), (80, 3), (3, 24), (80, 24)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            for help in [false, true] {
                screen.help = help;
                terminal.draw(|frame| screen.draw(frame)).unwrap();
            }
        }
    }
}
