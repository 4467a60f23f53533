//! The statics of the engine and of the host crate that can change: a process has each once, and a
//! forked child inherits it. So a module either says by an `AT_FORK` what a child does with its own
//! (the compiler warns of one that `process::forked` does not name), or stands in a list that says
//! why it need do nothing.

use super::imports::{attributes, is_for_tests};
use super::sources::sources;
use super::{lines, listed};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Item, ItemConst, ItemStatic, Macro, Type};

/// `MODULE::NAME  why a forked child need do nothing`, one to a line.
const LIST: &str = include_str!("statics.txt");

/// Those of the whole process; each thread's own are not counted. Can only become fewer.
const OF_ENGINE: usize = 52;
const OF_HOST: usize = 64;

/// Types of statics that never change.
const CONSTANT: &[&str] = &["OpDef", "RegDef", "Waiting", "u8"];

/// A module's.
#[derive(Default)]
struct Statics {
    of_process: BTreeSet<String>,
    of_thread: BTreeSet<String>,
    at_fork: bool,
}

impl<'ast> Visit<'ast> for Statics {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        if !CONSTANT.contains(&kind(&item.ty).as_str()) {
            self.of_process.insert(item.ident.to_string());
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.at_fork |= item.ident == "AT_FORK";
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if call.path.segments.last().is_some_and(|s| s.ident == "thread_local") {
            self.of_thread(call.tokens.clone());
        }
    }
}

impl Statics {
    fn of_thread(&mut self, tokens: TokenStream) {
        let mut before = false;
        for token in tokens {
            if let TokenTree::Ident(word) = token {
                if before {
                    self.of_thread.insert(word.to_string());
                }
                before = word == "static";
            } else {
                before = false;
            }
        }
    }
}

/// The name of a type, or of what an array has.
fn kind(ty: &Type) -> String {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
        Type::Array(array) => Some(kind(&array.elem)),
        _ => None,
    }
    .unwrap_or_default()
}

fn all() -> BTreeMap<String, Statics> {
    let mut all = BTreeMap::new();
    for source in sources(&[".rs"]) {
        let Some(file) = listed(&source.name) else { continue };
        let module = file.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
        if module.split("::").any(|part| ["tests", "verify"].contains(&part)) {
            continue;
        }
        let mut statics = Statics::default();
        statics.visit_file(&syn::parse_file(&source.text).expect("is Rust"));
        all.insert(module, statics);
    }
    all
}

#[test]
fn a_child_knows_what_to_do_with_each_static() {
    let mut silent = BTreeSet::new();
    for (module, statics) in all().iter().filter(|(_, statics)| !statics.at_fork) {
        let all = statics.of_process.union(&statics.of_thread);
        silent.extend(all.map(|name| format!("{module}::{name}")));
    }
    let reasons = LIST.lines().map(|line| line.split_once("  ").expect("a name and a reason"));
    let known: BTreeSet<String> = reasons.map(|(name, _)| name.to_owned()).collect();
    let new: BTreeSet<String> = silent.difference(&known).cloned().collect();
    let what = "say by an AT_FORK in its module what a forked child does with it, \
                or in layers/statics.txt why it need do nothing";
    assert!(new.is_empty(), "{what}:\n{}", lines(&new));
    let gone: BTreeSet<String> = known.difference(&silent).cloned().collect();
    assert!(gone.is_empty(), "take these out of layers/statics.txt:\n{}", lines(&gone));
}

#[test]
fn statics_become_no_more() {
    for (of_host, most) in [(false, OF_ENGINE), (true, OF_HOST)] {
        let all = all();
        let of = all.iter().filter(|(module, _)| module.starts_with("host::") == of_host);
        let n: usize = of.map(|(_, statics)| statics.of_process.len()).sum();
        assert!(n <= most, "{n} statics that can change: make one struct of a module's");
        assert!(n == most, "{n} statics now, {most} before: say so in OF_ENGINE or OF_HOST");
    }
}
