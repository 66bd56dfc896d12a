#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test.sh: runs parts of the tests and adds them up.
#
#   test.sh [host|static|kunit|selftests|oracle|differential|record|fuzz]...      without any: all of them
#
# The last line is "N passed, N failed, N skipped". The exit code says whether
# anything failed; a run without a single test failed, too.

. "$(dirname "$0")/lib.sh"

[ $# -gt 0 ] || set -- host static kunit selftests oracle differential record fuzz

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
export RESULTS=$scratch/results DETAILS=$scratch/details PART
: >"$RESULTS"
: >"$DETAILS"

run_part() {
	local script=$TOP/scripts/test-$PART.sh before rc=0
	[ -x "$script" ] || die "test.sh: no such part: $PART"
	before=$(wc -l <"$RESULTS")
	"$script" || rc=$?
	[ "$rc" = 0 ] || printf 'fail\t%s: (part)\tit stopped with exit code %s\n' "$PART" "$rc" >>"$RESULTS"
	[ "$(wc -l <"$RESULTS")" -gt "$before" ] ||
		printf 'fail\t%s: (part)\tit ran no test\n' "$PART" >>"$RESULTS"
}

for PART in "$@"; do
	started=$SECONDS
	say "test-$PART"
	run_part
	say "test-$PART: done in $((SECONDS - started)) s"
done

# Nothing gets lost: a line that is none of the three is a failure.
grep -vE '^(pass|fail|skip)	' "$RESULTS" | sed 's/^/fail	a result that cannot be read: /; s/$/	/' >"$scratch/odd" || true
cat "$scratch/odd" >>"$RESULTS"

count() { grep -c "^$1	" "$RESULTS" || true; }
list() { sed -n "s/^$1	\([^	]*\)	\(.*\)/  \1: \2/p" "$RESULTS" | sed 's/: $//'; }

passed=$(count pass) failed=$(count fail) skipped=$(count skip)
if [ "$skipped" -gt 0 ]; then
	printf '\nskipped:\n'
	list skip
fi
if [ "$failed" -gt 0 ]; then
	[ ! -s "$DETAILS" ] || { echo && cat "$DETAILS"; }
	printf '\nfailed:\n'
	list fail
fi
printf '\n%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
