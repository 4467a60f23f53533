#!/usr/bin/env bash
# Checks formatting and lints: the Rust code by rustfmt and clippy, the scripts by shellcheck, and
# the newest commits' subjects. Documents and packs the crates that others may use.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

need shellcheck:shellcheck
cd "$TOP"
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
crates=(-p softring-uapi -p softring-faults -p softring-crash -p softring-host -p softring-engine)
RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --locked "${crates[@]}"
# Cargo would use an older unpacked and built package of the same version instead of this one.
rm -rf target/packages "${CARGO_HOME:-$HOME/.cargo}"/registry/{src,cache}/-*/softring-*
cargo package --quiet --allow-dirty --locked --target-dir target/packages "${crates[@]}"
rm -rf target/packages
shellcheck -x dist/*.sh ci/*.sh ci/loads/*.sh .ci/run examples/campaign/*.sh
for script in ci/*.sh ci/loads/*.sh .ci/run; do
    [ "$(head -c 2 "$script")" != '#!' ] || [ -x "$script" ] ||
        die "$script is not executable: chmod +x"
done
ci/commits.sh
