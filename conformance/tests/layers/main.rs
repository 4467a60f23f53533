//! Layers: a module of the engine names only modules of its own layer and of lower ones. The
//! statics, which a process has once, are listed with the effect of a fork on them.

mod calls;
mod imports;
mod loops;
mod no_std;
mod opcodes;
mod public;
mod raw_calls;
#[path = "../sources/mod.rs"]
#[allow(dead_code)]
mod sources;
mod statics;
mod unsafety;

use imports::{Imports, imports};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::BTreeSet;

/// The layers of the engine from the bottom up, each with its modules; the crates `uapi` and `host`
/// are below them all. A module that is not named is of its parent's layer.
const LAYERS: &[(&str, &[&str])] = &[
    ("memory", &["memory"]),
    ("stats", &["stats"]),
    (
        "policy",
        &[
            "io::model::device",
            "io::model::dist",
            "io::model::late",
            "io::model::parse",
            "io::model::presets",
            "policy",
        ],
    ),
    ("io", &["io"]),
    ("resources", &["resources"]),
    ("ring", &["ring"]),
    ("ops", &["ops"]),
    ("submit", &["submit"]),
    ("drive", &["drive"]),
    ("libaio", &["libaio"]),
    ("process", &["process"]),
    ("syscall", &["syscall"]),
];

/// Imports that point up: `MODULE -> MODULE`, one to a line.
const EXCEPTIONS: &str = include_str!("exceptions.txt");

/// Modules in the largest cycle of imports. May be at most 8; each cycle is in one folder.
const LARGEST_CIRCLE: usize = 8;

/// The crates with statics and unsafe code, and the prefix of their modules in the lists.
const CRATES: &[(&str, &str)] = &[("crates/engine/src/", ""), ("crates/host/src/", "host/")];

/// Returns a file's name in the lists.
fn listed(name: &str) -> Option<String> {
    CRATES.iter().find_map(|(path, prefix)| Some(format!("{prefix}{}", name.strip_prefix(path)?)))
}

fn engine() -> Imports {
    imports("crates/engine/src/")
}

/// Returns the index of a module's layer in [`LAYERS`]: that of the longest name that it begins
/// with.
fn layer(module: &str) -> usize {
    let within = |name: &str| {
        module.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let named = LAYERS.iter().enumerate().flat_map(|(i, l)| l.1.iter().map(move |name| (name, i)));
    let best = named.filter(|(name, _)| within(name)).max_by_key(|(name, _)| name.len());
    best.map(|(_, i)| i).unwrap_or_else(|| panic!("{module} has no layer: give it one in LAYERS"))
}

/// Fails unless `list`, the content of `layers/NAME` with a name and a reason in each line, has
/// just the names that were found, in order; `what` to do with a new one.
fn check_list(name: &str, list: &str, found: &BTreeSet<String>, what: &str) {
    let reasons = list.lines().map(|line| line.split_once("  ").expect("a name and a reason"));
    let known: BTreeSet<String> = reasons.map(|(name, _)| name.to_owned()).collect();
    assert!(list.lines().is_sorted(), "layers/{name} is sorted");
    let new: BTreeSet<String> = found.difference(&known).cloned().collect();
    assert!(new.is_empty(), "{what} layers/{name}:\n{}", lines(&new));
    let gone: BTreeSet<String> = known.difference(found).cloned().collect();
    assert!(gone.is_empty(), "take these out of layers/{name}:\n{}", lines(&gone));
}

fn lines(lines: &BTreeSet<String>) -> String {
    lines.iter().map(|line| format!("  {line}\n")).collect()
}

#[test]
fn imports_point_down() {
    let mut up = BTreeSet::new();
    for (from, names) in engine() {
        for to in names.iter().filter(|to| !from.is_empty() && layer(to) > layer(&from)) {
            up.insert(format!("{from} -> {to}"));
        }
    }
    let known: BTreeSet<String> = EXCEPTIONS.lines().map(str::to_owned).collect();
    let new: BTreeSet<String> = up.difference(&known).cloned().collect();
    assert!(new.is_empty(), "these name what is above them; move what they need:\n{}", lines(&new));
    let gone: BTreeSet<String> = known.difference(&up).cloned().collect();
    assert!(gone.is_empty(), "take these out of layers/exceptions.txt:\n{}", lines(&gone));
}

/// Returns the circles of modules that name each other, one by one.
fn circles(all: &Imports) -> Vec<BTreeSet<&str>> {
    let mut graph = DiGraphMap::<&str, ()>::new();
    for (from, names) in all {
        for to in names.iter().filter(|to| !from.is_empty() && !to.is_empty()) {
            graph.add_edge(from.as_str(), to.as_str(), ());
        }
    }
    tarjan_scc(&graph).into_iter().map(|circle| circle.into_iter().collect()).collect()
}

/// Returns the number of modules of the largest circle, and its arrows, one to a line.
fn largest_circle(all: &Imports) -> (usize, String) {
    let largest = circles(all).into_iter().max_by_key(BTreeSet::len).unwrap_or_default();
    let within = all.iter().filter(|(from, _)| largest.contains(from.as_str()));
    let arrows = within.flat_map(|(from, names)| {
        let names = names.iter().filter(|to| largest.contains(to.as_str()));
        names.map(move |to| format!("{from} -> {to}"))
    });
    (largest.len(), lines(&arrows.collect()))
}

#[test]
fn import_cycles_do_not_grow() {
    let mut all = engine();
    let host = imports("crates/host/src/");
    let of_host = |module: &String| format!("host::{module}");
    let below = host.iter().filter(|(from, _)| !from.is_empty());
    all.extend(below.map(|(from, names)| (of_host(from), names.iter().map(of_host).collect())));
    let (n, arrows) = largest_circle(&all);
    assert!(n <= LARGEST_CIRCLE, "{n} modules name each other in a circle:\n{arrows}");
    let folder = |module: &&str| module.split("::").next().unwrap_or_default().to_owned();
    let folders = circles(&all).into_iter().map(|c| c.iter().map(folder).collect::<BTreeSet<_>>());
    let wide: Vec<_> = folders.filter(|folders| folders.len() > 1).collect();
    assert!(wide.is_empty(), "circles over several folders: {wide:?}");
    assert!(
        n == LARGEST_CIRCLE,
        "the largest circle has {n} modules now: say so in LARGEST_CIRCLE"
    );
}
