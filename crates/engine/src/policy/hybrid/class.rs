//! Kinds of requests: device, direction, and size to the next power of two. Bounded: a new kind
//! replaces the one unused for longest.

use super::estimate::Estimate;
use super::flight::Queue;
use super::utilisation::Utilisation;
use alloc::vec::Vec;

/// Kinds of requests that are told apart at a time: more than a program mixes, and as many as a
/// word has bits.
pub(crate) const CLASSES: usize = 64;

/// A kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    device: u64,
    write: bool,
    size: u8,
}

impl Key {
    /// Makes a key: `device` is any number that tells devices apart; `bytes` is the request's size.
    pub fn new(device: u64, write: bool, bytes: u64) -> Key {
        Key { device, write, size: 64 - bytes.saturating_sub(1).leading_zeros() as u8 }
    }
}

/// State of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    key: Key,
    /// Last use, in calls of [`Classes::find`].
    used: u64,
    /// Time at which a request of the kind was last done, in ns.
    pub(crate) last_done: u64,
    /// Number of the poll at which the estimate last learned.
    pub(crate) taught: u64,
    pub(crate) queue: Queue,
    pub(crate) estimate: Estimate,
    pub(crate) utilisation: Utilisation,
}

/// Table of kinds.
#[derive(Debug)]
pub(super) struct Classes {
    list: Vec<Class>,
    last: usize,
    clock: u64,
    /// Bit mask of classes with requests in flight.
    pub(crate) active: u64,
}

impl Default for Classes {
    fn default() -> Self {
        let list = Vec::with_capacity(CLASSES);
        Classes { list, last: 0, clock: 0, active: 0 }
    }
}

impl Classes {
    /// Returns the index of a kind, adding it if needed; `None` if all entries have requests in
    /// flight.
    pub(super) fn find(&mut self, key: Key) -> Option<u8> {
        self.clock += 1;
        let known = self.list.get(self.last).is_some_and(|c| c.key == key);
        if !known {
            self.last = self.list.iter().position(|c| c.key == key).or_else(|| self.add(key))?;
        }
        self.list[self.last].used = self.clock;
        Some(self.last as u8)
    }

    fn add(&mut self, key: Key) -> Option<usize> {
        let (queue, estimate) = (Queue::default(), Estimate::default());
        let utilisation = Utilisation::default();
        let class = Class { key, used: 0, last_done: 0, taught: 0, queue, estimate, utilisation };
        if self.list.len() < CLASSES {
            self.list.push(class);
            return Some(self.list.len() - 1);
        }
        let idle = |(at, _): &(usize, &Class)| self.active >> at & 1 == 0;
        let (at, _) = self.list.iter().enumerate().filter(idle).min_by_key(|(_, c)| c.used)?;
        self.list[at] = class;
        Some(at)
    }

    pub(super) fn get(&mut self, at: u8) -> &mut Class {
        &mut self.list[usize::from(at)]
    }

    /// Returns the classes with requests in flight.
    pub(super) fn active(&self) -> impl Iterator<Item = &Class> {
        self.list.iter().enumerate().filter(|(at, _)| self.active >> at & 1 == 1).map(|(_, c)| c)
    }

    /// Returns the classes with requests in flight, to change them.
    pub(super) fn active_mut(&mut self) -> impl Iterator<Item = &mut Class> {
        let active = self.active;
        self.list
            .iter_mut()
            .enumerate()
            .filter(move |(at, _)| active >> at & 1 == 1)
            .map(|(_, c)| c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_by_powers_of_two() {
        let k = |bytes| Key::new(1, false, bytes);
        assert_eq!(k(4096), k(2049));
        assert_ne!(k(4096), k(4097));
        assert_eq!(k(0), k(1));
        assert_ne!(k(4096), Key::new(1, true, 4096));
        assert_ne!(k(4096), Key::new(2, false, 4096));
        let _ = k(u64::MAX);
    }

    #[test]
    fn the_least_recently_used_class_is_replaced() {
        let mut c = Classes::default();
        let key = |d| Key::new(d, false, 1);
        for d in 0..CLASSES as u64 {
            assert_eq!(c.find(key(d)), Some(d as u8));
        }
        c.find(key(0));
        c.active = 1 << 1;
        // 0 was used, 1 has a request in flight.
        assert_eq!(c.find(key(1000)), Some(2));
        assert_eq!(c.find(key(2)), Some(3));
        c.active = u64::MAX;
        assert_eq!(c.find(key(2000)), None);
        assert_eq!(c.find(key(0)), Some(0));
    }
}
