#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-differential.sh: perf-bid against stock perf, on ordinary recordings of real
# programs. Run by test.sh.
#
# The recordings are made in the guest by the perf of the root file system: there it
# may always record, and its kernel defers callchains. What both tools make of them is
# compared on this machine, in the same root file system and so with the same files;
# kernel symbols are from a copy of the guest's kallsyms. differential.py says what has
# to be the same, and which differences are explained.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
"$TOP/scripts/programs.sh" tools "$share"
cp "$TOP/scripts/guest/workload" "$TOP/scripts/differential.py" "$share/"

cat >"$share/record" <<'GUEST'
set -euo pipefail
cd "$(dirname "$0")"
cp /proc/kallsyms .
# record NAME PERF-ARGUMENT... -- PROGRAM... : of the workload
record() {
	out=$1.data options=
	shift
	while [ "$1" != -- ]; do
		options="$options $1"
		shift
	done
	shift
	perf record -q -o "$out" $options -- bash ./workload 1 "$@"
}
record callchains -e cpu-clock -F 250 -g -- perl python
record flat -e cpu-clock -F 250 -- bash sqlite
record system-wide -e cpu-clock,page-faults -F 200 -a -g -- text_tools compressors
record ids-in-maps --buildid-mmap -z -e cpu-clock -F 250 -g -- openssl compressors
record no-ids --no-buildid -e page-faults -c 5 -g -- bash text_tools
record deferred -e cpu-clock -F 250 --call-graph fp,defer -- perl sqlite
perf record -q -o - -e cpu-clock -F 250 -g -- bash ./workload 1 sqlite perl |
	cat >pipe.data
test -s pipe.data
touch recorded
GUEST

# Processes of this machine are none of the recorded ones: perf would look for their
# files in /proc. So it sees no process but itself.
cat >"$share/print" <<'ROOT'
set -eu
mount -t proc proc /proc
cd "$(dirname "$0")"
what="--kallsyms kallsyms --no-inline --ns -F comm,pid,tid,time,event,ip,sym,symoff,dso"
perf script -i "$1.data" $what >"$1.perf"
./perf-bid script --return-addresses -i "$1.data" $what >"$1.bid"
exec python3 differential.py frames "$1.perf" "$1.bid" kallsyms
ROOT

cat >"$share/shares" <<'ROOT'
set -eu
mount -t proc proc /proc
cd "$(dirname "$0")"
what="--kallsyms kallsyms --stdio --no-children -g none -F overhead,period,dso,sym"
perf_report() { perf report -i "$1" $what >"$2"; }
bid_report() { ./perf-bid report -i "$1" $what >"$2"; }
perf_report "$1.data" ordinary.perf
bid_report "$1.data" ordinary.bid
./perf-bid inject -q --sample-buildids -i "$1.data" -o ids
bid_report ids ids.bid
./perf-bid inject -q --to-mmaps -i ids -o back
perf_report back back.perf
for pair in "ordinary.perf ordinary.bid" "ordinary.perf ids.bid" "back.perf ids.bid" "ordinary.perf back.perf"; do
	echo "$pair"
	python3 differential.py shares $pair
done
ROOT

in_root() { "$TOP/scripts/enter.sh" -b "$share:/bid/share" -- unshare --pid --fork sh "$@"; }

# shown NAME COMMAND... : a test that shows its figures.
shown() {
	local LOG=''
	check "$@"
	sed 's/^/    /' "$LOG" >&2
}

check "recordings" "$TOP/scripts/boot.sh" --quiet --share "$share" --timeout 1800 \
	--log "$LOGS/differential-kernel.log" -- bash /mnt/host/record
# Without them there is nothing to compare, and it has failed already.
[ -e "$share/recorded" ] || exit 0
for name in callchains flat system-wide ids-in-maps no-ids deferred pipe; do
	shown "script, $name" in_root /bid/share/print "$name"
done
for name in callchains flat ids-in-maps; do
	shown "report, there and back, $name" in_root /bid/share/shares "$name"
done
