//! Calls of methods: a method belongs to the file that defines it, a trait's to the file that
//! declares the trait. No `use` line shows that a file calls a method of an upper layer, as
//! `self.name()`: this test does.
//!
//! A receiver's type is read from `self`, parameters and fields. If it is not known, the method's
//! name stands for it, unless types of std have such a method, too.

use super::imports::{attributes, is_for_tests, module_of_file};
use super::sources::sources;
use super::{check_list, circles, engine, largest_circle, layer};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{
    Expr, ExprMethodCall, FnArg, GenericArgument, ImplItem, ImplItemFn, Item, ItemEnum, ItemFn,
    ItemImpl, ItemStruct, ItemTrait, Macro, Member, Pat, PathArguments, Signature, TraitItem, Type,
};

/// Calls that point up: `MODULE -> METHOD  reason`, one to a line. Can only become shorter.
const LIST: &str = include_str!("calls.txt");

/// Modules in the largest circle of imports and calls together. Can only become fewer.
const LARGEST_CIRCLE: usize = 15;

/// Names of methods that types of core, alloc and others have, too.
const OF_STD: &str = "\
    add all any as_fd as_ref begin chain clear clone close contains count drain end ends_with \
    entry extend fetch fill find first flush front get get_mut id in_flight insert is_empty iter \
    join last len load lock map max min next now or peek pop position push queued read remove \
    replace reserve retain set skip sort split start store sum swap take try_lock update upgrade \
    wait with write zip";

/// Types of variables that have these names throughout the engine.
const NAMED: &[(&str, &str)] = &[("ctx", "Ctx"), ("req", "Req")];

/// Types that dereference to a type of the engine.
const DEREFS: &[(&str, &str)] = &[("Guard", "Ctx"), ("ReqBox", "Req")];

/// Methods of the engine's types.
#[derive(Default)]
struct Methods {
    /// The modules that define a method, by its type and its name.
    of_types: BTreeMap<(String, String), BTreeSet<String>>,
    /// The modules that define a method of this name, in any type or trait.
    named: BTreeMap<String, BTreeSet<String>>,
    /// Types that the engine defines.
    own: BTreeSet<String>,
    /// Types with the traits that they implement.
    traits: Vec<(String, String)>,
    /// The methods of each trait.
    declared: BTreeMap<String, BTreeSet<String>>,
    /// The types of fields, by the struct's type and the field's name.
    fields: BTreeMap<(String, String), String>,
    module: String,
}

impl Methods {
    fn insert(&mut self, ty: &str, name: &str) {
        let key = (ty.to_owned(), name.to_owned());
        self.of_types.entry(key).or_default().insert(self.module.clone());
        self.named.entry(name.to_owned()).or_default().insert(self.module.clone());
    }

    /// Gives each type the methods of its traits.
    fn inherit(&mut self) {
        for (ty, name) in self.traits.iter().filter(|(ty, _)| self.own.contains(ty)) {
            for method in self.declared.get(name).into_iter().flatten() {
                if let Some(of) = self.of_types.get(&(name.clone(), method.clone())).cloned() {
                    self.of_types.entry((ty.clone(), method.clone())).or_insert(of);
                }
            }
        }
    }

    /// Returns the modules that may define the method; none if it may be std's.
    fn defined_in(&self, ty: Option<&str>, name: &str) -> Option<&BTreeSet<String>> {
        let behind = DEREFS.iter().find(|(outer, _)| Some(*outer) == ty).map(|(_, inner)| *inner);
        let of = |ty: &str| self.of_types.get(&(ty.to_owned(), name.to_owned()));
        let own = ty.and_then(of).or_else(|| behind.and_then(of));
        own.or_else(|| {
            self.named.get(name).filter(|_| !OF_STD.split(' ').any(|of_std| of_std == name))
        })
    }
}

impl<'ast> Visit<'ast> for Methods {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let ty = type_name(&item.self_ty).unwrap_or_default();
        if let Some(name) = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last()) {
            return self.traits.push((ty, name.ident.to_string()));
        }
        for item in &item.items {
            if let ImplItem::Fn(f) = item {
                self.insert(&ty, &f.sig.ident.to_string());
            }
        }
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        for f in &item.items {
            if let TraitItem::Fn(f) = f {
                let (name, method) = (item.ident.to_string(), f.sig.ident.to_string());
                self.insert(&name, &method);
                self.declared.entry(name).or_default().insert(method);
            }
        }
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.own.insert(item.ident.to_string());
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.own.insert(item.ident.to_string());
        for field in &item.fields {
            if let (Some(name), Some(ty)) = (&field.ident, type_name(&field.ty)) {
                self.fields.insert((item.ident.to_string(), name.to_string()), ty);
            }
        }
    }
}

/// Returns the last name of a type, or of what a reference or a box refers to.
fn type_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            let inner = match &last.arguments {
                PathArguments::AngleBracketed(of) => of.args.first(),
                _ => None,
            };
            match (last.ident.to_string(), inner) {
                (outer, Some(GenericArgument::Type(inner)))
                    if ["Arc", "Box", "Rc"].contains(&outer.as_str()) =>
                {
                    type_name(inner)
                }
                (name, _) => Some(name),
            }
        }
        Type::Reference(to) => type_name(&to.elem),
        _ => None,
    }
}

/// Calls of one file: each method's type, if it is known, and its name.
struct Calls<'a> {
    methods: &'a Methods,
    /// Types of `self` and of the parameters.
    types: BTreeMap<String, String>,
    found: BTreeSet<(Option<String>, String)>,
}

impl Calls<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        let known = || NAMED.iter().find(|(of, _)| *of == name).map(|(_, ty)| (*ty).to_owned());
        self.types.get(name).cloned().or_else(known)
    }

    fn type_of(&self, receiver: &Expr) -> Option<String> {
        match receiver {
            Expr::Path(path) => self.variable(&path.path.get_ident()?.to_string()),
            Expr::Field(field) => {
                let Member::Named(name) = &field.member else { return None };
                let key = (self.type_of(&field.base)?, name.to_string());
                self.methods.fields.get(&key).cloned()
            }
            Expr::Paren(inner) => self.type_of(&inner.expr),
            Expr::Reference(to) => self.type_of(&to.expr),
            _ => None,
        }
    }

    fn parameters(&mut self, signature: &Signature) {
        let own = self.types.remove("self");
        self.types = own.map(|own| ("self".to_owned(), own)).into_iter().collect();
        for input in &signature.inputs {
            if let FnArg::Typed(typed) = input
                && let Pat::Ident(name) = &*typed.pat
                && let Some(ty) = type_name(&typed.ty)
            {
                self.types.insert(name.ident.to_string(), ty);
            }
        }
    }

    /// Reads `.name(` and `self.name(` in macro arguments, whose grammar is the macro's own.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            let TokenTree::Group(group) = token else { continue };
            self.tokens(group.stream());
            let Some([before @ .., TokenTree::Punct(dot), TokenTree::Ident(name)]) =
                tokens.get(..at)
            else {
                continue;
            };
            if dot.as_char() == '.' {
                let ty = match before {
                    [.., TokenTree::Ident(one)] => self.variable(&one.to_string()),
                    _ => None,
                };
                self.found.insert((ty, name.to_string()));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        self.types.insert("self".to_owned(), type_name(&item.self_ty).unwrap_or_default());
        visit::visit_item_impl(self, item);
        self.types.clear();
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.types.insert("self".to_owned(), item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.types.clear();
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.parameters(&function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            self.parameters(&function.sig);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.found.insert((self.type_of(&call.receiver), call.method.to_string()));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let [.., ty, name] = &*path.segments.iter().collect::<Vec<_>>() {
            let ty = match ty.ident == "Self" {
                true => self.types.get("self").cloned().unwrap_or_default(),
                false => ty.ident.to_string(),
            };
            let key = (ty, name.ident.to_string());
            if self.methods.of_types.contains_key(&key) {
                self.found.insert((Some(key.0), key.1));
            }
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.tokens(call.tokens.clone());
    }
}

/// The calls of each module: the method, and the modules that may define it.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn calls() -> Graph {
    let parse = |source: &super::sources::Source| {
        let module = module_of_file(source.name.strip_prefix("crates/engine/src/")?)?.join("::");
        Some((module, syn::parse_file(&source.text).expect("is Rust")))
    };
    graph(&sources(&[".rs"]).iter().filter_map(parse).collect::<Vec<_>>())
}

/// Reads the calls of files, each with its module.
fn graph(files: &[(String, syn::File)]) -> Graph {
    let mut methods = Methods::default();
    for (module, file) in files {
        methods.module.clone_from(module);
        methods.visit_file(file);
    }
    methods.inherit();
    let mut graph = Graph::new();
    for (module, file) in files {
        let (types, found) = Default::default();
        let mut calls = Calls { methods: &methods, types, found };
        calls.visit_file(file);
        let own = graph.entry(module.clone()).or_default();
        for (ty, name) in calls.found {
            if let Some(to) = methods.defined_in(ty.as_deref(), &name) {
                own.entry(name).or_default().extend(to.iter().cloned());
            }
        }
    }
    graph
}

#[test]
fn calls_point_down() {
    let mut up = BTreeSet::new();
    for (from, calls) in calls().into_iter().filter(|(from, _)| !from.is_empty()) {
        for (name, to) in calls {
            if to.iter().all(|to| !to.is_empty() && layer(to) > layer(&from)) {
                let to: Vec<_> = to.into_iter().collect();
                up.insert(format!("{from} -> {}::{name}", to.join("|")));
            }
        }
    }
    let what = "these call what is above them; move the method down, let the lower layer declare a \
                trait of what it asks for, or say why in";
    check_list("calls.txt", LIST, &up, what);
}

#[test]
fn cycles_of_calls_do_not_grow() {
    let mut all = engine();
    for (from, calls) in calls() {
        let single = calls.into_values().filter(|to| to.len() == 1).flatten();
        all.entry(from.clone()).or_default().extend(single.filter(|to| *to != from));
    }
    let (n, arrows) = largest_circle(&all);
    let mut sizes: Vec<usize> =
        circles(&all).iter().map(BTreeSet::len).filter(|n| *n > 1).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    println!("circles of modules that name or call each other: {sizes:?}");
    assert!(n <= LARGEST_CIRCLE, "{n} modules call each other in a circle:\n{arrows}");
    assert!(n == LARGEST_CIRCLE, "the largest circle has {n} modules now: say so");
}

#[test]
fn calls_are_found() {
    const HIGH: &str =
        "impl Ctx { fn turn(&mut self) {} } impl Waits for Ctx { fn ready(&self) {} }";
    let file = |name: &str, text: &str| (name.to_owned(), syn::parse_file(text).expect("is Rust"));
    let to = |text: &str, name: &str| {
        let graph = graph(&[file("ring::low", text), file("drive::high", HIGH)]);
        graph["ring::low"].get(name).map(|to| to.iter().cloned().collect::<Vec<_>>().join(" "))
    };
    for text in [
        "impl Ctx { fn f(&mut self) { self.turn(); } }",
        "fn f(ring: &Ring) { ring.lock().turn(); }",
        "fn f(ctx: &mut Ctx) { Ctx::turn(ctx); }",
        "fn f(ctx: &mut Ctx) { assert!(ctx.turn()); }",
        "fn f(other: &mut Ctx) { other.turn() } impl Trace { fn turn(&self) {} }",
        "struct A { ctx: Arc<Ctx> } impl A { fn f(&self) { self.ctx.turn(); } fn turn(&self) {} }",
    ] {
        assert_eq!(to(text, "turn").as_deref(), Some("drive::high"), "{text}");
    }
    let own = "impl Trace { fn turn(&self) { self.turn(); } }";
    assert_eq!(to(own, "turn").as_deref(), Some("ring::low"));
    let declared = "struct Ctx; trait Waits { fn ready(&self); } fn f(ctx: &Ctx) { ctx.ready() }";
    assert_eq!(to(declared, "ready").as_deref(), Some("ring::low"));
}
