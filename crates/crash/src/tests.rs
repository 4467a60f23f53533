//! Properties of power cuts, with files in memory.

extern crate std;

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

use crate::{At, Change, Cut, Dice, Inode, Model, Place, Record, SECTOR, Spec, Sync};

const FILES: u64 = 2;
const LONGEST: u64 = 12_000;

#[derive(Clone, Debug)]
enum Act {
    Write { file: u64, at: u64, len: u64, synced: bool },
    Truncate { file: u64, to: u64 },
    Sync { file: u64 },
}

fn writes() -> impl Strategy<Value = Act> {
    (0..FILES, 0..LONGEST, 1..5000u64, prop::bool::weighted(0.15))
        .prop_map(|(file, at, len, synced)| Act::Write { file, at, len, synced })
}

fn acts() -> impl Strategy<Value = Act> {
    let truncate = (0..FILES, 0..LONGEST).prop_map(|(file, to)| Act::Truncate { file, to });
    prop_oneof![6 => writes(), 2 => truncate, 1 => (0..FILES).prop_map(|file| Act::Sync { file })]
}

/// Files in memory, with the record that a recorder would make of them.
struct World {
    record: Record,
    live: Vec<Vec<u8>>,
    /// All contents since the file was last durable.
    since: Vec<Vec<Vec<u8>>>,
    /// Bytes that are durable and have not changed since.
    firm: Vec<BTreeMap<u64, u8>>,
    n: u64,
}

impl World {
    fn new(model: Model) -> World {
        let live: Vec<Vec<u8>> = vec![vec![1; 5000], Vec::new()];
        let all = |file: &Vec<u8>| (0..).zip(file.iter().copied()).collect();
        World {
            record: Record::new(model),
            since: live.iter().map(|file| vec![file.clone()]).collect(),
            firm: live.iter().map(all).collect(),
            live,
            n: 0,
        }
    }

    /// Saves what a change of the range would destroy; returns the size.
    fn before(&mut self, file: u64, range: &core::ops::Range<u64>) -> u64 {
        let live = &self.live[file as usize];
        let size = live.len() as u64;
        for part in self.record.unsaved(Inode(file), size, range) {
            let bytes = &live[part.start as usize..part.end as usize];
            self.record.save(Inode(file), part.start, bytes);
        }
        size
    }

    fn act(&mut self, act: &Act) {
        self.n += 1;
        match *act {
            Act::Write { file, at, len, synced } => {
                let range = at..at + len;
                let size = self.before(file, &range);
                let data = vec![self.n as u8 + 1; len as usize];
                let live = &mut self.live[file as usize];
                live.resize(live.len().max(range.end as usize), 0);
                live[at as usize..range.end as usize].copy_from_slice(&data);
                self.record.write(self.n, Inode(file), size, at, &data);
                self.firm[file as usize].retain(|byte, _| !range.contains(byte));
                if synced {
                    self.record.sync_range(Inode(file), &range);
                    let durable = range.zip(data);
                    self.firm[file as usize].extend(durable);
                }
            }
            Act::Truncate { file, to } => {
                let size = self.before(file, &(to..u64::MAX));
                self.live[file as usize].resize(to as usize, 0);
                self.record.truncate(self.n, Inode(file), size, to);
                self.firm[file as usize].retain(|byte, _| *byte < to);
            }
            Act::Sync { file } => {
                self.record.sync(Inode(file), Sync::File);
                let live = &self.live[file as usize];
                self.firm[file as usize] = (0..).zip(live.iter().copied()).collect();
                self.since[file as usize].clear();
            }
        }
        for (since, live) in self.since.iter_mut().zip(&self.live) {
            since.push(live.clone());
        }
    }

    fn after(&self, cut: &Cut) -> Vec<Vec<u8>> {
        let mut files = self.live.clone();
        for (inode, left) in &cut.files {
            let file = &mut files[inode.0 as usize];
            file.resize(left.size as usize, 0);
            for (number, sector) in &left.sectors {
                let from = ((number * SECTOR) as usize).min(file.len());
                let to = (from + SECTOR as usize).min(file.len());
                file[from..to].copy_from_slice(&sector[..to - from]);
            }
        }
        files
    }
}

fn spec(seed: u64, model: Model) -> Spec {
    Spec { seed, model, ..Spec::default() }
}

fn models() -> impl Strategy<Value = Model> {
    prop_oneof![Just(Model::PosixMinimal), Just(Model::Ext4Ordered)]
}

proptest! {
    #[test]
    fn durable_bytes_stay(
        model in models(), seed: u64, acts in prop::collection::vec(acts(), 1..14),
    ) {
        let mut world = World::new(model);
        acts.iter().for_each(|act| world.act(act));
        let spec = spec(seed, model);
        let cut = world.record.cut(&Dice::new(&spec));
        prop_assert_eq!(&cut, &world.record.cut(&Dice::new(&spec)));
        for (file, firm) in world.after(&cut).iter().zip(&world.firm) {
            for (at, byte) in firm {
                prop_assert_eq!(file.get(*at as usize), Some(byte), "byte {}", at);
            }
        }
    }

    #[test]
    fn nothing_is_lost_that_may_not_be(
        model in models(), seed: u64, acts in prop::collection::vec(acts(), 1..14),
    ) {
        let mut world = World::new(model);
        acts.iter().for_each(|act| world.act(act));
        let spec = Spec { only: Some([0].into()), ..spec(seed, model) };
        let cut = world.record.cut(&Dice::new(&spec));
        prop_assert_eq!(world.after(&cut), world.live.clone());
        prop_assert!(cut.fates.is_empty());
        // Without a change since, there is nothing to lose.
        (0..FILES).for_each(|file| world.record.sync(Inode(file), Sync::File));
        let spec = Spec { only: None, ..spec };
        prop_assert!(world.record.cut(&Dice::new(&spec)).files.is_empty());
        prop_assert_eq!(world.record.bytes(), 0);
    }

    #[test]
    fn sectors_are_as_they_were_at_some_time(
        model in models(), seed: u64, acts in prop::collection::vec(writes(), 1..14),
    ) {
        let mut world = World::new(model);
        acts.iter().for_each(|act| world.act(act));
        let cut = world.record.cut(&Dice::new(&spec(seed, model)));
        for (file, since) in world.after(&cut).iter().zip(&world.since) {
            for (at, sector) in file.chunks(SECTOR as usize).enumerate() {
                let at = at * SECTOR as usize;
                let was = |old: &&Vec<u8>| {
                    let byte = |i: usize| old.get(at + i).copied().unwrap_or(0);
                    (0..sector.len()).all(|i| byte(i) == sector[i])
                };
                prop_assert!(since.iter().any(|old| was(&old)), "byte {}", at);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Naming {
    Make(u64, u8),
    Remove(u64, u8),
    Rename(u64, u8, u64, u8),
    Sync(u64),
}

fn namings() -> impl Strategy<Value = Naming> {
    let place = || (10..12u64, b'a'..b'd');
    prop_oneof![
        3 => place().prop_map(|(dir, name)| Naming::Make(dir, name)),
        2 => place().prop_map(|(dir, name)| Naming::Remove(dir, name)),
        3 => (place(), place()).prop_map(|((d, n), (e, m))| Naming::Rename(d, n, e, m)),
        1 => (10..12u64).prop_map(Naming::Sync),
    ]
}

type Tree = BTreeMap<Place, Inode>;

struct Dirs {
    record: Record,
    live: Tree,
    history: Vec<Tree>,
    /// Length of the history when each directory was last durable.
    synced: BTreeMap<u64, usize>,
    n: u64,
}

impl Dirs {
    fn new(model: Model) -> Dirs {
        let live = Tree::from([(place(10, b'a'), Inode(1))]);
        let history = vec![live.clone()];
        Dirs { record: Record::new(model), live, history, synced: BTreeMap::new(), n: 100 }
    }

    fn act(&mut self, naming: &Naming) {
        self.n += 1;
        let mut changes = Vec::new();
        let mut set = |live: &mut Tree, place: Place, is: Option<Inode>| {
            let was = match is {
                Some(inode) => live.insert(place.clone(), inode),
                None => live.remove(&place),
            };
            changes.push(Change { place, was, is });
        };
        let mut made = false;
        match *naming {
            Naming::Make(dir, name) if !self.live.contains_key(&place(dir, name)) => {
                set(&mut self.live, place(dir, name), Some(Inode(self.n)));
                made = true;
            }
            Naming::Remove(dir, name) if self.live.contains_key(&place(dir, name)) => {
                set(&mut self.live, place(dir, name), None);
            }
            Naming::Rename(dir, name, to, other) if (dir, name) != (to, other) => {
                let Some(&inode) = self.live.get(&place(dir, name)) else { return };
                set(&mut self.live, place(dir, name), None);
                set(&mut self.live, place(to, other), Some(inode));
            }
            Naming::Sync(dir) => {
                self.record.sync(Inode(dir), Sync::Directory);
                self.synced.insert(dir, self.history.len());
                return;
            }
            _ => return,
        }
        self.record.rename(self.n, changes, made);
        self.history.push(self.live.clone());
    }

    fn after(&self, cut: &Cut) -> Tree {
        let mut tree = self.live.clone();
        for (place, is) in &cut.names {
            match is {
                Some(inode) => tree.insert(place.clone(), *inode),
                None => tree.remove(place),
            };
        }
        tree
    }
}

fn place(dir: u64, name: u8) -> Place {
    Place { dir: Inode(dir), name: vec![name] }
}

proptest! {
    #[test]
    fn a_journal_leaves_a_state_that_there_was(
        seed: u64, namings in prop::collection::vec(namings(), 1..16),
    ) {
        let mut dirs = Dirs::new(Model::Ext4Ordered);
        namings.iter().for_each(|naming| dirs.act(naming));
        let tree = dirs.after(&dirs.record.cut(&Dice::new(&spec(seed, Model::Ext4Ordered))));
        prop_assert!(dirs.history.contains(&tree), "{:?}", tree);
    }

    #[test]
    fn a_synced_directory_stays(
        model in models(), seed: u64, namings in prop::collection::vec(namings(), 1..16),
    ) {
        let mut dirs = Dirs::new(model);
        namings.iter().for_each(|naming| dirs.act(naming));
        let tree = dirs.after(&dirs.record.cut(&Dice::new(&spec(seed, model))));
        for (dir, at) in &dirs.synced {
            for name in b'a'..b'd' {
                let was = |tree: &Tree| tree.get(&place(*dir, name)).copied();
                let later: Vec<_> = dirs.history[at - 1..].iter().map(was).collect();
                prop_assert!(later.contains(&was(&tree)), "{} {}: {:?}", dir, name, later);
            }
        }
        let none = Spec { only: Some([0].into()), ..spec(seed, model) };
        prop_assert_eq!(dirs.after(&dirs.record.cut(&Dice::new(&none))), dirs.live.clone());
        dirs.record.sync_all();
        prop_assert!(dirs.record.cut(&Dice::new(&none)).names.is_empty());
        prop_assert_eq!(dirs.record.needed().count(), 0);
    }
}

#[test]
fn a_replaced_file_is_whole_on_ext4_and_may_be_empty_by_posix() {
    let empty = |model| {
        let mut record = Record::new(model);
        let (dir, old, new) = (Inode(1), Inode(2), Inode(3));
        let named = |name: &[u8]| Place { dir, name: name.to_vec() };
        let made = Change { place: named(b"new"), was: None, is: Some(new) };
        record.rename(1, vec![made], true);
        record.write(2, new, 0, 0, &[7; 3000]);
        let gone = Change { place: named(b"new"), was: Some(new), is: None };
        let over = Change { place: named(b"data"), was: Some(old), is: Some(new) };
        record.rename(3, vec![gone, over], false);
        let torn = |seed: &u64| {
            let spec = spec(*seed, model);
            let cut = record.cut(&Dice::new(&spec));
            cut.names[&named(b"data")] == Some(new) && cut.files[&new].size < 3000
        };
        (0..100u64).filter(torn).count()
    };
    assert_eq!(empty(Model::Ext4Ordered), 0);
    assert!(empty(Model::PosixMinimal) > 10);
}

/// Removes a file in one directory and makes one in another, and syncs one of them.
#[test]
fn a_journal_is_committed_by_any_directory_and_by_files_as_far_as_they_need() {
    let lost = |inode, how| {
        let mut record = Record::new(Model::Ext4Ordered);
        let of = |dir, was, is| Change { place: place(dir, b'a'), was, is };
        record.rename(1, vec![of(1, None, Some(Inode(3)))], true);
        record.rename(2, vec![of(2, Some(Inode(4)), None)], false);
        record.sync(Inode(inode), how);
        let fates = (0..100).flat_map(|seed| {
            let spec = spec(seed, Model::Ext4Ordered);
            record.cut(&Dice::new(&spec)).fates.into_keys()
        });
        fates.collect::<alloc::collections::BTreeSet<u64>>().into_iter().collect::<Vec<_>>()
    };
    for (inode, how, may) in [
        (1, Sync::Directory, &[][..]),
        (2, Sync::Directory, &[]),
        (3, Sync::File, &[2]),
        (3, Sync::Data, &[2]),
        (4, Sync::File, &[]),
        (4, Sync::Data, &[1, 2]),
        (5, Sync::File, &[1, 2]),
    ] {
        assert_eq!(lost(inode, how), may, "{how:?} of {inode}");
    }
}

#[test]
fn a_spec_prints_as_it_parses() {
    for text in [
        "seed=7,model=ext4-ordered,request=12,sector=4096,dir=/data,only=3+5",
        "seed=0,model=posix-minimal,fsync=2",
        "seed=0,model=posix-minimal,time=500ms",
        "seed=0,model=posix-minimal,marker=a\\,b",
        "seed=1,model=posix-minimal,end,only=0",
    ] {
        assert_eq!(Spec::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(Spec::parse("fsync=3").unwrap().at, Some(At::Sync(3)));
}

#[test]
fn mistakes_have_a_column() {
    for (text, column, part) in [
        ("seed=x", 6, "a seed must be a number"),
        ("seed=1,model=ext5", 14, "there is no model ext5; models: posix-minimal"),
        ("request=1,fsync=2", 11, "the power fails once"),
        ("request=0", 9, "counted from 1"),
        ("sector=1", 8, "512 or 4096"),
        ("only=1+x", 8, "a request must be a number"),
        ("time=5", 6, "a number with a unit"),
        ("seed=1,,end", 8, "an item is missing"),
        ("crash=1", 1, "there is no item crash"),
        ("marker", 1, "marker needs a value"),
        ("end=3", 5, "end has no value"),
        ("dir=", 5, "dir needs a value"),
    ] {
        let e = Spec::parse(text).unwrap_err();
        assert_eq!(e.column, column, "{text}: {e}");
        assert!(e.message.contains(part), "{text}: {e}");
    }
}
