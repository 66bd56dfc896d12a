#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# bench-kernel.sh: what a sample costs, in instructions counted in the guest, on
# our kernel, on ours with the feature built out, and on the stock kernel. Prints
# tables, and writes build/bench-kernel.json. The figures repeat.
#
#   bench-kernel.sh [KERNEL...]      of ours, off and stock (all)

. "$(dirname "$0")/lib.sh"

OUT=$TOP/build/bench-kernel.json
TESTS=$TOP/tools/testing/selftests/perf_events

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
kernel=$("$TOP/scripts/kernel.sh" build)
# Not pruned while it is in use.
exec {kernel_fd}>"$LOCKS/${kernel##*/}"
flock -s "$kernel_fd"

build_program() {
	"$TOP/scripts/enter.sh" -r "$TOP/scripts/guest:/bid/guest" -r "$TESTS:/bid/tests" \
		-r "$kernel/src/tools:/bid/tools" -r "$kernel/out/usr/include:/bid/include" \
		-b "$share:/bid/share" -- gcc -O1 -Wall -Werror -D_GNU_SOURCE -fno-omit-frame-pointer \
		-fno-optimize-sibling-calls -I/bid/include -I/bid/tests -I/bid/tools/testing/selftests \
		-o /bid/share/bench /bid/guest/bench.c /bid/tests/bid_{common,check,tool}.c
}

# image_of KERNEL : the directory above out/, where boot.sh looks for the image.
image_of() {
	local out
	case $1 in
	ours) echo "$kernel" && return ;;
	off) out=$("$TOP/scripts/kernel.sh" variant "$kernel" off "$LOGS/bench-off.log" -d PERF_BUILD_ID_OFFSET bzImage) ;;
	stock) out=$("$TOP/scripts/kernel.sh" variant "$kernel" stock "$LOGS/bench-stock.log" bzImage) ;;
	*) die "no kernel $1" ;;
	esac
	mkdir -p "$share/$1"
	ln -sfn "$out" "$share/$1/out"
	echo "$share/$1"
}

bench() {
	local image
	image=$(image_of "$1")
	say "measuring ($1)"
	"$TOP/scripts/boot.sh" --quiet --icount --kernel "$image" --share "$share" --timeout 900 -- \
		sh -c 'mount -t tmpfs bench /tmp && cp /mnt/host/bench /tmp && cd /tmp && ./bench' >"$share/said"
	sed "s/^{/{\"kernel\": \"$1\", /" "$share/said" >>"$share/all"
}

# Where the instructions of a sampled call go: an emulator that counts them.
where() {
	local toggle
	toggle=$(awk '$3 == "__do_sys_getpgrp" || $3 == "__x64_sys_getpgrp" { print $1; exit }' "$kernel/out/System.map")
	"$TOP/scripts/enter.sh" -r "$TOP/scripts:/bid/scripts" -b "$share:/bid/share" -- \
		gcc -O2 -Wall -Werror -shared -fPIC -o /bid/share/count.so /bid/scripts/count.c
	say "counting by function ($1, $2 files)"
	"$TOP/scripts/boot.sh" --quiet --icount --kernel "$kernel" --share "$share" --timeout 900 \
		--qemu "-plugin /mnt/host/count.so,toggle=$toggle,out=/mnt/host/counted" -- \
		/mnt/host/bench "$1" "$2" >/dev/null
	printf '\nours: instructions of a sampled system call by function: %s, depth 30, %s files by turns\n' "$1" "$2"
	"$TOP/scripts/enter.sh" -r "$TOP/scripts:/bid/scripts" -r "$share:/bid/share" -r "$kernel/out:/bid/out" -- \
		bash -o pipefail -c 'python3 /bid/scripts/bench-where.py /bid/out/System.map /bid/share/counted | llvm-cxxfilt'
}

build_program
: >"$share/all"
[ $# -gt 0 ] || set -- ours off stock
for name in "$@"; do
	bench "$name"
done
mkdir -p "$(dirname "$OUT")"
"$TOP/scripts/enter.sh" -r "$TOP/scripts:/bid/scripts" -b "$share:/bid/share" -- \
	python3 /bid/scripts/bench-tables.py /bid/share/all /bid/share/json
mv "$share/json" "$OUT"
for files in 1 20; do
	where bid "$files"
	where bid_deferred "$files"
done
say "written to ${OUT#"$TOP"/}"
