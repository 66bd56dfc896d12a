#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# bench-kernel.sh: what a sample costs and what is in it, on our kernel, and beside
# stock perf, BPF and the stock kernel. Prints tables, and writes
# build/bench-kernel.json.
#
#   bench-kernel.sh [PART...]        all of them, if none is named
#
#   ours off stock   instructions of a sample, counted in the guest: on our kernel,
#                    on ours with the feature built out, on the stock kernel. These
#                    figures repeat
#   shares           how many frames are resolved: warm, cold, contended, in NMIs
#   startup          sizes of recordings, and when they begin, by the number of
#                    processes that run already

. "$(dirname "$0")/lib.sh"

PARTS=(ours off stock shares startup)
PROCESSES=(10 1000 3000)
OUT=$TOP/build/bench-kernel.json
TESTS=$TOP/tools/testing/selftests/perf_events
# Where no other program has code: what is there is the bench's.
TEXT=0x71000000

for part in "$@"; do
	[[ " ${PARTS[*]} " == *" $part "* ]] || die "no part $part (${PARTS[*]})"
done
[ $# -gt 0 ] || set -- "${PARTS[@]}"

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
kernel=$("$TOP/scripts/kernel.sh" build)
# Not pruned while it is in use.
exec {kernel_fd}>"$LOCKS/${kernel##*/}"
flock -s "$kernel_fd"

build_programs() {
	"$TOP/scripts/enter.sh" -r "$TOP/scripts:/bid/scripts" -r "$TESTS:/bid/tests" \
		-r "$kernel/src/tools:/bid/tools" -r "$kernel/out/usr/include:/bid/include" \
		-b "$share:/bid/share" -- sh -ec '
		guest=/bid/scripts/guest
		gcc -O1 -Wall -Wextra -Werror -D_GNU_SOURCE -fno-omit-frame-pointer \
			-fno-optimize-sibling-calls -no-pie -Wl,-Ttext-segment='$TEXT' \
			-I/bid/include -I/bid/tests -I/bid/tools/testing/selftests \
			-o /bid/share/bench "$guest"/bench.c "$guest"/bench-*.c \
			/bid/tests/bid_common.c /bid/tests/bid_check.c /bid/tests/bid_tool.c
		gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o /bid/share/count.so /bid/scripts/count.c
		nm /bid/share/bench >/bid/share/bench.map'
}

# out_of KERNEL : its build directory.
out_of() {
	case $1 in
	ours) echo "$kernel/out" ;;
	off) "$TOP/scripts/kernel.sh" variant "$kernel" off "$LOGS/bench-off.log" -d PERF_BUILD_ID_OFFSET bzImage ;;
	stock) "$TOP/scripts/kernel.sh" variant "$kernel" stock "$LOGS/bench-stock.log" bzImage ;;
	esac
}

# address_of FUNCTION, of bench
address_of() { awk -v name="$1" '$3 == name { print $1 }' "$share/bench.map"; }

# guest ROWS BOOT-OPTION... -- COMMAND... : what COMMAND prints becomes $share/ROWS.rows.
guest() {
	local rows=$share/$1.rows
	shift
	"$TOP/scripts/boot.sh" --quiet --share "$share" "$@" >"$rows" || die "$(tail -n 3 "$rows")"
}

# The bench and the files that it makes are in memory, and reading them changes nothing.
in_memory() { printf 'mount -t tmpfs -o noatime bench /tmp && cp /mnt/host/bench /tmp && cd /tmp && ./bench %s' "$1"; }

cost() {
	local out plugin
	out=$(out_of "$1")
	cp "$out/System.map" "$share/$1.map"
	# boot.sh looks for the image below out/
	mkdir -p "$share/kernel"
	ln -sfn "$out" "$share/kernel/out"
	plugin=/mnt/host/count.so,call=$(address_of bench_call),row=$(address_of bench_row)
	say "counting instructions ($1)"
	guest "$1" --icount --kernel "$share/kernel" --timeout 900 \
		--qemu "-plugin $plugin,out=/mnt/host/$1.counted" -- sh -c "$(in_memory cost)"
}

shares() {
	say "looking at what is resolved"
	guest shares --kernel "$kernel" --timeout 900 -- sh -c "$(in_memory shares)"
}

startup() {
	"$TOP/scripts/programs.sh" tools "$share"
	cp "$TOP/scripts/guest/bench-startup" "$share/"
	say "recording beside ${PROCESSES[*]} processes"
	guest startup --icount --mem 3072 --kernel "$kernel" --timeout 1800 -- \
		bash /mnt/host/bench-startup "${PROCESSES[@]}"
}

build_programs
for part in "$@"; do
	case $part in
	shares | startup) "$part" ;;
	*) cost "$part" ;;
	esac
done
"$TOP/scripts/enter.sh" -r "$TOP/scripts:/bid/scripts" -b "$share:/bid/share" -- \
	python3 /bid/scripts/bench-tables.py /bid/share /bid/share/json
mkdir -p "$(dirname "$OUT")"
mv "$share/json" "$OUT"
say "written to ${OUT#"$TOP"/}"
