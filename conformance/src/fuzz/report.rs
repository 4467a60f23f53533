//! Programs and divergences for people.

use super::check::Divergence;
use super::compare::{about_step, op_name};
use super::program::{Cell, Enter, Fd, Program, Setup, Sqe, Step, Val};
use super::transcript::{NO_RING, QUEUE_FULL, Rec, SOME_FD, Transcript};
use softring_uapi::errno::Errno;
use softring_uapi::*;

/// Describes a return value, with an errno's name.
pub fn ret(v: i64) -> String {
    let name = |e: Errno| std::io::Error::from_raw_os_error(e.0).to_string();
    match v {
        SOME_FD => "fd".to_owned(),
        NO_RING => "no ring".to_owned(),
        QUEUE_FULL => "queue full".to_owned(),
        -4095..=-1 => {
            let text = name(Errno(-v as i32));
            format!("{v} ({})", text.split(" (os").next().unwrap_or_default())
        }
        _ => v.to_string(),
    }
}

fn bits(v: u32, names: &[&'static str]) -> String {
    let mut out: Vec<String> = names_of(v, names).map(str::to_owned).collect();
    let rest = if names.len() < 32 { v >> names.len() << names.len() } else { 0 };
    if rest != 0 {
        out.push(format!("{rest:#x}"));
    }
    out.join("|")
}

fn fd(v: &Fd) -> String {
    match v {
        Fd::Num(n) => n.to_string(),
        Fd::Slot(s) => format!("{s:?}"),
        Fd::Ring(r) => format!("ring{r}"),
        Fd::Of(ud) => format!("fd of ud{ud}"),
        Fd::Child(i) => format!("child{i}"),
    }
}

fn val(v: &Val) -> String {
    match v {
        Val::Num(n) if *n > 1 << 48 => format!("{n:#x}"),
        Val::Num(n) => n.to_string(),
        Val::Buf(i, 0) => format!("buf{i}"),
        Val::Buf(i, off) => format!("buf{i}+{off}"),
        Val::Bad(b) => format!("<{b:?}>"),
        Val::Str(s) => format!("{s:?}"),
        Val::Out(o) => format!("&{o:?}"),
        Val::Fd(f) => fd(f),
        Val::Addr(slot) => format!("&name of {slot:?}"),
        Val::Ring(i) => format!("bufring{i}"),
        Val::Mem(cells) => {
            let cell = |c: &Cell| match c {
                Cell::U8(n) => n.to_string(),
                Cell::U16(n) => n.to_string(),
                Cell::U32(n) => n.to_string(),
                Cell::U64(v) => val(v),
                Cell::Fd(v) => fd(v),
            };
            format!("&{{{}}}", cells.iter().map(cell).collect::<Vec<_>>().join(", "))
        }
    }
}

fn sqe(s: &Sqe) -> String {
    let mut out = format!("ud{} {} fd={}", s.ud, op_name(s.op), fd(&s.fd));
    let zero = Val::Num(0);
    for (name, v) in [("off", &s.off), ("addr", &s.addr), ("addr3", &s.addr3)] {
        if *v != zero {
            out += &format!(" {name}={}", val(v));
        }
    }
    let numbers = [
        ("len", u64::from(s.len)),
        ("ioprio", u64::from(s.ioprio)),
        ("buf_index", u64::from(s.buf_index)),
        ("personality", u64::from(s.personality)),
        ("pad2", s.pad2),
    ];
    for (name, v) in numbers.iter().filter(|(_, v)| *v != 0) {
        out += &format!(" {name}={v}");
    }
    if s.op_flags != 0 {
        out += &format!(" op_flags={:#x}", s.op_flags);
    }
    if s.file != Fd::Num(0) {
        out += &format!(" file_index={}", fd(&s.file));
    }
    if s.flags != 0 {
        out += &format!(" [{}]", bits(s.flags.into(), &SQE_NAMES));
    }
    out
}

fn setup(s: &Setup) -> String {
    let mut out = format!("ring{} = setup({}, {})", s.ring, s.entries, bits(s.flags, &SETUP_NAMES));
    if s.cq_entries != 0 {
        out += &format!(" cq_entries={}", s.cq_entries);
    }
    out + &s.wq_ring.map_or(String::new(), |r| format!(" wq_fd=ring{r}"))
}

fn enter(e: &Enter) -> String {
    let submit = e.submit.map_or("all".to_owned(), |n| n.to_string());
    let who = e.fd.as_ref().map_or_else(|| format!("ring{}", e.ring), fd);
    let mut out = format!("enter({who}, {submit}, {}, {})", e.min, bits(e.flags, &ENTER_NAMES));
    if e.size != 0 || e.arg != Val::Num(0) {
        out += &format!(" arg={} size={}", val(&e.arg), e.size);
    }
    out
}

/// Describes one step in one line.
pub fn step(s: &Step) -> String {
    match s {
        Step::Setup(s) => setup(s),
        Step::Sqe { ring, sqe: s, bad_index } => {
            format!(
                "  ring{ring} {}{}",
                sqe(s),
                if *bad_index { " (index out of range)" } else { "" }
            )
        }
        Step::Enter(e) => enter(e),
        Step::Flush(ring) => format!("enter(ring{ring}, the rest)"),
        Step::AwaitIdle => "await idle".to_owned(),
        Step::Reap { ring, max: None } => format!("reap ring{ring}"),
        Step::Reap { ring, max: Some(n) } => format!("reap ring{ring}, at most {n}"),
        Step::Register { ring, op, arg, nr } => {
            let name = REGISTER_NAMES
                .get(*op as usize)
                .map_or_else(|| op.to_string(), |n| n[7..].to_owned());
            format!("register(ring{ring}, {name}, {}, {nr})", val(arg))
        }
        Step::Resize { ring, sq, cq, flags } => {
            format!("resize(ring{ring}, sq {sq}, cq {cq}, flags {flags:#x})")
        }
        Step::Host(h) => format!("host {h:?}"),
    }
}

fn rec(r: Option<&Rec>) -> Vec<String> {
    let Some(r) = r else { return vec!["(not reached)".to_owned()] };
    let mut out = vec![ret(r.ret)];
    if !r.tails.is_empty() {
        out[0] = format!("tails {:?}", r.tails);
    }
    out.extend(r.cqes.iter().map(ToString::to_string));
    out.extend(r.notes.iter().cloned());
    out
}

/// Shows both transcripts beside each other; lines that differ are marked, long runs of equal lines
/// are left out.
fn side_by_side(p: &Program, a: &Transcript, b: &Transcript) -> String {
    let mut out = String::new();
    for i in 0..p.steps.len() + 4 {
        let find = |t: &Transcript| rec(t.recs.iter().find(|r| r.step == i));
        let (left, right) = (find(a), find(b));
        let what = p.steps.get(i).map_or_else(|| format!("at the end: {}", about_step(p, i)), step);
        let last = i == p.steps.len() + 3;
        out += &format!("{i:>3} {what}\n");
        for j in 0..left.len().max(right.len()) {
            let (l, r) = (left.get(j).map_or("", |s| s), right.get(j).map_or("", |s| s));
            if l != r {
                out += &format!("      | {l:<44} | {r:<44} <<<\n");
            } else if !last && !matches!(p.steps.get(i), Some(Step::Sqe { .. })) {
                out += &format!("      | {l:<44} | {r}\n");
            }
        }
    }
    out
}

/// Describes a divergence for people; `again` is the command that shows it again.
pub fn divergence(d: &Divergence, again: &str) -> String {
    let p = &d.program;
    let mut out = format!("{}: {}   (kernel / softring)\n", d.difference.about, d.difference.text);
    out += &format!("seed {}, on {}\n", p.seed, if p.tmpfs { "tmpfs" } else { "the disk" });
    out += &format!("again: {again}\n\n");
    out += &format!("    {:<46} | {:<44}\n", "kernel", "softring");
    out += &side_by_side(p, &d.kernel, &d.softring);
    out + &format!("ended: {:?} / {:?}\n", d.kernel.end, d.softring.end)
}

/// Returns `text` without user_data, so that the same difference in another program reads the same.
pub fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.split("ud").enumerate() {
        let part = if i > 0 { part.trim_start_matches(|c: char| c.is_ascii_digit()) } else { part };
        out += if i > 0 { "ud" } else { "" };
        out += part;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_grouped_without_user_data() {
        assert_eq!(without_numbers("ud12:-22 / ud7:5"), "ud:-22 / ud:5");
    }
}
