//! Operations: each is its family's file and its row, which says all that the rest of the engine
//! must know. Only timeouts are named elsewhere, as in the kernel: by opcode, by the path of their
//! module, or by number.

use super::imports::{attributes, is_for_tests};
use super::sources::sources;
use super::{check_list, engine, lines};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprBinary, ExprIndex, ExprMatch, Item, Lit, Macro, Pat};

/// The two opcodes that the timeout queue and the chains know.
const NAMED: &[&str] = &["TIMEOUT", "LINK_TIMEOUT"];

/// Name of the number of opcodes, which is no operation.
const COUNT: &str = "LAST";

/// Modules of `ops/` that are named elsewhere: `MODULE -> MODULE  reason`, one to a line. Can only
/// become shorter.
const LIST: &str = include_str!("opcodes.txt");

fn names(code: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_';
    let name = move |rest: &'_ str| rest.find(is_end).unwrap_or(rest.len());
    code.split("IORING_OP_").skip(1).map(move |rest| &rest[..name(rest)])
}

#[test]
fn opcodes_are_named_only_in_their_own_files() {
    let mut found = BTreeSet::new();
    for source in sources(&[".rs"]) {
        let Some(file) = elsewhere(&source.name) else { continue };
        for name in names(&source.code).filter(|name| *name != COUNT && !NAMED.contains(name)) {
            found.insert(format!("{file}: IORING_OP_{name}"));
        }
    }
    let what = "say by a bit or a hook of the row (opdef.rs) what the core must know";
    assert!(found.is_empty(), "{what}:\n{}", lines(&found));
}

/// Returns a file's name below the engine, if it is a file that names no operation.
fn elsewhere(name: &str) -> Option<&str> {
    let file = name.strip_prefix("crates/engine/src/")?;
    (!["ops/", "tests/", "verify/"].iter().any(|dir| file.starts_with(dir))).then_some(file)
}

#[test]
fn modules_of_operations_are_named_only_by_each_other() {
    let mut found = BTreeSet::new();
    for (from, names) in engine() {
        let other = from.is_empty() || from == "ops" || from.starts_with("ops::");
        for to in names.iter().filter(|_| !other) {
            if to == "ops" || to.starts_with("ops::") && to != "ops::table" {
                found.insert(format!("{from} -> {to}"));
            }
        }
    }
    let what = "these name an operation's module: let its row have a bit or a hook (opdef.rs), or \
                say why in";
    check_list("opcodes.txt", LIST, &found, what);
}

/// Opcodes of a file that stand there as numbers.
#[derive(Default)]
struct Numbers(BTreeSet<String>);

/// Returns whether an expression is an opcode: a name that ends so, or a call or cast of one.
fn is_opcode(expr: &Expr) -> bool {
    match expr {
        Expr::Path(path) => path.path.segments.last().is_some_and(|s| s.ident == "opcode"),
        Expr::Field(field) => matches!(&field.member, syn::Member::Named(n) if n == "opcode"),
        Expr::MethodCall(call) => call.method == "opcode" || is_opcode(&call.receiver),
        Expr::Call(call) => call.args.iter().any(is_opcode),
        Expr::Cast(cast) => is_opcode(&cast.expr),
        Expr::Paren(inner) => is_opcode(&inner.expr),
        Expr::Reference(to) => is_opcode(&to.expr),
        _ => false,
    }
}

fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(lit) => matches!(lit.lit, Lit::Int(_)),
        Expr::Cast(cast) => is_number(&cast.expr),
        Expr::Paren(inner) => is_number(&inner.expr),
        _ => false,
    }
}

fn has_number(pat: &Pat) -> bool {
    match pat {
        Pat::Lit(lit) => matches!(lit.lit, Lit::Int(_)),
        Pat::Or(or) => or.cases.iter().any(has_number),
        Pat::Range(_) => true,
        _ => false,
    }
}

/// Returns whether tokens name an opcode and have a number, as `matches!(opcode, 1 | 2)`.
fn compares(tokens: TokenStream) -> bool {
    let (mut opcode, mut number) = (false, false);
    for token in tokens {
        match token {
            TokenTree::Ident(word) => opcode |= word == "opcode",
            TokenTree::Literal(lit) => {
                number |= lit.to_string().starts_with(|c: char| c.is_ascii_digit());
            }
            _ => {}
        }
    }
    opcode && number
}

impl<'ast> Visit<'ast> for Numbers {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_expr_binary(&mut self, e: &'ast ExprBinary) {
        let compares = matches!(
            e.op,
            BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_)
        );
        let sides = [(&e.left, &e.right), (&e.right, &e.left)];
        if compares && sides.iter().any(|(one, other)| is_opcode(one) && is_number(other)) {
            self.0.insert("a comparison of an opcode with a number".to_owned());
        }
        visit::visit_expr_binary(self, e);
    }

    fn visit_expr_match(&mut self, e: &'ast ExprMatch) {
        if is_opcode(&e.expr) && e.arms.iter().any(|arm| has_number(&arm.pat)) {
            self.0.insert("a match of an opcode with a number".to_owned());
        }
        visit::visit_expr_match(self, e);
    }

    fn visit_expr_index(&mut self, e: &'ast ExprIndex) {
        let table = matches!(&*e.expr, Expr::Path(path) if path.path.segments.last()
            .is_some_and(|s| s.ident == "OPS"));
        if table && is_number(&e.index) {
            self.0.insert("a row of the table by its number".to_owned());
        }
        visit::visit_expr_index(self, e);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if call.path.is_ident("matches") && compares(call.tokens.clone()) {
            self.0.insert("a match of an opcode with a number".to_owned());
        }
    }
}

fn numbers(text: &str) -> BTreeSet<String> {
    let mut numbers = Numbers::default();
    numbers.visit_file(&syn::parse_file(text).expect("is Rust"));
    numbers.0
}

#[test]
fn opcodes_are_not_numbers() {
    let mut found = BTreeSet::new();
    for source in sources(&[".rs"]) {
        let Some(file) = elsewhere(&source.name) else { continue };
        // Codes of io_uring_register(2) are no operations.
        if !file.starts_with("syscall/register/") {
            let of_file = numbers(&source.text).into_iter();
            found.extend(of_file.map(|what| format!("{file}: {what}")));
        }
    }
    assert!(found.is_empty(), "these name an operation by its number:\n{}", lines(&found));
}

#[test]
fn numbers_of_opcodes_are_found() {
    for text in [
        "fn f(sqe: Sqe) -> bool { sqe.opcode == 22 }",
        "fn f(req: &Req) -> bool { 22 != req.opcode() }",
        "fn f(opcode: u8) -> bool { u32::from(opcode) < 5 }",
        "fn f(opcode: u8) { match opcode { 1 | 2 => {} _ => {} } }",
        "fn f(opcode: u8) -> bool { matches!(opcode, 1 | 2) }",
        "fn f() -> &'static OpDef { &OPS[5] }",
    ] {
        assert_eq!(numbers(text).len(), 1, "{text}");
    }
    for text in [
        "fn f(a: &Req, b: &Req) -> bool { a.opcode() == b.opcode() }",
        "fn f(req: &Req) -> &'static OpDef { &OPS[req.opcode() as usize] }",
        "fn f(req: &Req) -> bool { req.res == 5 }",
    ] {
        assert!(numbers(text).is_empty(), "{text}");
    }
}
