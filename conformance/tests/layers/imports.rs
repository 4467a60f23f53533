//! Imports of modules: the modules of a crate that each module names, in `use` lines, in paths, and
//! in macro arguments. Tests and models for loom are left out.

use super::sources::sources;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree, Visibility};

type Name = Vec<String>;

/// The modules that each module names, both by their paths below the crate.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// Names of a file before its paths are resolved.
#[derive(Default)]
struct Seen {
    module: Name,
    /// Paths that `use` binds names to.
    bound: BTreeMap<String, Name>,
    paths: Vec<Name>,
}

/// Reads the imports of a crate.
///
/// # Panics
/// Panics if a file of the crate is no Rust.
pub fn imports(crate_src: &str) -> Imports {
    let files: BTreeMap<String, Seen> =
        sources(&[".rs"]).iter().filter_map(|s| read(s.name.strip_prefix(crate_src)?, s)).collect();
    files.iter().map(|(module, seen)| (module.clone(), named(module, seen, &files))).collect()
}

/// Returns the module that a file of a crate is; `None` for tests and models.
pub(super) fn module_of_file(file: &str) -> Option<Name> {
    let mut module: Name = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module.iter().any(|part| ["tests", "verify"].contains(&part.as_str())) {
        return None;
    }
    if ["mod", "lib"].contains(&module.last()?.as_str()) {
        module.pop();
    }
    Some(module)
}

fn read(file: &str, source: &super::sources::Source) -> Option<(String, Seen)> {
    let module = module_of_file(file)?;
    let tree = syn::parse_file(&source.text).unwrap_or_else(|e| panic!("{file}: {e}"));
    let mut seen = Seen { module: module.clone(), ..Seen::default() };
    seen.visit_file(&tree);
    Some((module.join("::"), seen))
}

fn named(own: &str, seen: &Seen, files: &BTreeMap<String, Seen>) -> BTreeSet<String> {
    let absolute = seen.paths.iter().filter_map(|path| seen.resolve(path, files));
    let modules = absolute.filter_map(|path| module_of(path, files));
    modules.filter(|module| module != own && !module.is_empty()).collect()
}

/// Returns the module that a path from the crate's top leads into, through re-exports.
fn module_of(mut path: Name, files: &BTreeMap<String, Seen>) -> Option<String> {
    for _ in 0..8 {
        let known = (0..=path.len()).rev().find(|&n| files.contains_key(&path[..n].join("::")))?;
        let module = path[..known].join("::");
        let rest = &path[known..];
        let next = rest.first().and_then(|first| files[&module].bound.get(first));
        let Some(next) = next.and_then(|to| files[&module].resolve(to, files)) else {
            return Some(module);
        };
        path = [&next, &rest[1..]].concat();
    }
    None
}

impl Seen {
    /// Resolves a path from the crate's top; `None` if it leads out of the crate.
    fn resolve(&self, path: &[String], files: &BTreeMap<String, Seen>) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        let below = |base: &[String]| Some([base, rest].concat());
        match first.as_str() {
            "crate" => below(&[]),
            "self" => below(&self.module),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let base = &self.module[..self.module.len().checked_sub(up)?];
                Some([base, &path[up..]].concat())
            }
            name => {
                let child = [&self.module[..], &[name.to_owned()]].concat();
                if files.contains_key(&child.join("::")) {
                    return below(&child);
                }
                let to = self.bound.get(name).filter(|to| to.first() != Some(first))?;
                let to = self.resolve(to, files)?;
                below(&to)
            }
        }
    }

    fn bind(&mut self, tree: &UseTree, before: &mut Name) {
        match tree {
            UseTree::Path(p) => {
                before.push(p.ident.to_string());
                self.bind(&p.tree, before);
                before.pop();
            }
            UseTree::Name(n) => self.bind_name(&n.ident.to_string(), None, before),
            UseTree::Rename(r) => {
                self.bind_name(&r.ident.to_string(), Some(r.rename.to_string()), before);
            }
            UseTree::Glob(_) => self.paths.push(before.clone()),
            UseTree::Group(g) => g.items.iter().for_each(|item| self.bind(item, before)),
        }
    }

    fn bind_name(&mut self, name: &str, rename: Option<String>, before: &Name) {
        let mut path = before.clone();
        if name != "self" {
            path.push(name.to_owned());
        }
        let bound = rename.or_else(|| path.last().cloned()).unwrap_or_default();
        self.paths.push(path.clone());
        self.bound.insert(bound, path);
    }

    /// Reads paths in macro arguments, whose grammar is the macro's own.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Name::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(p) if p.as_char() == ':' => colons += 1,
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.paths.push(std::mem::take(&mut path));
                    }
                    path.push(word.to_string());
                    colons = 0;
                }
                other => {
                    self.paths.push(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.paths.push(path);
    }
}

pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|a| a.path().is_ident("cfg")).any(|a| {
        let what = a.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        // Tests that loom does not run are tests.
        let what = what.replace(' ', "").replace("not(loom)", "");
        (what.contains("test") || what.contains("loom")) && !what.contains("not")
    })
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Seen {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.bind(&item.tree, &mut Name::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.push(path.segments.iter().map(|s| s.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// Ignores visibility: it names no imports.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.tokens(call.tokens.clone());
    }
}
