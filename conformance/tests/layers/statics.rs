//! Mutable statics of the engine and of the host crate: a process has each once, and a forked child
//! inherits it. A module either declares by an `AT_FORK` what a child does with its own (the
//! compiler warns of one that `process::forked` does not name), or is in a list that says why
//! nothing is needed.
//!
//! Mostly each folder of the engine has one such struct. Its function `in_child` says what a child
//! does with it, and begins by taking the struct apart: a new field does not compile until the
//! function uses it, if only by `fork::keeps`, which takes a reason.

use super::imports::{attributes, is_for_tests};
use super::sources::sources;
use super::{check_list, lines, listed};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Item, ItemConst, ItemFn, ItemImpl, ItemStatic, Local, Macro, Pat, Stmt, Type};

/// Lines of `MODULE::NAME  why a forked child need do nothing`.
const LIST: &str = include_str!("statics.txt");

/// Number of statics of the whole process, without those of each thread. Can only become fewer.
const OF_ENGINE: usize = 10;
const OF_HOST: usize = 61;

/// Types of statics that never change; a `static mut` can.
const CONSTANT: &[&str] = &["OpDef", "RegDef", "Waiting", "u8"];

/// Statics of a module.
#[derive(Default)]
struct Statics {
    of_process: BTreeSet<String>,
    of_thread: BTreeSet<String>,
    /// Words of the module's AT_FORK, if it has one.
    at_fork: Option<BTreeSet<String>>,
    /// Words of each function.
    functions: BTreeMap<String, BTreeSet<String>>,
    /// Types of the statics of the process.
    types: BTreeSet<String>,
    /// Types that a child takes apart, field by field.
    taken_apart: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Statics {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        let mutable = matches!(item.mutability, syn::StaticMutability::Mut(_));
        if mutable || !CONSTANT.contains(&kind(&item.ty).as_str()) {
            self.of_process.insert(item.ident.to_string());
            self.types.insert(kind(&item.ty));
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        if item.ident == "AT_FORK" {
            let mut words = Words::default();
            words.visit_expr(&item.expr);
            self.at_fork = Some(words.0);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let mut words = Words::default();
        words.visit_block(&item.block);
        self.functions.insert(item.sig.ident.to_string(), words.0);
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let functions = item.items.iter().filter_map(|item| match item {
            syn::ImplItem::Fn(f) if f.sig.ident == "in_child" => Some(f),
            _ => None,
        });
        if functions.into_iter().any(|f| takes_apart(&f.block.stmts)) {
            self.taken_apart.insert(kind(&item.self_ty));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if call
            .path
            .segments
            .last()
            .is_some_and(|s| s.ident == "thread_local" || s.ident == "per_thread")
        {
            self.of_thread(call.tokens.clone());
        }
    }
}

impl Statics {
    /// Returns whether the module's AT_FORK names the static, itself or in a function of the module
    /// that it calls.
    fn handles(&self, name: &str) -> bool {
        let Some(mut reached) = self.at_fork.clone() else { return false };
        let mut before = 0;
        while reached.len() > before {
            before = reached.len();
            let called = self.functions.iter().filter(|(f, _)| reached.contains(*f));
            let more: Vec<String> = called.flat_map(|(_, words)| words.clone()).collect();
            reached.extend(more);
        }
        reached.contains(name)
    }

    fn of_thread(&mut self, tokens: TokenStream) {
        // `'static` is a lifetime.
        let (mut before, mut quote) = (false, false);
        for token in tokens {
            if let TokenTree::Ident(word) = &token {
                if before {
                    self.of_thread.insert(word.to_string());
                }
                before = word == "static" && !quote;
            } else {
                before = false;
            }
            quote = matches!(&token, TokenTree::Punct(p) if p.as_char() == '\'');
        }
    }
}

/// Returns whether a function begins with `let Self { … } = self`, each field by its name.
fn takes_apart(body: &[Stmt]) -> bool {
    let Some(Stmt::Local(Local { pat: Pat::Struct(fields), .. })) = body.first() else {
        return false;
    };
    let named = |field: &syn::FieldPat| matches!(*field.pat, Pat::Ident(_));
    fields.path.is_ident("Self") && fields.rest.is_none() && fields.fields.iter().all(named)
}

/// Identifiers of a piece of code, without those in macros.
#[derive(Default)]
struct Words(BTreeSet<String>);

impl<'ast> Visit<'ast> for Words {
    fn visit_ident(&mut self, word: &'ast proc_macro2::Ident) {
        self.0.insert(word.to_string());
    }
}

/// Returns the name of a type, or of an array's elements.
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
fn each_static_has_a_fork_rule() {
    let mut silent = BTreeSet::new();
    for (module, statics) in &all() {
        let all = statics.of_process.union(&statics.of_thread).filter(|s| !statics.handles(s));
        silent.extend(all.map(|name| format!("{module}::{name}")));
    }
    let what = "say by an AT_FORK in its module what a forked child does with it, or why it need \
                do nothing in";
    check_list("statics.txt", LIST, &silent, what);
}

/// Tests that a fork goes through each AT_FORK: the compiler does not report an unused constant of
/// the host crate.
#[test]
fn fork_runs_each_at_fork_list() {
    const FORKED: &str = include_str!("../../../crates/engine/src/process/forked.rs");
    let (_, states) = FORKED.split_once("const STATES").expect("the list is there");
    let (states, _) = states.split_once("];").expect("it ends");
    let listed = states.matches("::AT_FORK").count();
    let made: Vec<String> =
        all().into_iter().filter(|m| m.1.at_fork.is_some()).map(|m| m.0).collect();
    assert_eq!(listed, made.len(), "`STATES` in process/forked.rs against those of:\n{made:#?}");
}

#[test]
fn each_engine_static_has_an_exhaustive_in_child() {
    let of_engine = all().into_iter().filter(|(module, _)| !module.starts_with("host::"));
    let whole = of_engine.flat_map(|(module, statics)| {
        let whole: Vec<String> = statics.types.difference(&statics.taken_apart).cloned().collect();
        whole.into_iter().map(move |name| format!("{module}::{name}"))
    });
    let whole: BTreeSet<String> = whole.collect();
    let what = "give these an in_child that begins with let Self { every, field } = self";
    assert!(whole.is_empty(), "{what}:\n{}", lines(&whole));
}

#[test]
fn statics_do_not_increase() {
    for (of_host, most) in [(false, OF_ENGINE), (true, OF_HOST)] {
        let all = all();
        let of = all.iter().filter(|(module, _)| module.starts_with("host::") == of_host);
        let n: usize = of.map(|(_, statics)| statics.of_process.len()).sum();
        assert!(n <= most, "{n} statics that can change: make one struct of a module's");
        assert!(n == most, "{n} statics now, {most} before: say so in OF_ENGINE or OF_HOST");
    }
}
