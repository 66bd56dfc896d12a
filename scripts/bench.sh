#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# bench.sh: perf-bid against stock perf, on one recording of real programs, and how
# time and memory of perf-bid grow with the size of a file. bench.py says how.
#
#   bench.sh [quick]   with "quick": fewer repetitions, files of up to 256 MB

. "$(dirname "$0")/lib.sh"

# The recording and what both tools write are on a tmpfs of the root file system;
# the generated files, which may be larger than memory, are here.
mkdir -p "$CACHE/tmp"
share=$(mktemp -d "$CACHE/tmp/bench.XXXXXX")
trap 'rm -rf -- "$share"' EXIT
"$TOP/scripts/programs.sh" tools "$share"
cp "$TOP/scripts/guest/workload" "$TOP/scripts/bench.py" "$share/"
# The distribution's programs have no frame pointers to unwind by: their callchains are
# short. perf-bid has.
cat >"$share/busy" <<'ROOT'
bash ./workload "$1"
for again in $(seq $((8 * $1))); do
	./perf-bid script -i first.data --json
	./perf-bid report -i first.data
	./perf-bid inject -q --sample-buildids -i first.data -o ids.data
done
ROOT
"$TOP/scripts/enter.sh" -b "$share:/bid/share" -C /bid/share -- python3 bench.py "$@"
