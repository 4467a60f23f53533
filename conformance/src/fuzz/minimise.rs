//! Minimising: makes a program smaller while it still shows the difference (delta debugging).

use super::program::{Cell, Fd, Program, Step, Val};

/// Drops steps, then simplifies fields, as long as `shows` holds; calls `shows` at most `budget`
/// times.
pub fn minimise(
    program: &Program,
    budget: usize,
    shows: &mut dyn FnMut(&Program) -> bool,
) -> Program {
    let mut m = Minimiser { best: program.clone(), left: budget, shows };
    loop {
        let before = m.best.clone();
        m.drop_steps();
        m.simplify();
        if m.best == before || m.left == 0 {
            return m.best;
        }
    }
}

struct Minimiser<'a> {
    best: Program,
    left: usize,
    shows: &'a mut dyn FnMut(&Program) -> bool,
}

impl Minimiser<'_> {
    /// Keeps `candidate` if it still shows the difference.
    fn try_it(&mut self, candidate: Program) -> bool {
        if self.left == 0 || candidate == self.best {
            return false;
        }
        self.left -= 1;
        let holds = (self.shows)(&candidate);
        if holds {
            self.best = candidate;
        }
        holds
    }

    fn drop_steps(&mut self) {
        let mut chunk = self.best.steps.len().div_ceil(2);
        while chunk > 0 {
            // Steps are removed from the end: those behind the difference matter least.
            let mut end = self.best.steps.len();
            while end > 0 {
                let start = end.saturating_sub(chunk);
                let mut candidate = self.best.clone();
                remove(&mut candidate.steps, start, end);
                self.try_it(candidate);
                end = start.min(self.best.steps.len());
            }
            chunk /= 2;
        }
    }

    fn simplify(&mut self) {
        for i in 0..self.best.steps.len() {
            for simpler in simpler(&self.best.steps[i]) {
                let mut candidate = self.best.clone();
                // Another change may have been kept meanwhile: this one is applied to the present
                // step.
                simpler.apply(&mut candidate.steps[i]);
                self.try_it(candidate);
            }
        }
        if self.best.tmpfs {
            return;
        }
        let candidate = Program { tmpfs: true, ..self.best.clone() };
        self.try_it(candidate);
    }
}

/// Removes steps, but not the waits for idle between the remaining steps: without them the program
/// would be another, racy one.
fn remove(steps: &mut Vec<Step>, start: usize, end: usize) {
    let mut at = 0;
    steps.retain(|s| {
        at += 1;
        !(start < at && at <= end) || matches!(s, Step::AwaitIdle)
    });
    steps.dedup_by(|a, b| *a == Step::AwaitIdle && *b == Step::AwaitIdle);
    if steps.last() == Some(&Step::AwaitIdle) {
        steps.pop();
    }
}

/// A change that makes a step simpler.
struct Change(Box<dyn Fn(&mut Step)>);

impl Change {
    fn new(f: impl Fn(&mut Step) + 'static) -> Self {
        Self(Box::new(f))
    }

    fn apply(&self, step: &mut Step) {
        (self.0)(step);
    }
}

fn sqe(f: impl Fn(&mut super::program::Sqe) + 'static) -> Change {
    Change::new(move |s| {
        if let Step::Sqe { sqe, .. } = s {
            f(sqe);
        }
    })
}

fn simpler(step: &Step) -> Vec<Change> {
    match step {
        Step::Sqe { .. } => simpler_sqe(),
        Step::Setup(_) => {
            let bit = |b: u32| {
                Change::new(move |s| {
                    if let Step::Setup(setup) = s {
                        setup.flags &= !(1 << b);
                    }
                })
            };
            let mut all: Vec<Change> = (0..32).map(bit).collect();
            all.push(Change::new(|s| {
                if let Step::Setup(setup) = s {
                    (setup.entries, setup.cq_entries) = (8, 0);
                }
            }));
            all
        }
        Step::Enter(_) => vec![
            enter(|e| (e.min, e.flags, e.arg, e.size) = (0, 0, Val::default(), 0)),
            enter(|e| e.submit = None),
            enter(|e| (e.min, e.flags) = (0, e.flags & 1)),
        ],
        Step::Register { .. } => (0..8).map(shorten_register).collect(),
        Step::Reap { .. } => vec![Change::new(|s| {
            if let Step::Reap { max, .. } = s {
                *max = None;
            }
        })],
        Step::AwaitIdle | Step::Flush(_) | Step::Resize { .. } | Step::Host(_) => Vec::new(),
    }
}

fn enter(f: impl Fn(&mut super::program::Enter) + 'static) -> Change {
    Change::new(move |s| {
        if let Step::Enter(e) = s {
            f(e);
        }
    })
}

fn simpler_sqe() -> Vec<Change> {
    let mut all: Vec<Change> = (0..8).map(|b| sqe(move |s| s.flags &= !(1 << b))).collect();
    all.extend([
        sqe(|s| s.ioprio = 0),
        sqe(|s| s.buf_index = 0),
        sqe(|s| s.personality = 0),
        sqe(|s| s.file = Fd::Num(0)),
        sqe(|s| s.addr3 = Val::Num(0)),
        sqe(|s| s.pad2 = 0),
        sqe(|s| s.off = Val::Num(0)),
        sqe(|s| s.addr = Val::Num(0)),
        sqe(|s| s.op_flags = 0),
        sqe(|s| s.len = 0),
        sqe(|s| s.len = s.len.min(1)),
        sqe(|s| s.len = s.len.min(8)),
        sqe(|s| s.fd = Fd::Num(0)),
        sqe(|s| shorten(&mut s.addr)),
        sqe(|s| s.op = 0),
    ]);
    all.extend((0..32).map(|b| sqe(move |s| s.op_flags &= !(1 << b))));
    all
}

fn shorten(val: &mut Val) {
    match val {
        Val::Buf(_, off) => *off = 0,
        Val::Mem(cells) => {
            for cell in cells {
                if let Cell::U64(inner) = cell {
                    shorten(inner);
                }
            }
        }
        _ => {}
    }
}

/// Shortens the array of a register call.
fn shorten_register(i: u32) -> Change {
    Change::new(move |s| {
        let Step::Register { arg: Val::Mem(cells), nr, .. } = s else { return };
        if i == 0 {
            *nr = (*nr).min(1);
        } else if let Some(Cell::Fd(fd)) = cells.get_mut(i as usize - 1) {
            *fd = Fd::Num(-1);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::program::{Enter, Sqe};
    use super::*;
    use softring_uapi::*;

    fn noise(n: u64) -> Program {
        let mut steps = Vec::new();
        for ud in 0..n {
            let op = if ud == 13 { IORING_OP_READ } else { IORING_OP_NOP };
            let s = Sqe { ud, op, len: 77, ioprio: 3, flags: IOSQE_ASYNC, ..Sqe::default() };
            steps.push(Step::Sqe { ring: 0, sqe: s, bad_index: false });
            steps.push(Step::Enter(Enter { min: 1, flags: 1, ..Enter::default() }));
        }
        Program { steps, ..Program::default() }
    }

    fn has_read(p: &Program) -> bool {
        p.steps
            .iter()
            .any(|s| matches!(s, Step::Sqe { sqe, .. } if sqe.op == IORING_OP_READ && sqe.len > 0))
    }

    #[test]
    fn minimising_leaves_one_reduced_step() {
        let small = minimise(&noise(40), 10_000, &mut has_read);
        let [Step::Sqe { sqe, .. }] = &small.steps[..] else { panic!("{:?}", small.steps) };
        assert_eq!((sqe.ud, sqe.len, sqe.ioprio, sqe.flags), (13, 1, 0, 0));
    }

    #[test]
    fn two_steps_that_need_each_other_both_remain() {
        let both = |p: &Program| {
            let has =
                |want| p.steps.iter().any(|s| matches!(s, Step::Sqe { sqe, .. } if sqe.ud == want));
            has(3) && has(30)
        };
        let small = minimise(&noise(40), 10_000, &mut { both });
        assert_eq!(small.steps.len(), 2);
    }

    #[test]
    fn minimising_keeps_its_budget_and_the_difference() {
        let mut asked = 0;
        let small = minimise(&noise(40), 25, &mut |p| {
            asked += 1;
            has_read(p)
        });
        assert!(asked <= 25 && has_read(&small));
    }
}
