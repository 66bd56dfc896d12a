#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-oracle.sh: every frame of real programs against an independent computation,
# in the guest. Run by test.sh.
#
# With one event, programs that compute must resolve nearly everything. With two
# events that overflow together, or while a process maps and unmaps, the kernel may
# have to say that it was busy; how often is shown, not judged. Deferred, nothing
# that is in a file may stay unresolved, be it in memory or not. A frame that is
# wrong fails every time.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
"$TOP/scripts/programs.sh" tools "$share"
cp "$TOP/scripts/guest/workload" "$share/"

# What is clean in the page cache is gone from it when the recording begins.
cat >"$share/cold" <<'GUEST'
sync
echo 3 >/proc/sys/vm/drop_caches
exec "$@"
GUEST

# oracle NAME BID-ORACLE-ARGUMENT... : shows its figures.
oracle() {
	local name=$1 LOG=''
	shift
	check "$name" "$TOP/scripts/boot.sh" --quiet --share "$share" --timeout 900 \
		--log "$LOGS/oracle-kernel.log" -- /mnt/host/bid-oracle "$@"
	# What was checked, and what became of it.
	sed -n '/^ *[0-9]* *samples$/,$p' "$LOG" >&2
}

oracle "one event, programs that compute" --min-resolved 99 --min-samples 2000 -- \
	bash /mnt/host/workload 3 compute
oracle "one event, programs that fork, exec and map, too" --min-samples 2000 --min-dsos 20 -- bash /mnt/host/workload 4
oracle "two events at once" --events 2 --min-samples 1000 -- bash /mnt/host/workload 1
oracle "deferred" --deferred --min-resolved 100 --min-samples 2000 --min-dsos 20 -- bash /mnt/host/workload 3
oracle "deferred, two events at once" --deferred --events 2 --min-resolved 100 --min-samples 1000 -- \
	bash /mnt/host/workload 1
oracle "deferred, cold" --deferred --min-resolved 100 --min-samples 500 -- \
	sh /mnt/host/cold bash /mnt/host/workload 1
