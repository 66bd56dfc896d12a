#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-kcsan.sh: the KUnit suites, and the programs where samples, fills and changes of
# files and mappings run into each other, on the kernel that looks for data races. The
# stock kernel has some; a race fails the run where one of its two sides is in code of
# ours. Run by test.sh; no part of `make test`.
#
# What Rust does is seen where it calls C, as it does for atomic accesses, and where what
# C reads has changed meanwhile: rustc has no instrumentation for this.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

export BID_FLAVOUR=kcsan BID_SLOWER=${BID_SLOWER:-10} BID_MEM=${BID_MEM:-3072}
# Eight times as many accesses are watched as by default.
export BID_APPEND=kcsan.skip_watch=500
export BID_TROUBLE='Kernel panic|Oops|WARNING: |INFO: |BUG: KCSAN: .*(build_id|stack_map)'

export BID_PROGRAMS='bid_torture bid_fresh bid_context bid_sample bid_cold bid_pairing'

"$TOP/scripts/test-kunit.sh"
"$TOP/scripts/test-selftests.sh"
