#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-preempt.sh: kernels of the other preemption models build, boot, pass the KUnit
# suites, and sample in every context and in both modes. Run by test.sh; no part of
# `make test`.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

export BID_PROGRAMS='bid_sample bid_deferred bid_context bid_fresh bid_torture'
export BID_SLOWER=4
for BID_FLAVOUR in rt lazy; do
	export BID_FLAVOUR PART=preempt-$BID_FLAVOUR
	"$TOP/scripts/test-kunit.sh"
	"$TOP/scripts/test-selftests.sh"
done
