//! First words of item docs: a type, a field, a constant or a module opens with its noun, a
//! function with a verb. A pronoun or a conjunction is neither.

use super::sources::Source;

/// Words with which no item's docs open.
const NOWHERE: &[&str] = &[
    "And", "As", "Because", "But", "Here", "How", "If", "It", "Its", "Nor", "Not", "Of", "Or",
    "So", "Such", "That", "Them", "Then", "These", "They", "This", "Those", "What", "When",
    "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why", "Yet",
];

/// Words with which only a function's docs open, which may say when it is called.
const NO_NOUN: &[&str] = &[
    "Above", "After", "At", "Before", "Behind", "Below", "Between", "By", "For", "From", "Held",
    "In", "On", "Since", "Taken", "There", "To", "Under", "Unless", "Until", "While", "With",
    "Without",
];

/// Returns the item docs of a file that open with a word of the lists: the line, from 1, and the
/// text.
pub fn findings(source: &Source) -> Vec<(usize, String)> {
    let lines: Vec<&str> = source.text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let first = at == 0 || !lines[at - 1].starts_with("///");
        let module = at == 0 && line.starts_with("//!");
        let Some(text) = line.strip_prefix("///").or(line.strip_prefix("//!")) else { continue };
        if !(module || line.starts_with("///") && first) {
            continue;
        }
        let documented = |line: &&&str| !line.starts_with("///") && !line.starts_with('#');
        let item = lines[at..].iter().find(documented).copied().unwrap_or_default();
        let function = !module && item.contains("fn ");
        let word = text.split_whitespace().next().unwrap_or_default();
        let word = word.trim_end_matches([',', ':', ';', '.']);
        if NOWHERE.contains(&word) || !function && NO_NOUN.contains(&word) {
            found.push((at + 1, text.trim().to_owned()));
        }
    }
    found
}
