//! Names of code in a document: each code span that reads as a path, a type's item or an identifier
//! must be in the sources.

use super::sources::{Source, is_word};
use std::collections::HashSet;

/// Names of the kernel and of liburing that no source of ours has, one a line.
const FOREIGN: &str = include_str!("foreign.txt");

/// The sources, as far as documents name parts of them.
pub struct Code {
    files: Vec<File>,
    words: HashSet<String>,
}

#[derive(Default)]
struct File {
    name: String,
    /// The path as modules name it: crate, folders, file.
    module: String,
    owners: HashSet<String>,
    defined: HashSet<String>,
}

/// Returns every identifier of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| !c.is_ascii() || !is_word(c as u8));
    parts.filter(|word| !word.is_empty())
}

/// Returns the name that a line defines: a function, a constant, a type, a module, a field or a
/// variant.
fn defined(line: &str) -> Option<&str> {
    const KINDS: [&str; 9] =
        ["fn", "const", "static", "struct", "enum", "trait", "type", "mod", "macro_rules"];
    let mut all = words(line).skip_while(|word| !KINDS.contains(word));
    if let Some(item) = all.find(|word| !KINDS.contains(word)) {
        return Some(item);
    }
    let line = line.trim_start();
    let rest = line.strip_prefix("pub").unwrap_or(line).trim_start();
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(") ")).map_or(rest, |r| r.1);
    let item = words(rest).next().filter(|item| rest.starts_with(item))?;
    let behind = &rest[item.len()..];
    let variant = item.starts_with(|c: char| c.is_ascii_uppercase())
        && (behind.is_empty() || behind.starts_with([',', '(', ' ']));
    (variant || behind.starts_with(':')).then_some(item)
}

/// Returns the conformance case that the line lists, as `family::name`.
fn case(line: &str) -> Option<String> {
    let row =
        ["case!(\"", "any_order!(\"", "legal!(\""].iter().find_map(|row| line.split_once(row))?.1;
    let (family, rest) = row.split_once("\", ")?;
    Some(format!("{family}::{}", rest.split(',').next()?))
}

/// Returns the types that the line defines, or implements something for.
fn owners(line: &str) -> impl Iterator<Item = &str> {
    let kinds = ["struct", "enum", "union", "trait", "type", "impl"];
    words(line).skip_while(move |word| !kinds.contains(word)).skip(1)
}

impl Code {
    pub fn read(sources: Vec<Source>) -> Code {
        let mut all: HashSet<String> = words(FOREIGN).map(str::to_owned).collect();
        let file = |source: Source| {
            let path = source.name.replace("/src/", "/").replace("/mod.rs", "");
            let module = format!("/{}/", path.trim_end_matches(".rs"));
            let mut file = File { name: format!("/{}", source.name), module, ..File::default() };
            // Comments may name removed items.
            let comment = |line: &&str| !line.trim_start().starts_with("//");
            let code = !source.name.ends_with(".md");
            let stem = file.name.rsplit('/').next().and_then(|name| name.split('.').next());
            all.extend(stem.map(str::to_owned));
            for line in source.text.lines().filter(comment).filter(|_| code) {
                all.extend(case(line));
                all.extend(words(line).map(str::to_owned));
                file.owners.extend(owners(line).map(str::to_owned));
                file.defined.extend(defined(line).map(str::to_owned));
            }
            file
        };
        let files = sources.into_iter().map(file).collect();
        Code { files, words: all }
    }

    /// Returns whether there is a file, a folder or a module of that path, or of one that ends so.
    fn has_path(&self, path: &str) -> bool {
        let (path, named) = (path.trim_matches('/'), |file: &File| {
            file.name.ends_with(&format!("/{}", path.trim_start_matches('/')))
        });
        let inside = format!("/{path}/");
        let module = format!("/{}/", path.trim_end_matches(".rs"));
        self.files.iter().any(|file| {
            let other = file.module.contains(&module) && !path.contains(".md");
            named(file) || file.name.contains(&inside) || other
        })
    }

    /// Returns whether the module at `path`, or one below it, defines `item`.
    fn module_has(&self, path: &[&str], item: &str) -> bool {
        let path: Vec<&str> =
            path.iter().map(|name| name.strip_prefix("softring_").unwrap_or(name)).collect();
        let module = format!("/{}/", path.join("/"));
        let inside = |file: &File| {
            // An inline module is short: the file defines its name.
            let inline = path.last().is_some_and(|name| file.defined.contains(*name));
            file.module.contains(&module) || inline
        };
        self.files.iter().any(|file| inside(file) && file.defined.contains(item))
    }

    /// Returns whether a file that defines `owner`, or implements something for it, defines `item`.
    fn type_has(&self, owner: &str, item: &str) -> bool {
        self.files.iter().any(|file| file.owners.contains(owner) && file.defined.contains(item))
    }

    /// Returns the part of a code span that the sources do not have.
    pub fn lacks(&self, span: &str) -> Option<String> {
        let plain = span.trim_end_matches("()");
        let is_path = |c: char| c.is_alphanumeric() || "/_.-".contains(c);
        if span.starts_with('/') || span.contains("://") {
            return None;
        }
        if plain.chars().all(is_path) && (plain.contains('/') || plain.ends_with(".rs")) {
            return (!self.has_path(plain)).then(|| "no such file or module".to_owned());
        }
        let parts: Vec<&str> = plain.split("::").collect();
        if self.words.contains(plain) {
            return None;
        }
        if let [path @ .., owner, item] = &parts[..]
            && parts.iter().all(|part| !part.is_empty() && part.bytes().all(is_word))
        {
            let is_type = owner.starts_with(|c: char| c.is_ascii_uppercase());
            let module = [path, &[owner]].concat();
            let there = if is_type {
                self.type_has(owner, item)
            } else {
                self.module_has(&module, item) || self.has_path(&parts.join("/"))
            };
            return (!there).then(|| format!("{owner} has no {item}"));
        }
        let missing = words(span).find(|word| {
            let name = word.len() > 2 && !word.starts_with(|c: char| c.is_ascii_digit());
            name && !self.words.contains(*word)
        });
        missing.map(|word| format!("no source has {word}"))
    }
}
