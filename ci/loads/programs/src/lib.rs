//! Parts that the loads share: sizes and the command line.

/// Bytes of an echoed message.
pub const MESSAGE: usize = 64;

/// Bytes that a server has room for in each connection: it knows nothing of messages.
pub const BUFFER: usize = 4096;

/// The number at `index` of the command line.
///
/// # Panics
/// Where there is none, with the name of what is missing.
pub fn number(index: usize, what: &str) -> usize {
    let word = std::env::args().nth(index);
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("argument {index}: {what}"))
}

/// The word at `index` of the command line; empty where there is none.
pub fn word(index: usize) -> String {
    std::env::args().nth(index).unwrap_or_default()
}

/// Tells the driver of a load where a server listens.
pub fn listens(port: u16) {
    println!("{port}");
}
