//! The manual pages: what clap knows of the command line, and the sections that clap does not know.

mod markup;

use clap::Command;
use clap_mangen::Man;
use std::io::Write;
use std::path::Path;
use std::{fs, io};

/// Sections of the pages. `@ PAGE…` names the pages that the sections below it belong to, by the
/// words behind `softring`.
const SECTIONS: &str = include_str!("sections.txt");
const OVERVIEW: &str = include_str!("softring.7.txt");
/// Order of the sections of `sections.txt` in a page.
const ORDER: [&str; 5] = ["EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"];

/// Writes a page for the command and each of its subcommands that is not hidden, and `softring.7`.
///
/// # Errors
/// Those of writing.
pub fn write(cli: Command, dir: &Path) -> io::Result<()> {
    let mut cli = cli.disable_help_subcommand(true);
    cli.build();
    pages(&cli, "softring", dir)?;
    let overview = format!("{}{}", head("softring", "7", "Overview"), markup::roff(OVERVIEW));
    fs::write(dir.join("softring.7"), overview)
}

fn pages(command: &Command, name: &str, dir: &Path) -> io::Result<()> {
    fs::write(dir.join(format!("{name}.1")), page(command, name)?)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages(sub, &format!("{name}-{}", sub.get_name()), dir)?;
    }
    Ok(())
}

fn head(name: &str, section: &str, manual: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let title = markup::escape(&name.to_uppercase());
    format!(".TH \"{title}\" \"{section}\" \"\" \"softring {version}\" \"{manual}\"\n")
}

fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let mut page = head(name, "1", "User Commands").into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if let Some(notes) = command.get_after_help() {
        let notes = notes.to_string();
        page.write_all(markup::roff(&examples_indented(&notes)).as_bytes())?;
    }
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    for title in ORDER {
        for section in sections(name, title) {
            page.write_all(markup::roff(&section).as_bytes())?;
        }
    }
    Ok(page)
}

/// Indents paragraphs of command lines in a help text, as examples.
fn examples_indented(notes: &str) -> String {
    let is_commands =
        |block: &str| block.lines().all(|l| l.starts_with("softring ") || l.starts_with("eval "));
    let each = notes.split("\n\n").map(|block| match is_commands(block) {
        true => block.lines().map(|line| format!("    {line}\n")).collect::<String>(),
        false => block.to_owned(),
    });
    each.collect::<Vec<_>>().join("\n\n")
}

/// Returns the sections with this title that belong to a page.
fn sections(name: &str, title: &str) -> Vec<String> {
    let page = name.strip_prefix("softring").unwrap_or(name).trim_start_matches('-');
    let page = if page.is_empty() { "softring" } else { page };
    let mut found = Vec::new();
    for group in SECTIONS.strip_prefix("@ ").unwrap_or_default().split("\n@ ") {
        let (pages, text) = group.split_once('\n').unwrap_or((group, ""));
        if !pages.split_whitespace().any(|p| p == page || p == "*") {
            continue;
        }
        let all = text.strip_prefix("# ").unwrap_or_default().split("\n# ");
        let wanted = all.filter(|section| section.lines().next() == Some(title));
        found.extend(wanted.map(|section| format!("# {}\n", section.trim_end())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn every_page_has_its_sections() {
        let dir = tempfile::tempdir().unwrap();
        write(Cli::command(), dir.path()).unwrap();
        let mut pages = 0;
        for entry in fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let mut wanted = vec!["NAME", "DESCRIPTION", "ENVIRONMENT", "FILES", "SEE ALSO"];
            if path.extension().is_some_and(|section| section == "1") {
                wanted.extend(["SYNOPSIS", "OPTIONS", "EXIT STATUS", "EXAMPLES"]);
                pages += 1;
            }
            for title in wanted {
                let heads = [format!(".SH {title}\n"), format!(".SH \"{title}\"\n")];
                let found: usize =
                    heads.iter().map(|head| text.matches(head.as_str()).count()).sum();
                assert_eq!(found, 1, "{title} in {}", path.display());
            }
        }
        assert!(pages > 10 && dir.path().join("softring.7").exists());
    }

    #[test]
    fn every_section_is_in_the_order() {
        let titles = SECTIONS.lines().filter_map(|line| line.strip_prefix("# "));
        titles.for_each(|title| assert!(ORDER.contains(&title), "{title}"));
    }
}
