//! The commands of `examples/campaign`, run as they are but for the number of seeds, with the
//! variables that each engine sets.

mod common;

use common::{ME, library, text};
use serde_json::Value;
use softring_testing::skipped;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Number of shares in the test.
const SHARES: u64 = 4;

fn example(name: &str) -> String {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/campaign").join(name);
    fs::read_to_string(&at).unwrap_or_else(|e| panic!("{}: {e}", at.display()))
}

/// Returns the literal blocks (`|`) of a YAML file that run softring, without their indentation.
fn blocks(yaml: &str) -> Vec<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    let mut lines = yaml.lines().peekable();
    while let Some(line) = lines.next() {
        if !line.trim_end().ends_with('|') {
            continue;
        }
        let inner = lines.peek().map_or(0, |next| indent(next));
        let mut block = String::new();
        while let Some(next) = lines.next_if(|next| next.trim().is_empty() || indent(next) >= inner)
        {
            block.push_str(next.get(inner..).unwrap_or_default());
            block.push('\n');
        }
        if block.contains("softring explore") {
            found.push(block);
        }
    }
    found
}

/// A folder with a program that fails for two seeds of 40, and softring in PATH.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for folder in ["fixtures", "campaign", "bin"] {
            fs::create_dir(at(folder)).unwrap();
        }
        let program = "#!/bin/sh\ncase $SOFTRING_SEED in 11|30) echo bad >&2; exit 1;; esac\n";
        fs::write(at("program"), program).unwrap();
        fs::set_permissions(at("program"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(ME, at("bin/softring")).unwrap();
        let agent = "#!/bin/sh\nexit 0\n";
        fs::write(at("bin/buildkite-agent"), agent).unwrap();
        fs::set_permissions(at("bin/buildkite-agent"), fs::Permissions::from_mode(0o755)).unwrap();
        Place(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a script with fewer seeds and shares, and no faults.
    fn run(&self, script: &str, variables: &[(&str, u64)]) -> Output {
        let top = self.0.path().display().to_string();
        let script = script
            .replace("explore --seeds 0..20000", "explore --faults none --seeds 0..40")
            .replace("auto/20", &format!("auto/{SHARES}"))
            .replace("%g 20 ", &format!("%g {SHARES} "))
            .replace("$$", "$")
            .replace("/fixtures", &format!("{top}/fixtures"))
            .replace("/campaign/", &format!("{top}/campaign/"));
        let path = format!("{top}/bin:{}", std::env::var("PATH").unwrap());
        let mut c = Command::new("sh");
        c.args(["-e", "-c", &script]).current_dir(&top).env("PATH", path);
        c.envs(variables.iter().map(|(name, value)| (name, value.to_string())));
        c.output().unwrap()
    }

    /// Checks that the shares' results have all seeds, and what fails.
    fn check(&self, pattern: &str) {
        let merge = format!("softring explore merge --json all.json {pattern}");
        let o = self.run(&merge, &[]);
        assert_eq!((o.status.code(), text(&o.stderr).as_str()), (Some(1), ""), "{pattern}");
        let all: Value = serde_json::from_slice(&fs::read(self.at("all.json")).unwrap()).unwrap();
        assert_eq!(all["runs"], 40, "{all}");
        assert_eq!(all["failures"][0]["seeds"].to_string(), "[11,30]", "{all}");
    }
}

/// Runs a script once for each share.
fn shares(place: &Place, script: &str, variables: impl Fn(u64) -> Vec<(&'static str, u64)>) {
    for n in 0..SHARES {
        let o = place.run(script, &variables(n));
        assert!(o.status.success(), "{n}: {}{}", text(&o.stdout), text(&o.stderr));
    }
}

#[test]
fn kubernetes_indexed_job() {
    if !library() {
        return;
    }
    let place = Place::new();
    let blocks = blocks(&example("kubernetes.yaml"));
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    shares(&place, &blocks[0], |n| vec![("JOB_COMPLETION_INDEX", n)]);
    place.check("campaign/*.json");
}

#[test]
fn slurm_array() {
    if !library() {
        return;
    }
    let place = Place::new();
    shares(&place, &example("slurm.sh"), |n| {
        let (id, least) = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN");
        vec![(id, n + 1), (least, 1), ("SLURM_ARRAY_TASK_COUNT", SHARES)]
    });
    place.check("campaign-*.json");
}

#[test]
fn gnu_parallel() {
    if !library() {
        return;
    }
    let there = Command::new("parallel").arg("--version").output();
    if !there.is_ok_and(|o| text(&o.stdout).starts_with("GNU parallel")) {
        skipped!("GNU parallel is not installed");
        return;
    }
    let place = Place::new();
    let o = place.run(&example("parallel.sh"), &[]);
    // The merge tells that there are failures.
    assert_eq!(o.status.code(), Some(1), "{}{}", text(&o.stdout), text(&o.stderr));
    assert!(text(&o.stdout).contains("40 runs"), "{}", text(&o.stdout));
    place.check("campaign-*.json");
}

#[test]
fn buildkite_parallel_jobs() {
    if !library() {
        return;
    }
    let place = Place::new();
    let blocks = blocks(&example("buildkite.yml"));
    assert_eq!(blocks.len(), 2, "{blocks:?}");
    shares(&place, &blocks[0], |n| {
        vec![("BUILDKITE_PARALLEL_JOB", n), ("BUILDKITE_PARALLEL_JOB_COUNT", SHARES)]
    });
    place.check("campaign-*.json");
    let o = place.run(&blocks[1], &[]);
    assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
    assert!(fs::read_to_string(place.at("campaign.xml")).unwrap().contains("failures=\"1\""));
}

#[test]
fn github_matrix() {
    if !library() {
        return;
    }
    let place = Place::new();
    let yaml = example("github-actions.yml");
    let blocks = blocks(&yaml);
    assert_eq!(blocks.len(), 2, "{blocks:?}");
    // The variables are of the expressions that they say.
    for line in ["INDEX: ${{ strategy.job-index }}", "COUNT: ${{ strategy.job-total }}"] {
        assert!(yaml.contains(&format!("SOFTRING_SHARD_{line}")), "{line}");
    }
    shares(&place, &blocks[0], |n| {
        vec![("SOFTRING_SHARD_INDEX", n), ("SOFTRING_SHARD_COUNT", SHARES)]
    });
    place.check("campaign-*.json");
    let o = place.run(&blocks[1], &[]);
    assert_eq!(o.status.code(), Some(1), "{}", text(&o.stderr));
}
