#!/usr/bin/env bash
# Formatting and lints: of the Rust code by rustfmt and clippy, of the scripts by shellcheck, and of
# the newest commits' subjects.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

need shellcheck:shellcheck
cd "$TOP"
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
shellcheck -x ci/*.sh .ci/run
for script in ci/*.sh .ci/run; do
    [ "$(head -c 2 "$script")" != '#!' ] || [ -x "$script" ] ||
        die "$script is not executable: chmod +x"
done
ci/commits.sh
