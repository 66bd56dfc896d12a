#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# demo.sh: records real programs in the guest, and prints which symbols were the
# hottest, from build IDs and file offsets alone.

. "$(dirname "$0")/lib.sh"

out=$TOP/build/demo
rm -rf -- "$out"
mkdir -p "$out/bin"
kernel=$("$TOP/scripts/kernel.sh" build)
"$TOP/scripts/programs.sh" tools "$out/bin"
cp "$TOP/scripts/guest/workload" "$out/bin/"

# What the guest does; the profile is in the shared directory afterwards.
cat >"$out/run" <<'GUEST'
set -eu
cd /tmp
printf 'kernel: Linux %s\n' "$(uname -r)"
zcat /proc/config.gz | grep '^CONFIG_PERF_BUILD_ID_OFFSET='
echo
PATH=$PATH:/mnt/host/bin
# The distribution's programs have no frame pointers to unwind by. perf-bid has,
# and a recording to report.
perf-bid record -q -g -F 499 -o first.data -- bash /mnt/host/bin/workload 1 >workload.out
perf-bid record -q -g -F 499 -o perf.data -- sh -c '
	bash /mnt/host/bin/workload 4
	for again in 1 2 3; do perf-bid report -i first.data --json report.json; done' >workload.out
perf-bid report -i perf.data --sort comm,dso,buildid,symbol --limit 30 \
	--flamegraph flamegraph.svg
perf-bid report -i perf.data --totals >totals
cp flamegraph.svg totals /mnt/host/
GUEST

"$TOP/scripts/boot.sh" --kernel "$kernel" --share "$out" --timeout 1800 -- sh /mnt/host/run
[ -s "$out/flamegraph.svg" ] && [ -s "$out/totals" ] || die "the guest left no profile in $out"
rm -rf -- "${out:?}/bin" "$out/run"
# How many deferred callchains there were is in the report above.
printf '\ndemo: %s, flame graph: %s\n' "$(sed 's/, [0-9]* of [0-9]* deferred callchains missing$//' "$out/totals")" \
	"$out/flamegraph.svg"
