#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-kunit.sh: every KUnit suite that is built in, in the guest. Run by test.sh.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

log=$LOGS/kunit.log
rc=0
say "$PART: booting with kunit.autorun"
"$TOP/scripts/boot.sh" --quiet --log "$log" --append "kunit.enable=1 kunit.autorun=1" -- true || rc=$?
ktap "$log" ""
if [ "$rc" = 0 ]; then
	pass "the guest comes up and ends"
else
	fail "the guest comes up and ends" "exit code $rc" "$log"
fi
