#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-preempt.sh: kernels of the other preemption models build, boot and sample.
# Run by test.sh; no part of `make test`.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

for BID_FLAVOUR in rt lazy; do
	export BID_FLAVOUR BID_SLOWER=4
	"$TOP/scripts/test-selftests.sh"
done
