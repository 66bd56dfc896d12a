#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-oracle.sh: every frame of real programs against an independent computation,
# in the guest. Run by test.sh.
#
# The guest's root is 9p, of which the kernel remembers nothing: what is in a file is
# left to the stack map's reader, and how often that has to give up is shown, not
# judged. Where files are remembered, as on a disk, nearly everything is resolved:
# with many events that overflow together, while other threads map and unmap, and in
# NMIs. Deferred, nothing that is in a file may stay unresolved, be it in memory or
# not. A frame that is wrong fails every time.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
"$TOP/scripts/programs.sh" tools "$share"
cp "$TOP"/scripts/guest/{workload,warm,nmis} "$share/"

# What is clean in the page cache is gone from it when the recording begins.
cat >"$share/cold" <<'GUEST'
sync
echo 3 >/proc/sys/vm/drop_caches
exec "$@"
GUEST

# long SECONDS COMMAND... : COMMAND again and again, until it has used so much of the
# processors: one that is fast would be done before there are enough samples.
cat >"$share/long" <<'GUEST'
seconds=$1
shift
# in hundredths, of children that have ended
used() {
	read -r -a stat </proc/$$/stat
	echo $((stat[15] + stat[16]))
}
until [ "$(used)" -ge $((100 * seconds)) ]; do "$@" || exit; done
GUEST

# oracle NAME BID-ORACLE-ARGUMENT... : shows its figures. It runs in $IN, if that is
# a command that runs another.
oracle() {
	local name=$1 LOG=''
	shift
	check "$name" "$TOP/scripts/boot.sh" --quiet --share "$share" --timeout 1800 \
		--log "$LOGS/oracle-kernel.log" -- "${IN[@]}" /mnt/host/bid-oracle "$@"
	# What was checked, and what became of it; but for each of many events.
	sed -n '/^ *[0-9]* *samples$/,$ { /^ *event [0-9][0-9]:/!p }' "$LOG" >&2
}

IN=()
oracle "programs that fork, exec and map, too" --min-samples 1000 --min-dsos 20 -- bash long 8 bash workload 2
oracle "deferred" --deferred --min-resolved 100 --min-samples 2000 --min-dsos 20 -- bash long 8 bash workload 3
oracle "deferred, two events at once" --deferred --events 2 --min-resolved 100 --min-samples 1000 -- \
	bash long 8 bash workload 1
oracle "deferred, cold" --deferred --min-resolved 100 --min-samples 500 -- sh cold bash long 4 bash workload 1

IN=(bash warm)
oracle "remembered" -F 1999 --min-resolved 99.99 --min-samples 10000 -- bash long 8 bash workload 2 compute
oracle "remembered, two events at once, programs that fork, exec and map, too" --events 2 \
	--min-resolved 99.9 --min-samples 1000 --min-dsos 20 -- bash long 8 bash workload 1
oracle "remembered, 64 events at once" --events 64 -F 49 -m 256 --min-resolved 99.9 \
	--min-samples 10000 -- bash long 8 bash workload 1 compute
oracle "remembered, other threads map and unmap" -F 1999 --min-resolved 99.9 --min-samples 1000 -- \
	bash long 8 bash workload 2 mappings
IN+=(bash nmis)
oracle "remembered, in NMIs" -e nmi:nmi_handler -c 1 --min-resolved 99.9 --min-samples 500 -- \
	bash long 8 bash workload 1 compute
