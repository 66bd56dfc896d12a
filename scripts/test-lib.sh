# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the parts of `make test` share. Source it after lib.sh; test.sh sets PART,
# RESULTS (one "pass|fail|skip<TAB>name<TAB>why" a line) and DETAILS (what failed
# tests printed), and adds everything up.

: "${PART:?is set by test.sh}" "${RESULTS:?}" "${DETAILS:?}"

result() { printf '%s\t%s: %s\t%s\n' "$1" "$PART" "$2" "${3:-}" >>"$RESULTS"; }
pass() { result pass "$1"; }
skip() { result skip "$1" "$2"; }

# fail NAME WHY [LOG] : the end of LOG is shown with it.
fail() {
	result fail "$1" "$2"
	{
		printf -- '--- %s: %s: %s\n' "$PART" "$1" "$2"
		[ -z "${3:-}" ] || { tail -n 40 "$3" && printf 'full log: %s\n' "$3"; }
	} >>"$DETAILS"
}

# log_of NAME : the log of the test of that name.
log_of() { echo "$LOGS/$PART-$(tr -c 'a-zA-Z0-9\n' '-' <<<"$1").log"; }

# check NAME COMMAND... : a test that passes if COMMAND does. The log is $LOG.
check() {
	local name=$1 started=$SECONDS rc=0
	shift
	LOG=$(log_of "$name")
	say "$PART: $name"
	"$@" >"$LOG" 2>&1 </dev/null || rc=$?
	if [ "$rc" = 0 ]; then
		pass "$name"
	else
		fail "$name" "exit code $rc after $((SECONDS - started)) s" "$LOG"
	fi
}

# follow LOG PATTERN COMMAND... : runs COMMAND, and shows the lines that match of what
# LOG gets meanwhile.
follow() {
	local log=$1 pattern=$2 pid rc=0
	shift 2
	: >"$log"
	tail -n +1 -f "$log" > >(grep -aE --line-buffered -- "$pattern" >&2) 2>/dev/null &
	pid=$!
	"$@" || rc=$?
	kill "$pid"
	return "$rc"
}

# guest KERNEL-LOG BOOT-ARGUMENT... : boots; once more where two emulated processors
# disagreed about patched kernel text. Seen with static keys of the stock kernel alone.
guest() {
	local log=$1 rc=0
	shift
	"$TOP/scripts/boot.sh" --quiet --log "$log" "$@" || rc=$?
	if grep -q 'Oops: int3' "$log"; then
		say "$PART: the emulated processors disagreed about patched kernel text; once more"
		rc=0
		"$TOP/scripts/boot.sh" --quiet --log "$log" "$@" || rc=$?
	fi
	return "$rc"
}

# ktap FILE PREFIX : counts the tests that FILE reports.
ktap() {
	local n before
	before=$(wc -l <"$RESULTS")
	awk -v prefix="$PART: $2" -v details="$DETAILS.ktap" -f "$TOP/scripts/ktap.awk" "$1" >>"$RESULTS"
	[ ! -e "$DETAILS.ktap" ] || cat "$DETAILS.ktap" >>"$DETAILS"
	rm -f "$DETAILS.ktap"
	n=$(($(wc -l <"$RESULTS") - before))
	say "$PART: $2$n results in $1"
}
