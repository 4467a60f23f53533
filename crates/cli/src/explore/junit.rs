//! A result as JUnit XML, which CI services show: a test case for each distinct failure, or one
//! that has passed.

use super::report::{Failure, Report};
use std::fmt::Write;

/// Escapes a text for XML. Characters that XML cannot have are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

fn case(name: &str, class: &str, failure: &Failure) -> String {
    let Failure { ending, message, seeds, replay, in_flight, .. } = failure;
    let mut text = format!("{message}\n\n{} seeds fail, one of them by\n{replay}\n", seeds.len());
    for line in in_flight {
        let _ = writeln!(text, "in flight: {line}");
    }
    format!(
        "    <testcase name=\"{}\" classname=\"{}\">\n      <failure message=\"{}\" type=\"{}\">{}\
         </failure>\n    </testcase>\n",
        escaped(name),
        escaped(class),
        escaped(message),
        escaped(&ending.to_string()),
        escaped(&text)
    )
}

pub fn xml(report: &Report) -> String {
    let class = format!("softring explore {}", report.command.join(" "));
    let cases: String = if report.failures.is_empty() {
        let name = format!("seeds {}, {}", report.seeds, report.faults);
        let (name, class) = (escaped(&name), escaped(&class));
        format!("    <testcase name=\"{name}\" classname=\"{class}\"/>\n")
    } else {
        let each = report.failures.iter().map(|failure| {
            let name = format!("{}: {}", failure.ending, failure.pattern);
            let sites = failure.sites.join(", ");
            let name = if sites.is_empty() { name } else { format!("{name} ({sites})") };
            case(&name, &class, failure)
        });
        each.collect()
    };
    let (tests, failures) = (report.failures.len().max(1), report.failures.len());
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" \
         tests=\"{tests}\" failures=\"{failures}\" time=\"{:.3}\">\n{cases}  </testsuite>\n\
         </testsuites>\n",
        escaped(&class),
        report.seconds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b & \"c\" > \x1b\n"), "a&lt;b &amp; &quot;c&quot; &gt; ?\n");
    }
}
