#!/usr/bin/env bash
# Checks that the files of `make install` work from where it puts them: the command finds its
# library, the manual pages and the completions are there, and pkg-config builds a C program. `make
# uninstall` removes all of them.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/install.sh
EOF
}

case ${1:-} in
    '') ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
need make:make cc:gcc pkg-config:pkg-config readelf:binutils groff:groff-base
scratch install
PREFIX=$SCRATCH/usr
make -s -C "$TOP" install PREFIX="$PREFIX"

# The files are stripped: nothing for a debugger is left.
for file in bin/softring lib/libsoftring.so; do
    ! readelf -SW "$PREFIX/$file" | grep -qE ' \.(symtab|debug_)' || die "$file is not stripped"
done

# The library is in every process, and the command goes into images.
small() {
    [ "$(stat -c %s "$PREFIX/$1")" -lt "$2" ] || die "$1 has $2 bytes or more"
}
small lib/libsoftring.so 2000000
small bin/softring 8000000
# What a program of a few KiB becomes when it brings softring along.
small lib/libsoftring.a 3200000

# The command runs with its own library where io_uring is denied.
PATH=$PREFIX/bin:$PATH
[ "$(command -v softring)" = "$PREFIX/bin/softring" ] || die "the command is not in $PREFIX/bin"
softring run --deny -- softring bench --op nop --engines softring --pairs 1 --seconds 0.1 >/dev/null
for file in man/man1/softring.1 man/man1/softring-run.1 man/man7/softring.7 \
    zsh/site-functions/_softring bash-completion/completions/softring \
    fish/vendor_completions.d/softring.fish; do
    [ -s "$PREFIX/share/$file" ] || die "share/$file was not installed"
done
for page in "$PREFIX"/share/man/man[17]/*; do
    complaints=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
    [ -z "$complaints" ] || die "$page: $complaints"
done

# A program is linked with the library, as the header and softring.pc say.
export PKG_CONFIG_PATH=$PREFIX/lib/pkgconfig LD_LIBRARY_PATH=$PREFIX/lib
version=$(pkg-config --modversion softring)
built=$(softring --version)
[[ "$built" = "softring $version"* ]] || die "softring.pc is of version $version, not $built"
# A build from a clone names its commit; a build from other sources need not.
if commit=$(git -C "$TOP" log -1 --format='%h' --abbrev=8 2>/dev/null); then
    [[ "$built" =~ \($commit\ [0-9]{4}-[0-9]{2}-[0-9]{2}\)$ ]] ||
        die "softring --version says $built, and not that it is of commit $commit"
fi
read -ra flags <<<"$(pkg-config --cflags --libs softring)"
cc -Wall -Werror -o "$SCRATCH/poll-loop" "$TOP/examples/poll-loop.c" "${flags[@]}"
"$SCRATCH/poll-loop" 50 3 >/dev/null &
sleep 1
softring metrics -p $! --json | grep -q poll-loop || die "the meter of poll-loop is not to be seen"
wait $!

# So is a static program, which then needs neither the library nor the command.
read -ra flags <<<"$(pkg-config --static --cflags --libs softring)"
cat >"$SCRATCH/begin.c" <<'EOF'
#include <softring.h>
static void __attribute__((constructor)) begin(void) { softring_install(0); }
EOF
cc -w -Wno-psabi -static -o "$SCRATCH/static" "$TOP/crates/cli/tests/common/static.c" \
    "$SCRATCH/begin.c" "${flags[@]}"
softring deny -- "$SCRATCH/static" <"$SCRATCH/begin.c" >"$SCRATCH/copied" 2>"$SCRATCH/said" ||
    die "a static program with libsoftring.a has no ring: $(cat "$SCRATCH/said")"
grep -q 'runs in user space' "$SCRATCH/said" || die "its ring is not softring's"
tail -n 2 "$SCRATCH/copied" | cmp -s - "$SCRATCH/begin.c" || die "its requests go wrong"

# A packager installs files under DESTDIR, not where they are used.
make -s -C "$TOP" install DESTDIR="$SCRATCH/package" PREFIX=/opt/softring
grep -qx 'prefix=/opt/softring' "$SCRATCH/package/opt/softring/lib/pkgconfig/softring.pc" ||
    die "softring.pc names the place of packaging"
count=$(cd "$PREFIX" && find . -type f | wc -l)
bytes=$(cat "$PREFIX"/bin/softring "$PREFIX"/lib/libsoftring.so | wc -c)

make -s -C "$TOP" uninstall PREFIX="$PREFIX"
make -s -C "$TOP" uninstall DESTDIR="$SCRATCH/package" PREFIX=/opt/softring
left=$(find "$PREFIX" "$SCRATCH/package" ! -type d)
[ -z "$left" ] || die "make uninstall has left $left"
[ ! -e "$PREFIX/share/softring" ] || die "make uninstall has left a folder of softring's own"
echo "installed, found, used and removed: $count files, the two binaries of $bytes bytes"
