//! What a thread that waits for I/O does between its looks.

/// The four ways to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Looks without a pause.
    #[default]
    Spin,
    /// Naps until shortly before the next completion is due, then looks.
    Hybrid,
    /// Spins, naps or blocks, by queue depth and by what the processor is worth.
    Adaptive,
    /// Sleeps until something completes.
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

    pub fn named(name: &[u8]) -> Option<Policy> {
        Self::ALL.into_iter().find(|p| p.name().as_bytes() == name)
    }
}

/// Who else wants to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Threads that run or could run, with the one that asks.
    pub runnable: u32,
    pub cpus: u32,
}

impl Load {
    /// Would a thread that spins take the processor from another?
    pub fn contended(self) -> bool {
        self.cpus > 0 && self.runnable > self.cpus
    }
}

/// At depth 1 spinning is worth it for a request that takes no longer, in ns.
const SPIN_WORTH: u64 = 1_000_000;

/// What [`Policy::Adaptive`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub load: Load,
    pub in_flight: u32,
    /// How long a request takes, in ns; 0: not known.
    pub takes: u64,
}

/// The way to wait that suits the scene.
pub fn adapt(scene: Scene) -> Policy {
    if scene.load.contended() {
        return Policy::Block;
    }
    if scene.in_flight <= 1 {
        let long = scene.takes > SPIN_WORTH;
        return if long { Policy::Hybrid } else { Policy::Spin };
    }
    // Where nothing is lost by it, that naps as long as blocking would, and wakes less often.
    Policy::Hybrid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known() {
        for p in Policy::ALL {
            assert_eq!(Policy::named(p.name().as_bytes()), Some(p));
        }
        assert_eq!(Policy::named(b"Spin"), None);
    }

    #[test]
    fn by_depth_and_by_what_the_processor_is_worth() {
        let idle = Load { runnable: 1, cpus: 2 };
        let busy = Load { runnable: 5, cpus: 2 };
        let one = Scene { load: idle, in_flight: 1, takes: 80_000 };
        assert_eq!(adapt(one), Policy::Spin);
        assert_eq!(adapt(Scene { takes: 9_000_000, ..one }), Policy::Hybrid);
        assert_eq!(adapt(Scene { in_flight: 64, ..one }), Policy::Hybrid);
        assert_eq!(adapt(Scene { in_flight: 64, takes: 1_200_000, ..one }), Policy::Hybrid);
        assert_eq!(adapt(Scene { in_flight: 64, takes: 0, ..one }), Policy::Hybrid);
        assert_eq!(adapt(Scene { load: busy, ..one }), Policy::Block);
        assert!(!Load::default().contended());
    }
}
