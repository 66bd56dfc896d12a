#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-oracle.sh: every frame of real programs against an independent computation,
# in the guest. Run by test.sh.
#
# One event on real programs must resolve nearly everything. With two events that
# overflow together the kernel may have to say that it was busy; how often is
# shown, not judged. A frame that is wrong fails either way.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
"$TOP/scripts/programs.sh" tools "$share"
cp "$TOP/scripts/guest/workload" "$share/"

# oracle NAME BID-ORACLE-ARGUMENT... : the last line says what was checked.
oracle() {
	local name=$1 LOG=''
	shift
	check "$name" "$TOP/scripts/boot.sh" --quiet --share "$share" --timeout 900 \
		--log "$LOGS/oracle-kernel.log" -- /mnt/host/bid-oracle "$@"
	grep -a '^oracle: ' "$LOG" >&2 || true
}

oracle "real programs" --min-resolved 99 --min-samples 2000 --min-dsos 20 -- /mnt/host/workload 2
oracle "two events at once" --events 2 --min-samples 1000 -- /mnt/host/workload 1
