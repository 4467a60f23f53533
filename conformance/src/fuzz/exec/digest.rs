//! State that a program leaves behind: the tree of its directory, and its buffers.

use super::arena;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Number of bytes of a file that are hashed; its size is compared too.
const HASHED: u64 = 1 << 20;

/// Describes few bytes as they are, many as a hash.
pub fn short(bytes: &[u8]) -> String {
    if bytes.len() <= 24 {
        return bytes.iter().map(|b| format!("{b:02x}")).collect();
    }
    format!("#{:016x}", hash(bytes))
}

fn hash(bytes: &[u8]) -> u64 {
    // A `DefaultHasher` made this way always has the same keys.
    let mut h = DefaultHasher::new();
    h.write(bytes);
    h.finish()
}

/// Returns one line per buffer ring that is not empty memory.
pub fn rings() -> Vec<String> {
    let seen = |i: u8| {
        let now = arena::read(arena::ring(i), 4096);
        now.iter().any(|&b| b != 0).then(|| format!("bufring{i} {}", short(&now)))
    };
    (0..arena::RINGS).filter_map(seen).collect()
}

/// Returns one line per entry below the current directory, sorted.
pub fn tree() -> Vec<String> {
    let mut out = Vec::new();
    walk(Path::new("."), &mut out);
    out.sort();
    out
}

fn walk(dir: &Path, out: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(dir) else {
        out.push(format!("{}: cannot be listed", dir.display()));
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let mode = meta.permissions().mode();
        let xattrs = super::host::xattrs(&path);
        let name = path.display();
        if meta.is_symlink() {
            let to = fs::read_link(&path).unwrap_or_default();
            out.push(format!("{name} -> {}", to.display()));
        } else if meta.is_dir() {
            out.push(format!("{name}/ {mode:o}{xattrs}"));
            walk(&path, out);
        } else {
            let (size, links) = (meta.len(), meta.nlink());
            out.push(format!(
                "{name} {mode:o} links {links} size {size} {}{xattrs}",
                content(&path)
            ));
        }
    }
}

fn content(path: &Path) -> String {
    let mut bytes = Vec::new();
    match fs::File::open(path).and_then(|f| f.take(HASHED).read_to_end(&mut bytes)) {
        Ok(_) => short(&bytes),
        Err(e) => format!("unreadable: {e}"),
    }
}

/// Returns one line per buffer that has changed since the start.
pub fn buffers() -> Vec<String> {
    (0..arena::BUFFERS)
        .filter_map(|i| {
            let now = arena::read(arena::buffer(i, 0), arena::BUFFER_LEN);
            let as_filled = now.iter().all(|&b| b == b'A' + i);
            (!as_filled).then(|| format!("buf{i} {}", short(&now)))
        })
        .collect()
}
