#!/usr/bin/env bash
# Formatting and lints: of the Rust code by rustfmt and clippy, of the scripts by shellcheck, and of
# the newest commits' subjects. The crates that others may use are documented and packed.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

need shellcheck:shellcheck
cd "$TOP"
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
crates=(-p softring-uapi -p softring-host -p softring-engine)
RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --locked "${crates[@]}"
# Cargo would take what it has unpacked and built of a version before for what is packed now.
rm -rf target/packages "${CARGO_HOME:-$HOME/.cargo}"/registry/{src,cache}/-*/softring-*
cargo package --quiet --allow-dirty --locked --target-dir target/packages "${crates[@]}"
rm -rf target/packages
shellcheck -x ci/*.sh .ci/run
for script in ci/*.sh .ci/run; do
    [ "$(head -c 2 "$script")" != '#!' ] || [ -x "$script" ] ||
        die "$script is not executable: chmod +x"
done
ci/commits.sh
