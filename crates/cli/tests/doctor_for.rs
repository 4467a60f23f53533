//! `softring doctor --for WHERE`: lines to copy.

mod common;

use common::{ME, library, softring, text};
use std::process::{Command, Output};

/// Runs the command with none of the variables that tell where it runs.
fn doctor(args: &[&str], set: Option<&str>) -> Output {
    let mut c = Command::new(ME);
    c.args(["doctor", "--for"]).args(args);
    for name in ["CI", "GITHUB_ACTIONS", "GITLAB_CI", "KUBERNETES_SERVICE_HOST", "INVOCATION_ID"] {
        c.env_remove(name);
    }
    c.envs(set.map(|name| (name, "1"))).output().expect("softring starts")
}

fn lines(args: &[&str]) -> String {
    let o = doctor(args, None);
    assert!(o.status.success(), "{}", text(&o.stderr));
    text(&o.stdout)
}

#[test]
fn every_environment_gets_its_lines() {
    if !library() {
        return;
    }
    for (place, line) in [
        ("docker", "docker run \\"),
        ("podman", "podman run \\"),
        ("kubernetes", "initContainers:"),
        ("systemd", "[Service]"),
        ("ci", "softring run -- COMMAND"),
    ] {
        let lines = lines(&[place]);
        assert!(lines.contains(&format!("\n{line}\n")), "{lines}");
        assert!(lines.contains("/libsoftring.so"), "{lines}");
    }
}

#[test]
fn environments_are_recognised_by_their_variables() {
    if !library() {
        return;
    }
    for (variable, place) in [("CI", "ci"), ("KUBERNETES_SERVICE_HOST", "kubernetes")] {
        let o = doctor(&[], Some(variable));
        assert_eq!(text(&o.stdout), lines(&[place]), "{}", text(&o.stderr));
    }
    let o = doctor(&[], None);
    let err = text(&o.stderr);
    // In a container without a CI's variables, files tell the place.
    assert!(o.status.success() || err.contains("name it: softring doctor --for docker"), "{err}");
}

#[test]
fn for_excludes_other_options() {
    for other in ["--json", "--iopoll"] {
        let o = softring(&["doctor", "--for", "docker", other]);
        assert_eq!(o.status.code(), Some(2));
    }
}

/// The lines for a service work in a command outside a service: the library is where they say, and
/// the variable is enough.
#[test]
fn the_named_library_exists() {
    if !library() {
        return;
    }
    let lines = lines(&["systemd"]);
    let value = lines.lines().find_map(|line| line.strip_prefix("Environment=LD_PRELOAD="));
    let mut c = Command::new(ME);
    c.args(["deny", "--", ME, "doctor", "--json"]).env("LD_PRELOAD", value.expect("a line"));
    let report = text(&c.output().unwrap().stdout);
    assert!(report.contains("works (/memfd:"), "{report}");
}
