#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-record.sh: what the options of `perf-bid record` do, in the guest. Run by
# test.sh.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
"$TOP/scripts/programs.sh" tools "$share"
cp "$TOP/scripts/guest/record" "$share/"

# Its results count one by one; the run counts, too: the last ones may be missing.
check "the guest ran to the end" "$TOP/scripts/boot.sh" --quiet --share "$share" --timeout 1800 \
	--log "$LOGS/record-kernel.log" -- sh -c 'bash /mnt/host/record /mnt/host/perf-bid | tee /mnt/host/tap'
[ ! -e "$share/tap" ] || ktap "$share/tap" ""
