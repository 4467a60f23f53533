//! Actions between the polls of a thread that waits for I/O.

/// Policies of waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Polls without a pause.
    #[default]
    Spin,
    /// Sleeps until shortly before the next completion is due, then polls.
    Hybrid,
    /// Spins, sleeps or blocks, by queue depth and by the load of the processors.
    Adaptive,
    /// Sleeps until a completion.
    Block,
}

impl Policy {
    pub const ALL: [Policy; 4] = [Policy::Spin, Policy::Hybrid, Policy::Adaptive, Policy::Block];

    pub fn name(self) -> &'static str {
        match self {
            Policy::Spin => "spin",
            Policy::Hybrid => "hybrid",
            Policy::Adaptive => "adaptive",
            Policy::Block => "block",
        }
    }
}

/// Numbers of threads that want to run, and of processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Threads that run or could run, including the calling one.
    pub(crate) runnable: u32,
    pub(crate) cpus: u32,
}

impl Load {
    /// Returns whether a spinning thread would take the processor from another.
    pub(crate) fn contended(self) -> bool {
        self.cpus > 0 && self.runnable > self.cpus
    }
}

/// Longest request that is worth spinning for at depth 1, in ns.
const SPIN_WORTH: u64 = 1_000_000;

/// Method of waiting at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitMethod {
    /// Poll on.
    Poll,
    /// Sleep, if it pays, or poll on.
    IdleSleep,
    /// Sleep, if several completions may be slept through, or sleep until there is one.
    Coalesce,
    /// Sleep until a completion.
    Sleep,
}

/// Inputs of [`Policy::Adaptive`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) load: Load,
    pub(crate) in_flight: u32,
    /// Mean time of a request, in ns; 0: not known.
    pub(crate) takes: u64,
    /// Processor time of a sleep, in ns.
    pub(crate) sleep_cpu: u64,
    /// Flag, set if no completion was polled for to its end for long: a sleeping thread does not
    /// learn the time of a request.
    pub(crate) stale: bool,
}

/// Returns the method for a scene.
fn adapt(scene: Scene) -> WaitMethod {
    match (scene.load.contended(), scene.in_flight) {
        // Polling keeps others from running for less time than a sleep does.
        (true, 1) if scene.stale || (1..=scene.sleep_cpu).contains(&scene.takes) => {
            WaitMethod::Poll
        }
        (true, 0..=1) => WaitMethod::Sleep,
        (true, _) => WaitMethod::Coalesce,
        (false, 0..=1) if scene.takes <= SPIN_WORTH => WaitMethod::Poll,
        // A sleep is as long as blocking where nothing is lost by it, and wakes less often.
        (false, _) => WaitMethod::IdleSleep,
    }
}

impl Policy {
    /// Returns the method of this policy in a scene.
    pub(crate) fn method(self, scene: Scene) -> WaitMethod {
        match self {
            Policy::Spin => WaitMethod::Poll,
            Policy::Hybrid => WaitMethod::IdleSleep,
            Policy::Block => WaitMethod::Sleep,
            Policy::Adaptive => adapt(scene),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_depends_on_depth_and_load() {
        let idle = Load { runnable: 1, cpus: 2 };
        let busy = Load { runnable: 5, cpus: 2 };
        let (takes, sleep_cpu) = (80_000, 30_000);
        let one = Scene { load: idle, in_flight: 1, takes, sleep_cpu, stale: false };
        assert_eq!(adapt(one), WaitMethod::Poll);
        assert_eq!(adapt(Scene { takes: 9_000_000, ..one }), WaitMethod::IdleSleep);
        assert_eq!(adapt(Scene { in_flight: 64, ..one }), WaitMethod::IdleSleep);
        assert_eq!(adapt(Scene { in_flight: 64, takes: 1_200_000, ..one }), WaitMethod::IdleSleep);
        assert_eq!(adapt(Scene { in_flight: 64, takes: 0, ..one }), WaitMethod::IdleSleep);
        let one = Scene { load: busy, ..one };
        assert_eq!(adapt(one), WaitMethod::Sleep);
        assert_eq!(adapt(Scene { takes: 18_000, ..one }), WaitMethod::Poll);
        assert_eq!(adapt(Scene { takes: 0, ..one }), WaitMethod::Sleep);
        assert_eq!(adapt(Scene { stale: true, ..one }), WaitMethod::Poll);
        assert_eq!(adapt(Scene { in_flight: 64, takes: 18_000, ..one }), WaitMethod::Coalesce);
        assert_eq!(adapt(Scene { in_flight: 0, takes: 0, ..one }), WaitMethod::Sleep);
        assert!(!Load::default().contended());
    }
}
