#!/usr/bin/env bash
# Formatting and lints: of the Rust code by rustfmt and clippy, of the scripts by bash itself.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

cd "$TOP"
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
for script in ci/*.sh .ci/run; do
    bash -n "$script"
    [ "$script" = ci/lib.sh ] || [ -x "$script" ] || die "$script is not executable: chmod +x"
done
