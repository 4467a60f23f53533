//! Test that `docs/SUPPORT.md` agrees with the engine's tables. With `WRITE_SUPPORT=1` (`make
//! support`) the file is written anew.

use std::path::Path;

#[test]
fn support_md_is_fresh() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("one level below the top");
    let path = top.join("docs/SUPPORT.md");
    let want = softring_conformance::support::markdown();
    if std::env::var_os("WRITE_SUPPORT").is_some() {
        std::fs::write(&path, &want).expect("docs can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == want, "docs/SUPPORT.md is stale: run `make support`, and commit it");
}

#[test]
fn partial_features_name_their_case() {
    let text = softring_conformance::support::markdown();
    for row in text.lines().filter(|l| l.contains("| partly")) {
        let told =
            row.contains("partly (`") || row.contains("only timing could show the difference");
        assert!(told, "no case shows how it differs: add one, and its row in known.rs: {row}");
    }
}
