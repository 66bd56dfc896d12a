#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-kcsan.sh: the selftests on the kernel that looks for data races. The stock
# kernel has some; a race fails the run where one of its two sides is in code of
# ours. Run by test.sh; no part of `make test`.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

export BID_FLAVOUR=kcsan BID_SLOWER=${BID_SLOWER:-10} BID_MEM=${BID_MEM:-3072}
export BID_TROUBLE='Kernel panic|Oops|WARNING: |INFO: |BUG: KCSAN: .*(build_id|stack_map)'

"$TOP/scripts/test-selftests.sh"
