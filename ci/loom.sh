#!/usr/bin/env bash
# Has loom try every order of the steps of our protocols on shared words: the protocols in
# crates/engine/src/verify, and the worker pool as it is. docs/ORDERING.md says what they show.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$TOP"
# A target directory of its own: the flag makes all dependencies new.
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
export CARGO_TARGET_DIR RUSTFLAGS
cargo test -p softring-engine --profile quick --lib --locked -- verify:: worker::tests::model
