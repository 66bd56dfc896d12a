#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-kunit.sh: every KUnit suite that is built in, in the guest. Run by test.sh.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

log=$LOGS/kunit${BID_FLAVOUR:+-$BID_FLAVOUR}.log
rc=0 without=
if [ "${BID_FLAVOUR:-}" = rt ]; then
	# It is the stock kernel's, and has nothing of ours in it.
	without=rust_spinlock_irq_condvar
	skip "$without" "it expects interrupts to be off under a SpinLockIrq, which sleeps with PREEMPT_RT"
fi
say "$PART: running the suites"
# shellcheck disable=SC2016
"$TOP/scripts/boot.sh" --quiet --log "$log" --append kunit.enable=1 -- sh -ec '
	cd /sys/kernel/debug/kunit
	for suite in *; do
		[ "$suite" = "$1" ] || echo run >"$suite/run"
	done' sh "$without" || rc=$?
ktap "$log" ""
if [ "$rc" = 0 ]; then
	pass "the guest comes up and ends"
else
	fail "the guest comes up and ends" "exit code $rc" "$log"
fi
