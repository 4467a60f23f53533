//! A result as JUnit XML, which CI services show: a test case for each distinct failure, or one
//! that has passed.

use super::report::{Failure, Report};
use crate::xml::escaped;
use std::fmt::Write;

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
