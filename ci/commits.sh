#!/usr/bin/env bash
# Checks the subjects of the newest commits by CONTRIBUTING.md: each says what the commit does, in
# the imperative and in at most 72 characters.
set -eu
# shellcheck source=ci/lib.sh
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<END
usage: ci/commits.sh [RANGE]

  RANGE   a range of git-log(1) (default: the newest 50 commits, or all if there are fewer)
END
}

case ${1:-} in -h | --help) usage; exit 0 ;; esac
cd "$TOP"
if ! git rev-parse -q --verify HEAD >/dev/null 2>&1; then
    note 'skipped: no commits here'
    exit 0
fi

# Forms of common verbs that are no imperative: past, participle and third person.
DONE='added adding adds allowed asked asks asking became broke called changed changes changing
checked checks cleaned corrected created deleted did does dropped ended fixed fixes fixing
gave gives giving handled handles implemented implements improved improves kept keeps
keeping made makes making mended mends merged moved moves moving refactored refactors
removed removes removing renamed renames replaced replaces reworked said says saying
split-up supported supports took takes taking tested told tells updated updates updating
used uses using was were wrote writes'
# Words that no imperative begins with.
NOUNS='a an the this that what who which whether no one every each some'

FAILED=0
bad() {
    printf '%s: %s\n' "$1" "$2"
    FAILED=1
}

NOT=" $(tr '\n' ' ' <<<"$DONE $NOUNS") "
if [ $# -gt 0 ]; then range=("$1"); else range=(-n 50); fi
subjects=$(git log --no-merges --format=%s "${range[@]}" --) || die 'git log: see above'
while read -r subject; do
    [ ${#subject} -le 72 ] || bad "$subject" "${#subject} characters, at most 72"
    case $subject in *.) bad "$subject" 'a subject has no full stop' ;; esac
    # The verb follows the part that the commit is about, if the subject names one: "ci: ".
    said=${subject#*: }
    first=${said%% *} first=${first,,}
    case $NOT in
        *" $first "*) bad "$subject" "\"$first\" is no imperative" ;;
    esac
done <<<"$subjects"
exit $FAILED
