# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Shared by every script here: messages, the cache, locks, logged steps and
# the way into the root file system. Source it; it runs nothing by itself.

set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${BID_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/perf-build-id-offset}
# Each checkout has logs of its own: some are read again.
LOGS=$CACHE/logs/${TOP##*/}-$(printf '%s' "$TOP" | sha256sum | cut -c1-8)
LOCKS=$CACHE/locks
JOBS=${JOBS:-$(nproc)}
# A kernel of another flavour (config/$BID_FLAVOUR.config), how many times as long
# it may take, and how much memory it has.
export BID_FLAVOUR BID_SLOWER BID_MEM
mkdir -p "$LOGS" "$LOCKS"

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# key FILE... : a short name for the content of the files (names, modes and bytes).
key() {
	local f
	for f in "$@"; do
		printf '%s %s\n' "$([ -x "$f" ] && echo x || echo -)" "${f#"$TOP"/}"
		cat -- "$f"
	done | sha256sum | cut -c1-16
}

# need COMMAND PACKAGE : installs PACKAGE where COMMAND is missing and apt is there.
need() {
	command -v "$1" >/dev/null 2>&1 && return
	[ "$(id -u)" = 0 ] || die "'$1' is missing and installing '$2' needs root"
	command -v apt-get >/dev/null 2>&1 || die "'$1' is missing; install '$2' (this is no apt machine)"
	say "installing $2"
	local log=$LOGS/apt-$2.log
	if ! { apt-get update && DEBIAN_FRONTEND=noninteractive \
		apt-get install -y --no-install-recommends "$2"; } >"$log" 2>&1; then
		fail_log "installing $2" "$log"
	fi
}

# fail_log WHAT LOG : the first error line of LOG, its name, and out.
fail_log() {
	local line
	line=$(grep -a -m1 -nE '(^E: |[Ee]rror[:[ ]|fatal:|FAILED|panicked|Kernel panic|\*\*\* |No such file|cannot |Assertion)' "$2" ||
		tail -n 1 "$2")
	printf 'error: %s failed\n  first error: %s\n  full log:    %s\n' "$1" "$line" "$2" >&2
	exit 1
}

# locked NAME COMMAND... : runs COMMAND while no other checkout holds NAME.
locked() {
	local name=$1 fd
	shift
	exec {fd}>"$LOCKS/$name"
	if ! flock -n "$fd"; then
		say "waiting for another run that holds '$name'"
		flock "$fd"
	fi
	"$@"
	exec {fd}>&-
}

# step TITLE LOG COMMAND... : runs COMMAND into LOG and shows how far it is. The
# number of log lines of the last run that succeeded says how far; without one
# the elapsed time is all that is shown.
step() {
	local title=$1 log=$2 pid rc=0 lines total shown started=$SECONDS last=0
	local memo
	memo=$LOGS/lines-$(printf '%s' "$title" | tr -c 'a-zA-Z0-9' '-')
	shift 2
	total=$(cat "$memo" 2>/dev/null || echo 0)
	[[ $title != re* ]] || total=0
	[ -t 2 ] || say "$title"
	: >"$log"
	# A process group of its own: an interrupted run takes all of it along.
	set -m
	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	# shellcheck disable=SC2064
	trap "kill -- -$pid 2>/dev/null; exit 130" INT TERM
	while kill -0 "$pid" 2>/dev/null; do
		sleep 0.5
		lines=$(wc -l <"$log")
		shown=
		[ "$total" -gt 0 ] && shown=$(printf '%3d %% ' $((lines >= total ? 99 : lines * 100 / total)))
		if [ -t 2 ]; then
			printf '\r==> %s … %s%d s\033[K' "$title" "$shown" $((SECONDS - started)) >&2
		elif [ $((SECONDS - last)) -ge 30 ] && [ $((SECONDS - started)) -ge 20 ]; then
			last=$SECONDS
			printf '    %s … %s%d s: %s\n' "$title" "$shown" $((SECONDS - started)) \
				"$(tail -n 1 "$log" | cut -c1-70)" >&2
		fi
	done
	wait "$pid" || rc=$?
	trap - INT TERM
	[ -t 2 ] && printf '\r\033[K' >&2
	[ "$rc" = 0 ] || fail_log "$title" "$log"
	wc -l <"$log" >"$memo"
	say "$title: done in $((SECONDS - started)) s"
}

# A directory appears under its final name only when it is complete.
# build_dir DIR COMMAND... : runs COMMAND with DIR.tmp.PID as its last argument.
build_dir() {
	local dir=$1 tmp=$1.tmp.$$
	shift
	[ -e "$dir" ] && return
	rm -rf --one-file-system "$dir".tmp.*
	mkdir -p "$tmp"
	"$@" "$tmp"
	mv -T "$tmp" "$dir"
}
