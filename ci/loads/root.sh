#!/usr/bin/env bash
# root.sh DIR  makes DIR a root of Debian's sid with the programs that packaged.py --root DIR runs.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/../lib.sh"

[ $# = 1 ] || die 'usage: ci/loads/root.sh DIR'
PACKAGES=qemu-utils,gcc,g++,pkgconf,qt6-base-dev,qt6-base-private-dev,libdex-dev
# A mirror may be older than this machine's clock allows.
debian_root sid "$1" --include=$PACKAGES \
    --aptopt='Acquire::Check-Valid-Until "false"'
[ -e "$1/dev/null" ] || as_root mknod -m 666 "$1/dev/null" c 1 3
