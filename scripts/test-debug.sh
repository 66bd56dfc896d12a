#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-debug.sh: everything that runs in the guest, on the kernel that looks for
# mistakes (config/debug.config), and what takes too long elsewhere: a million
# samples while files and mappings change, and a million calls at random. Run by
# test.sh; no part of `make test`.
#
# Whatever the kernel reports fails the run that it came in: boot.sh says so, with
# the report. So does what kmemleak finds when a command has ended.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

export BID_FLAVOUR=debug BID_SLOWER=${BID_SLOWER:-10} BID_MEM=${BID_MEM:-3072}
# An emulated processor that does not get to run for 20 s has not locked up.
export BID_APPEND=sysctl.kernel.watchdog_thresh=60
SAMPLES=${BID_SAMPLES:-1000000}
CALLS=${BID_CALLS:-1000000}

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
kernel=$("$TOP/scripts/kernel.sh" build)
"$TOP/scripts/programs.sh" selftests "$kernel" "$share/kselftest"

# alone NAME PROGRAM LIMIT VARIABLE=VALUE BOOT-ARGUMENT... : shows its figures.
alone() {
	local name=$1 program=$2 limit=$3 setting=$4 LOG=''
	shift 4
	check "$name" guest "$LOGS/debug-$program-kernel.log" --share "$share" --timeout "$limit" "$@" -- \
		env -C /mnt/host/kselftest/perf_events "$setting" "./$program"
	grep -aE '^# bid_' "$LOG" >&2 || true
}

"$TOP/scripts/test-kunit.sh"
"$TOP/scripts/test-selftests.sh"
"$TOP/scripts/test-oracle.sh"
alone "$SAMPLES samples while mappings change" bid_torture 400 "BID_SAMPLES=$SAMPLES"
# One processor gets through several times as many calls as two by turns.
alone "$((CALLS / 10)) calls at random on two processors" bid_fuzz 400 "BID_CALLS=$((CALLS / 10))" --one-thread
alone "$CALLS calls at random" bid_fuzz 800 "BID_CALLS=$CALLS" --cpus 1
