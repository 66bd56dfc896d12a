#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-debug.sh: everything that runs in the guest, on the kernel that looks for
# mistakes (config/debug.config), and what takes too long elsewhere: a million
# samples while files and mappings change, and a million calls at random. Run by
# test.sh; no part of `make test`. PARTS="samples calls" in the environment: some of it.
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
	local name=$1 program=$2 limit=$3 setting=$4
	shift 4
	follow "$(log_of "$name")" '^# bid_' check "$name" \
		guest "$(log_of "$name kernel")" --share "$share" --timeout "$limit" "$@" -- \
		env -C /mnt/host/kselftest/perf_events "$setting" "./$program"
}

kunit() { "$TOP/scripts/test-kunit.sh"; }
selftests() { "$TOP/scripts/test-selftests.sh"; }
oracle() { "$TOP/scripts/test-oracle.sh"; }

samples() {
	alone "$SAMPLES samples while mappings change" bid_torture 400 "BID_SAMPLES=$SAMPLES"
}

# What patches the kernel's text would trip over two emulated processors that run at
# the same time, and by turns they get through far fewer calls than one. Two guests of
# one processor keep two of this machine busy. Each is a process group of its own: an
# interrupted run takes them along.
calls() {
	local half few=$((CALLS / 50)) guests=()
	alone "$few calls at random on two processors" bid_fuzz 400 "BID_CALLS=$few" --one-thread
	set -m
	for half in one another; do
		alone "$((CALLS / 2)) calls at random, $half guest" bid_fuzz 720 \
			"BID_CALLS=$((CALLS / 2))" --cpus 1 &
		guests+=(-$!)
	done
	set +m
	# shellcheck disable=SC2064
	trap "kill -- ${guests[*]}; exit 130" INT TERM
	wait
}

all='kunit selftests oracle samples calls'
PARTS=${PARTS:-$all}
for part in $PARTS; do
	[[ " $all " == *" $part "* ]] || die "no part $part of test-debug"
done
for part in $PARTS; do
	"$part"
done
