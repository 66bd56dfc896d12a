#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-fuzz.sh: the fuzz targets of tools/perf-bid, each for a bounded number of
# inputs. Run by test.sh.
#
#   FUZZ_SECONDS=N   each target for N seconds instead, and by another seed each
#                    time
#
# Inputs that crash a target are left with the logs; what was found becomes a test
# of the crate, and a seed.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

target_dir=$("$TOP/scripts/cargo.sh" dir)/fuzz/$(uname -m)-unknown-linux-gnu/release
recordings=/bid/perf-bid/crates/perf-bid-core/tests/data

limits=(-runs=20000 -max_total_time=15 -seed=1)
[ -z "${FUZZ_SECONDS:-}" ] || limits=("-max_total_time=$FUZZ_SECONDS")

# fuzz TARGET LONGEST SEEDS... : prints what libFuzzer does. It must have run inputs
# of its own making, and have seen what they reached.
fuzz() {
	local target=$1 longest=$2 found=$LOGS/fuzz-$1 out
	shift 2
	mkdir -p "$found"
	# New inputs go to the first directory, which is gone afterwards.
	out=$("$TOP/scripts/enter.sh" -r "$TOP/tools/perf-bid:/bid/perf-bid" -r "$target_dir:/bid/target" \
		-b "$found:/bid/found" -C /run -e TMPDIR=/run -- \
		sh -c 'mkdir new && exec "$@"' fuzz "/bid/target/$target" new "$@" "${limits[@]}" \
		"-max_len=$longest" -timeout=10 -rss_limit_mb=1024 -artifact_prefix=/bid/found/ \
		-print_final_stats=1 2>&1) || {
		printf '%s\ninputs are in %s\n' "$out" "$found"
		return 1
	}
	printf '%s\n' "$out"
	awk -v seeds="$(seeds "$@" | wc -l)" '
		$2 == "INITED" { first = $4 }
		$2 == "DONE" { reached = $4 }
		$1 == "stat::number_of_executed_units:" { units = $2 }
		END {
			printf "%d inputs, %d of them seeds; %d edges reached, %d by the seeds\n", units, seeds, reached, first
			exit !(seeds > 0 && units > 10 * seeds && first > 0 && reached > first)
		}' <<<"$out"
}

# seeds DIR... : the files in directories of the root file system.
seeds() {
	local dir
	for dir; do
		find "$TOP/tools/perf-bid/${dir#/bid/perf-bid/}" -type f
	done
}

# fuzzed NAME ... : the test, and the last line of its log for people.
fuzzed() {
	check "$1" fuzz "${@:2}"
	say "$PART: $1: $(tail -n 1 "$LOG")"
}

own=/bid/perf-bid/fuzz/seeds
check "rustfmt" "$TOP/scripts/cargo.sh" --fuzz fmt --check
check "build" "$TOP/scripts/cargo.sh" --fuzz build --release --locked --bins
fuzzed "reader" reader 65536 "$recordings" "$own/recordings"
fuzzed "converter" converter 65536 "$recordings" "$own/recordings"
fuzzed "ELF files" elf 32768 "$own/elf"
fuzzed "symbols in text" text 4096 "$own/text"
