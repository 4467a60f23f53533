//! Comparison of two transcripts of one program.
//!
//! Return values, memory, files and the places where completions are waited for must be equal.
//! Completions are compared as a multiset over each span between two reaps that empty the ring,
//! because io_uring promises no order among independent requests. Where an order is promised
//! (links, drains), the second transcript must keep the order that the program asks for, if the
//! first does.

use super::program::{Host, Program, Slot, Step};
use super::transcript::{Cqe, End, Transcript};
use softring_uapi::*;
use std::collections::HashMap;

/// The first difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    pub step: usize,
    /// Subject of the difference: an opcode's name, or a step's.
    pub about: String,
    pub text: String,
    /// The request of the difference, with the completions that only one side has.
    pub ud: Option<u64>,
    pub kernel: Vec<Cqe>,
    pub softring: Vec<Cqe>,
}

/// Returns the first difference between `a` and `b`.
pub fn compare(program: &Program, a: &Transcript, b: &Transcript) -> Option<Difference> {
    records(program, a, b).or_else(|| ended(program, a, b)).or_else(|| order(program, a, b))
}

fn ended(program: &Program, a: &Transcript, b: &Transcript) -> Option<Difference> {
    if a.end == b.end && a.recs.len() == b.recs.len() {
        return None;
    }
    let step = a.recs.len().min(b.recs.len());
    let text = format!("ended {:?} / {:?} in step {step}", a.end, b.end);
    let about = match b.end {
        End::Exit => format!("end in {}", about_step(program, step)),
        _ => format!("{:?} in {}", b.end, about_step(program, step)),
    };
    Some(Difference { step, about, text, ..Difference::default() })
}

/// Returns a name for a step.
pub fn about_step(program: &Program, step: usize) -> String {
    match program.steps.get(step) {
        Some(Step::Setup(_)) => "setup".to_owned(),
        Some(Step::Sqe { .. }) => "queue".to_owned(),
        Some(Step::Enter(_) | Step::Flush(_)) => "enter".to_owned(),
        Some(Step::AwaitIdle) => "await idle".to_owned(),
        Some(Step::Reap { .. }) => "reap".to_owned(),
        Some(Step::Register { op, .. }) => {
            REGISTER_NAMES.get(*op as usize).map_or("register", |n| &n[7..]).to_owned()
        }
        Some(Step::Resize { .. }) => "REGISTER_RESIZE_RINGS".to_owned(),
        Some(Step::Host(h)) => {
            let name = format!("{h:?}");
            format!("host {}", name.split('(').next().unwrap_or_default())
        }
        None => match step - program.steps.len() {
            0 => "await idle".to_owned(),
            1 | 2 => "reap".to_owned(),
            _ => "files and memory".to_owned(),
        },
    }
}

/// Returns the name of the opcode whose completions carry `ud`.
pub fn op_of(program: &Program, ud: u64) -> String {
    for step in &program.steps {
        let Step::Sqe { sqe, .. } = step else { continue };
        if sqe.ud == ud {
            return op_name(sqe.op);
        }
    }
    match ud {
        500..1000 => "POLL_REMOVE".to_owned(),
        7000..9000 => "resource tag".to_owned(),
        9000.. => "MSG_RING".to_owned(),
        _ => "unknown user_data".to_owned(),
    }
}

/// Returns an opcode's name without its prefix.
pub fn op_name(op: u8) -> String {
    OP_NAMES.get(usize::from(op)).map_or_else(|| format!("op {op}"), |n| n[10..].to_owned())
}

fn ring_of(program: &Program, step: usize) -> usize {
    match program.steps.get(step) {
        Some(Step::Reap { ring, .. }) => usize::from(ring & 1),
        _ => usize::from(step == program.steps.len() + 2),
    }
}

/// Returns the ring that a step closes, or replaces by another.
fn ended_ring(program: &Program, step: usize) -> Option<usize> {
    match program.steps.get(step)? {
        Step::Setup(s) => Some(usize::from(s.ring & 1)),
        Step::Host(Host::CloseRing(ring)) => Some(usize::from(ring & 1)),
        _ => None,
    }
}

fn records(program: &Program, a: &Transcript, b: &Transcript) -> Option<Difference> {
    // Completions of each ring since it was last emptied.
    let mut span: [(Vec<Cqe>, Vec<Cqe>); 2] = Default::default();
    let mut moved = None;
    // With DEFER_TASKRUN the kernel posts the CQE of a retried request at the next enter; softring
    // may be earlier.
    let mut defers = [false; 2];
    for step in &program.steps {
        if let Step::Setup(s) = step {
            defers[usize::from(s.ring & 1)] |= s.flags & IORING_SETUP_DEFER_TASKRUN != 0;
        }
    }
    for (x, y) in a.recs.iter().zip(&b.recs) {
        let step = x.step;
        let reap = about_step(program, step) == "reap";
        if let Some(ring) = ended_ring(program, step) {
            // The CQEs left in its queue are never seen.
            span[ring] = Default::default();
        }
        let differ = |text: String| Difference {
            step,
            about: about_step(program, step),
            text,
            ..Difference::default()
        };
        if reap {
            let (left, right) = &mut span[ring_of(program, step)];
            left.extend(x.cqes.iter().cloned());
            right.extend(y.cqes.iter().cloned());
            let partial = matches!(program.steps.get(step), Some(Step::Reap { max: Some(_), .. }));
            if !partial || x.ret != y.ret {
                let found = multiset(program, step, left, right);
                if found.is_some() {
                    return found;
                }
                (*left, *right) = (Vec::new(), Vec::new());
            }
        }
        if x.ret != y.ret {
            let text = format!("{} / {}", super::report::ret(x.ret), super::report::ret(y.ret));
            return Some(differ(text));
        }
        if let Some(text) = notes(&x.notes, &y.notes)
            && !(defers != [false; 2] && counts_signals(program, step))
        {
            return Some(noted(program, step, text));
        }
        // The CQ tails differ: the next reap shows which completion.
        let early = |i: usize| defers[i] && x.tails.get(i) < y.tails.get(i);
        let same = (0..2).all(|i| early(i) || x.tails.get(i) == y.tails.get(i));
        if !same && moved.is_none() {
            moved = Some(differ(format!("CQ tails {:?} / {:?}", x.tails, y.tails)));
        }
    }
    moved
}

/// Returns whether a step reads the ring's eventfd counter. A DEFER_TASKRUN ring signals each time
/// its task-work list becomes non-empty, and how often varies; but there must be one signal.
fn counts_signals(program: &Program, step: usize) -> bool {
    matches!(program.steps.get(step), Some(Step::Host(Host::Read(Slot::RingEvent, _))))
}

/// Returns the first line that only one side has.
fn notes(a: &[String], b: &[String]) -> Option<String> {
    if a == b {
        return None;
    }
    let only_a = a.iter().find(|n| !b.contains(n)).map_or("-", |s| s);
    let only_b = b.iter().find(|n| !a.contains(n)).map_or("-", |s| s);
    Some(format!("{only_a} / {only_b}"))
}

/// Returns a difference in the memory that a request wrote, with that request as its subject.
fn noted(program: &Program, step: usize, text: String) -> Difference {
    let ud = text.split("ud").nth(1).and_then(|t| t.split(' ').next()?.parse().ok());
    let about = match ud {
        Some(ud) => op_of(program, ud),
        None => about_step(program, step),
    };
    Difference { step, about, text, ud, ..Difference::default() }
}

fn multiset(program: &Program, step: usize, a: &[Cqe], b: &[Cqe]) -> Option<Difference> {
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    a.sort();
    b.sort();
    let mut only_b = b.clone();
    let mut only_a = Vec::new();
    for cqe in a {
        match only_b.iter().position(|c| *c == cqe) {
            Some(i) => drop(only_b.remove(i)),
            None => only_a.push(cqe),
        }
    }
    let first = only_a.iter().chain(&only_b).map(|c| c.ud).min()?;
    let list = |v: &[Cqe]| {
        let of: Vec<String> = v.iter().filter(|c| c.ud == first).map(Cqe::to_string).collect();
        match of.len() {
            0 => "no completion".to_owned(),
            1..4 => of.join(" "),
            n => format!("{} … {n} completions", of[0]),
        }
    };
    let text = format!("{} / {}", list(&only_a), list(&only_b));
    let of = |v: &[Cqe]| v.iter().filter(|c| c.ud == first).cloned().collect();
    let (kernel, softring) = (of(&only_a), of(&only_b));
    Some(Difference { step, about: op_of(program, first), text, ud: Some(first), kernel, softring })
}

/// Returns pairs of user_data of which the first must complete before the second: neighbours in a
/// chain, and requests on either side of a drain.
///
/// Nothing is promised of a program that submits its queue in parts: chains then end elsewhere than
/// here.
pub fn promised(program: &Program, ran: &Transcript, ring: u8) -> Vec<(u64, u64)> {
    let rec = |i: usize| ran.recs.iter().find(|r| r.step == i);
    let all_went = |i: usize| {
        rec(i).is_some_and(|r| r.notes.first().is_some_and(|n| n.starts_with("queued 0 dropped 0")))
    };
    let mut pairs = Vec::new();
    let mut seen: Vec<u64> = Vec::new();
    let mut linked: Option<u64> = None;
    let mut drained: Option<u64> = None;
    for (i, step) in program.steps.iter().enumerate() {
        match step {
            Step::Enter(e) if e.ring == ring && !all_went(i) => return Vec::new(),
            Step::Enter(e) if e.ring == ring => linked = None,
            Step::Sqe { ring: r, sqe, .. } if *r == ring => {
                if rec(i).is_none_or(|r| r.ret != 0) {
                    return Vec::new();
                }
                let links = sqe.flags & (IOSQE_IO_LINK | IOSQE_IO_HARDLINK) != 0;
                if sqe.op == IORING_OP_LINK_TIMEOUT {
                    linked = linked.filter(|_| links);
                    continue;
                }
                pairs.extend(linked.map(|before| (before, sqe.ud)));
                if sqe.flags & IOSQE_IO_DRAIN != 0 && !refused(ran, sqe.ud) {
                    pairs.extend(seen.iter().map(|before| (*before, sqe.ud)));
                    drained = Some(sqe.ud);
                } else if !refused(ran, sqe.ud) {
                    // A chain that fails as it is queued is not behind the barrier.
                    pairs.extend(drained.map(|before| (before, sqe.ud)));
                }
                seen.push(sqe.ud);
                linked = links.then_some(sqe.ud);
            }
            _ => {}
        }
    }
    pairs
}

/// Returns whether a request may have been refused when it was queued. Such a request is no
/// barrier, nor behind one.
fn refused(ran: &Transcript, ud: u64) -> bool {
    ran.results_of(ud).any(|answer| answer < 0 && answer != i64::from(-libc::ETIME))
}

fn order(program: &Program, a: &Transcript, b: &Transcript) -> Option<Difference> {
    for ring in 0..2u8 {
        let (pa, pb) = (places(program, a, ring), places(program, b, ring));
        let kept = |p: &HashMap<u64, (usize, usize)>, x: u64, y: u64| match (p.get(&x), p.get(&y)) {
            (Some(x), Some(y)) => x.1 < y.0,
            _ => true,
        };
        for (x, y) in promised(program, a, ring) {
            if kept(&pa, x, y) && !kept(&pb, x, y) {
                let about = format!("order of {} and {}", op_of(program, x), op_of(program, y));
                let text = format!("ud{x} before ud{y} / ud{y} before ud{x}");
                let step = program.steps.len();
                return Some(Difference { step, about, text, ..Difference::default() });
            }
        }
    }
    None
}

/// Returns the first and last place of each user_data among a ring's completions.
fn places(program: &Program, t: &Transcript, ring: u8) -> HashMap<u64, (usize, usize)> {
    let of_ring = |step: usize| {
        about_step(program, step) == "reap" && ring_of(program, step) == usize::from(ring)
    };
    let cqes = t.recs.iter().filter(|r| of_ring(r.step)).flat_map(|r| &r.cqes);
    let mut out = HashMap::new();
    for (i, cqe) in cqes.enumerate() {
        out.entry(cqe.ud).or_insert((i, i)).1 = i;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::program::Sqe;
    use super::super::transcript::Rec;
    use super::*;

    fn sqe(ud: u64, flags: u8) -> Step {
        Step::Sqe { ring: 0, sqe: Sqe { ud, flags, ..Sqe::default() }, bad_index: false }
    }

    fn reaped(program: &Program, cqes: &[(u64, i64)]) -> Transcript {
        let n = program.steps.len();
        let cqes: Vec<Cqe> =
            cqes.iter().map(|&(ud, res)| Cqe { ud, res, flags: 0, big: None }).collect();
        let ret = cqes.len() as i64;
        let rec = Rec { step: n + 1, ret, cqes, ..Rec::default() };
        let queued = (0..n).map(|step| Rec { step, ..Rec::default() });
        Transcript { recs: queued.chain([rec]).collect(), end: End::Exit }
    }

    fn two(flags: u8) -> Program {
        Program { steps: vec![sqe(1, flags), sqe(2, 0)], ..Program::default() }
    }

    #[test]
    fn independent_requests_may_complete_in_any_order() {
        let p = two(0);
        let (a, b) = (reaped(&p, &[(1, 5), (2, 6)]), reaped(&p, &[(2, 6), (1, 5)]));
        assert_eq!(compare(&p, &a, &b), None);
    }

    #[test]
    fn linked_requests_complete_in_order() {
        for flags in [IOSQE_IO_LINK, IOSQE_IO_HARDLINK] {
            let p = two(flags);
            let (a, b) = (reaped(&p, &[(1, 5), (2, 6)]), reaped(&p, &[(2, 6), (1, 5)]));
            assert!(compare(&p, &a, &b).is_some_and(|d| d.about.starts_with("order")));
            assert_eq!(compare(&p, &b, &b), None);
        }
    }

    #[test]
    fn no_request_passes_a_drain() {
        let steps = vec![sqe(1, 0), sqe(2, IOSQE_IO_DRAIN), sqe(3, 0)];
        let p = Program { steps, ..Program::default() };
        assert_eq!(promised(&p, &reaped(&p, &[]), 0), [(1, 2), (2, 3)]);
    }

    #[test]
    fn results_flags_and_counts_must_agree() {
        let p = two(0);
        let a = reaped(&p, &[(1, 5), (2, 6)]);
        let wrong = compare(&p, &a, &reaped(&p, &[(1, 5), (2, 7)]));
        assert_eq!(wrong.map(|d| d.text), Some("ud2:6 / ud2:7".to_owned()));
        assert!(compare(&p, &a, &reaped(&p, &[(1, 5)])).is_some());
        let twice = reaped(&p, &[(1, 5), (2, 6), (2, 6)]);
        assert!(compare(&p, &a, &twice).is_some());
        let mut dead = a.clone();
        dead.end = End::Signal(11);
        assert!(compare(&p, &a, &dead).is_some_and(|d| d.about.starts_with("Signal(11)")));
    }
}
