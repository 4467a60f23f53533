#!/bin/sh
# Makes libsoftring.a for programs of the archive that cargo has built: one object, which defines
# nothing but the functions of softring.h, so that it collides with nothing in a program, be that
# written in Rust as well. docs/ARCHITECTURE.md ("Built in") says why.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: dist/archive.sh FROM TO" >&2
    exit 2
fi
from=$1 to=$2
AS=${AS:-as} LD=${LD:-ld} OBJCOPY=${OBJCOPY:-objcopy} AR=${AR:-ar}
work=$(mktemp -d "${TMPDIR:-/tmp}/softring-archive.XXXXXX")
trap 'rm -rf "$work"' EXIT

names='setup enter register version
    meter_create meter_begin meter_end meter_read meter_destroy'

# Our text gets a section of its own, whose ends the final linker tells. The shared library's start
# and end are left out, and so is what only compilers read.
cat >"$work/sections" <<EOF
SECTIONS
{
    .text : { KEEP(*(.softring_site)) }
    softring_text : { *(.text .text.*) }
    .rodata : { *(.rodata .rodata.*) }
    .data.rel.ro : { *(.data.rel.ro .data.rel.ro.*) }
    .data : { *(.data .data.*) }
    .eh_frame : { KEEP(*(.eh_frame)) }
    .bss : { *(.bss .bss.* COMMON) }
    .note.softring : { KEEP(*(.note.softring)) }
    /DISCARD/ : {
        *(.init_array .init_array.* .fini_array .fini_array.*)
        *(.llvmbc .llvmcmd .comment .note.GNU-stack)
    }
}
EOF
# A note leads other copies of the library to that text.
"$AS" -o "$work/note.o" <<EOF
.section .note.softring, "a", @note
.balign 4
.long 9, 8, 1
.asciz "softring"
.balign 4
.long __start_softring_text - .
.long __stop_softring_text - .
.section .note.GNU-stack, "", @progbits
EOF
roots=--undefined=softring_begin
for name in $names; do
    roots="$roots --undefined=softring_$name"
    echo "softring_$name" >>"$work/kept"
done
echo softring_install >>"$work/kept"
# shellcheck disable=SC2086 # words, each without a blank
"$LD" -r --strip-debug --gc-sections --force-group-allocation $roots --script="$work/sections" \
    -o "$work/linked.o" --whole-archive "$work/note.o" "$from"

# Names of the C library that calls taken at their instructions have no need of: what a program
# happens to be linked with must make no difference.
for name in __libc_current_sigrtmin dlsym exit getauxval pause pthread_attr_destroy \
    pthread_attr_init pthread_attr_setdetachstate pthread_attr_setstacksize pthread_create \
    pthread_join pthread_key_create pthread_key_delete pthread_setspecific; do
    echo "$name softring_without_$name" >>"$work/renamed"
done
# The program does not export our functions, whatever it is linked with (-rdynamic): a copy that
# softring run brings would take the calls by name for another copy's.
echo softring_begin softring_own_install >>"$work/renamed"
for name in install $names; do
    [ "$name" = install ] || echo "softring_$name softring_own_$name" >>"$work/renamed"
    printf '.globl softring_%s\n.hidden softring_%s\n.type softring_%s,@function\n' \
        "$name" "$name" "$name"
    printf 'softring_%s: jmp softring_own_%s\n' "$name" "$name"
done >"$work/names.s"
echo '.section .note.GNU-stack, "", @progbits' >>"$work/names.s"
"$AS" -o "$work/names.o" "$work/names.s"
"$OBJCOPY" --redefine-syms="$work/renamed" --add-section=.note.GNU-stack=/dev/null \
    --set-section-flags=.note.GNU-stack=readonly "$work/linked.o" "$work/renamed.o"
"$LD" -r -o "$work/named.o" "$work/renamed.o" "$work/names.o"
"$OBJCOPY" --keep-global-symbols="$work/kept" "$work/named.o" "$work/softring.o"
rm -f "$to"
"$AR" rcD "$to" "$work/softring.o"
