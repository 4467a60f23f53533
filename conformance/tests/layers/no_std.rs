//! The engine's use of core, alloc and the host crate alone, and that of the crates around it of no
//! std. rustc checks that they are `no_std`; this test checks that no source brings std back, or
//! bypasses the host crate.

use super::imports::{attributes, is_for_tests};
use super::lines;
use super::sources::sources;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{ExprMethodCall, Ident, ImplItemFn, Item, ItemExternCrate, Macro, Path, UseTree};

const ENGINE: &str = "crates/engine/src/";
const HOST: &str = "crates/host/src/";
const PRELOAD: &str = "crates/preload/src/";

/// Crates that only tests name.
const CRATES: &[&str] = &["std", "libc", "rustix", "linux_raw_sys"];

/// Methods of numbers in std and not in core. rustc accepts them even in a `no_std` crate while any
/// crate below links std.
const METHODS: &[&str] = &[
    "cbrt", "ceil", "cos", "exp", "exp2", "floor", "fract", "ln", "log10", "log2", "mul_add",
    "powf", "powi", "round", "sin", "sqrt", "tan", "trunc",
];

/// Names of such crates, methods and numbers in a source.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    fn crate_named(&mut self, name: &str) {
        if CRATES.contains(&name) {
            self.0.insert(format!("{name}::"));
        }
    }

    fn method(&mut self, name: &str) {
        if METHODS.contains(&name) {
            self.0.insert(format!(".{name}()"));
        }
    }

    /// Records numbers of system calls.
    fn word(&mut self, word: &Ident) {
        let word = word.to_string();
        if word.starts_with("__NR_") {
            self.0.insert(word);
        }
    }

    /// Reads a macro's arguments: `std::…`, `.sqrt()` and `__NR_…`.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: Option<usize>, sign: char| {
            let token = at.and_then(|at| tokens.get(at));
            matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == sign)
        };
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if is(at.checked_sub(1), '.') => {
                    self.method(&word.to_string());
                }
                TokenTree::Ident(word) if is(Some(at + 1), ':') && is(Some(at + 2), ':') => {
                    self.crate_named(&word.to_string());
                }
                TokenTree::Ident(word) => self.word(word),
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_ident(&mut self, word: &'ast Ident) {
        self.word(word);
    }

    fn visit_item_extern_crate(&mut self, item: &'ast ItemExternCrate) {
        if !is_for_tests(&item.attrs) {
            self.crate_named(&item.ident.to_string());
        }
    }

    fn visit_use_tree(&mut self, tree: &'ast UseTree) {
        match tree {
            UseTree::Path(path) => self.crate_named(&path.ident.to_string()),
            UseTree::Rename(rename) => self.crate_named(&rename.ident.to_string()),
            UseTree::Name(name) => self.crate_named(&name.ident.to_string()),
            UseTree::Group(_) | UseTree::Glob(_) => {}
        }
        visit::visit_use_tree(self, tree);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.segments.len() > 1 {
            self.crate_named(&path.segments[0].ident.to_string());
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.method(&call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }
}

fn names(text: &str) -> BTreeSet<String> {
    let mut names = Names::default();
    names.visit_file(&syn::parse_file(text).expect("is Rust"));
    names.0
}

/// Returns the names in a crate's sources, but for its tests. The crate must be `no_std`.
fn names_in(folder: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for source in sources(&[".rs"]) {
        let Some(file) = source.name.strip_prefix(folder) else { continue };
        let tests = file.starts_with("tests/") || file.starts_with("verify/");
        if !tests && !file.ends_with("tests.rs") {
            let names = names(&source.text).into_iter();
            found.extend(names.map(|name| (file.to_owned(), name)));
        }
        let no_std = ["#![cfg_attr(not(test), no_std)]", "#![no_std]"];
        let is = no_std.iter().any(|attribute| source.code.contains(attribute));
        assert!(file != "lib.rs" || is, "{folder}lib.rs lacks {}", no_std[0]);
    }
    found
}

fn check(found: impl Iterator<Item = (String, String)>) {
    let found: BTreeSet<_> = found.map(|(file, name)| format!("{file}: {name}")).collect();
    assert!(found.is_empty(), "take these from core, alloc or softring_host:\n{}", lines(&found));
}

#[test]
fn the_engine_does_not_use_std() {
    check(names_in(ENGINE).into_iter());
}

/// The host crate makes the system calls, by number.
#[test]
fn the_host_does_not_use_std() {
    let own = |name: &str| name.starts_with("__NR_") || name == "linux_raw_sys::";
    check(names_in(HOST).into_iter().filter(|(_, name)| !own(name)));
}

/// The preload library passes on the program's own calls, by the C library's names and by number.
#[test]
fn the_preload_library_does_not_use_std() {
    let own = |name: &str| name.starts_with("__NR_") || name == "libc::";
    check(names_in(PRELOAD).into_iter().filter(|(_, name)| !own(name)));
}

#[test]
fn the_abi_and_the_faults_do_not_use_std() {
    let own = |name: &str| name == "linux_raw_sys::";
    for folder in ["crates/uapi/src/", "crates/faults/src/"] {
        check(names_in(folder).into_iter().filter(|(_, name)| !own(name)));
    }
}

/// Crates that the command or its tests use with `std`: the library would be linked with it.
const UNIFIED: &[&str] = &["bitflags", "fastrand", "rustix"];

#[test]
fn the_library_depends_on_no_crate_with_std() {
    for name in ["uapi", "faults", "host", "engine", "preload"] {
        let path = format!("{}/../crates/{name}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("the crate is there");
        let section = text.split("\n[").find_map(|part| part.strip_prefix("dependencies]"));
        let found = section.unwrap_or_default().lines().find(|line| {
            UNIFIED.iter().any(|name| {
                line.starts_with(&format!("{name}.")) || line.starts_with(&format!("{name} "))
            })
        });
        assert_eq!(found, None, "{path}: others turn its std on; write what is needed in host");
    }
}

#[test]
fn uses_of_std_are_found() {
    for text in [
        "use std::sync::Arc;",
        "extern crate std;",
        "fn f() { libc::getpid(); }",
        "fn f(x: rustix::fs::Mode) {}",
        "fn f() { assert!(std::env::args().len() > 1); }",
        "fn f(x: f64) -> f64 { x.sqrt() }",
        "std::thread_local! { static A: u32 = 0; }",
        "use softring_host::sys::nr::{EPOLLIN, __NR_read};",
        "fn f() -> u32 { nr::__NR_read }",
    ] {
        assert_eq!(names(text).len(), 1, "{text}");
    }
    for text in [
        "use softring_host::os::fs::open;",
        "#[cfg(test)] mod tests { use std::fs; }",
        "fn f() { softring_host::per_thread! { static A: u32 = 0; } }",
    ] {
        assert!(names(text).is_empty(), "{text}");
    }
}
