//! A subset of Markdown: as much as the documents use.

/// Headings, links and code spans of a document.
#[derive(Default)]
pub struct Page {
    pub headings: Vec<String>,
    /// Links, each with its line, from 1.
    pub links: Vec<(usize, String)>,
    /// Code between backticks, each with its line, from 1.
    pub spans: Vec<(usize, String)>,
}

impl Page {
    pub fn read(text: &str) -> Page {
        let mut page = Page::default();
        let mut fence = false;
        // The text without code, which is searched for links.
        let mut prose = String::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fence = !fence;
            } else if !fence {
                let heading = line.trim_start_matches('#');
                if heading.len() < line.len() && heading.starts_with(' ') {
                    page.headings.push(heading.trim().to_owned());
                }
                prose.push_str(&without_code(line));
                let code = line.split('`').enumerate().filter(|(i, _)| i % 2 == 1);
                page.spans.extend(code.map(|(_, span)| (index + 1, span.to_owned())));
            }
            prose.push('\n');
        }
        for (at, _) in prose.match_indices("](") {
            let target = prose[at + 2..].split(')').next().unwrap_or_default();
            let line = prose[..at].lines().count();
            page.links.push((line, target.trim().to_owned()));
        }
        page
    }
}

/// Returns a line without the text between backticks.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.filter(|(i, _)| i % 2 == 0).map(|(_, part)| part).collect()
}

/// Returns the anchor of a heading, as GitHub and mdBook make it.
pub fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}
