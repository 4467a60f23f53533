#!/usr/bin/env bash
# Checks that the five commands of README.md lead to fio with rings in a container of the default
# profile: runs them as they are, in a clean Debian 12 root with Podman and the .deb. Needs root
# rights.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<EOF
usage: ci/first-commands.sh [--dist DIR]
  --dist DIR  folder of the packages from ci/package.sh (default: dist/out)
EOF
}

packed "$@"
scratch first-commands
ROOT=$SCRATCH/root

# host COMMAND…  runs a command in the root, as on a machine of its own: pivot_root(2), which makes
# containers, works only from a mount. The root has no umount(8), but its libraries.
host() {
    # shellcheck disable=SC2016  # the inner shell expands these
    unshare --mount --pid --fork sh -c '
        mount --bind "$0" "$0" && cd "$0" && mount -t proc proc proc && mount --rbind /dev dev &&
        mount --rbind /sys sys && mount -t tmpfs tmpfs run && mkdir -p .outside &&
        pivot_root . .outside && /.outside/bin/umount -l /.outside &&
        cd / && exec "$@"' "$ROOT" "$@"
}

debian_root bookworm "$ROOT" --include=podman,runc
mkdir -p "$ROOT/etc/containers"
podman_config >"$ROOT/etc/containers/containers.conf"
debian_root bookworm "$SCRATCH/image" --include=fio
tar -C "$SCRATCH/image" -cf "$ROOT/image.tar" .
rm -rf "$SCRATCH/image"
host podman import -q --change ENV=PATH=/usr/bin:/bin /image.tar localhost/fio >/dev/null
rm "$ROOT/image.tar"
cp "$DIST"/*.deb "$ROOT/"

COMMANDS=$(awk '/^<!-- first commands/ { on = 1 } on && /^```/ { if (++marks == 2) exit; next }
    on && marks { print }' "$TOP/README.md")
[ -n "$COMMANDS" ] || die 'README.md has no block of first commands'
[ "$(wc -l <<<"$COMMANDS")" -le 5 ] || die 'more than five commands'
{
    printf 'export IMAGE=localhost/fio\n'
    number=0
    while read -r line; do
        number=$((number + 1))
        printf '%s >/log.%d 2>&1; echo $? >/rc.%d\n' "$line" $number $number
    done <<<"$COMMANDS"
} >"$ROOT/commands"
host sh /commands
number=0
while read -r line; do
    number=$((number + 1))
    rc=$(cat "$ROOT/rc.$number")
    printf '%s\n    ends with %d\n' "$line" "$rc"
    # The second command shows the failure without softring.
    if [ $number = 2 ]; then
        [ "$rc" != 0 ] &&
            grep -qE 'Operation not permitted|Function not implemented' "$ROOT/log.$number"
    else
        [ "$rc" = 0 ]
    fi || die "not as README.md says: $(tail -n 5 "$ROOT/log.$number")"
done <<<"$COMMANDS"
grep -q 'err= 0' "$ROOT/log.$number" || die "fio: $(tail -n 20 "$ROOT/log.$number")"
echo "$number commands lead to fio with rings"
