#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-static.sh: what can be said of the kernel side without running it. Run by
# test.sh.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/overlay-lib.sh"
. "$(dirname "$0")/test-lib.sh"

FEATURE=kernel/events/build_id_offset
kernel=$("$TOP/scripts/kernel.sh" build)
source=$("$TOP/scripts/kernel.sh" source)
series=$(series_of "$source")
mapfile -t patches < <(overlay_patches "$series")
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

in_rootfs() { "$TOP/scripts/enter.sh" "$@"; }

overlay_rust() { overlay_files | grep '\.rs$' || true; }

format() {
	local files
	mapfile -t files < <(overlay_rust)
	[ ${#files[@]} -gt 0 ] || return 0
	in_rootfs -r "$TOP:/bid/overlay" -r "$source:/bid/src" -C /bid/overlay -- \
		rustfmt --check --config-path /bid/src/.rustfmt.toml "${files[@]}"
}

# The directories and objects to build to see every file of ours compiled.
ours=("$FEATURE/" kernel/events/core.o kernel/bpf/stackmap.o lib/buildid.o)

# A warning in a file that is ours or that we change.
warnings() {
	local files
	files=$({ overlay_files && touched_files "${patches[@]}"; } | sed 's/[.+]/\\&/g' | paste -sd'|')
	! grep -nE "(^|[/ ])($files):[0-9]+(:[0-9]+)?: (warning|error)|^ +--> .*($files):[0-9]+" "$1"
}

# W=1 for C, clippy for Rust; built anew each time so that warnings show.
no_warnings() {
	local log=$LOGS/static-w1.log o
	for o in kernel/events/core.o kernel/bpf/stackmap.o lib/buildid.o rust/kernel.o rust/helpers/helpers.o; do
		rm -f -- "$kernel/out-w1/$o"
	done
	rm -f -- "$kernel/out-w1/$FEATURE"/*.o
	"$TOP/scripts/kernel.sh" variant "$kernel" w1 "$log" W=1 CLIPPY=1 "${ours[@]}" >/dev/null || return
	warnings "$log"
}

off() { "$TOP/scripts/kernel.sh" variant "$kernel" off "$LOGS/static-off.log" -d PERF_BUILD_ID_OFFSET W=1 "$@" >/dev/null; }
stock() { "$TOP/scripts/kernel.sh" variant "$kernel" stock "$LOGS/static-stock.log" "$@"; }

option_off_builds() {
	off kernel/events/ kernel/bpf/stackmap.o lib/buildid.o && warnings "$LOGS/static-off.log" &&
		! grep '^CONFIG_PERF_BUILD_ID_OFFSET' "$kernel/out-off/.config"
}

# Text of kernel/events/core.o without the option against stock: only the check
# that refuses the two bits may differ.
LIMIT=64
option_off_costs_nothing() {
	local a b stock
	stock=$(stock kernel/events/core.o) || return
	a=$(text "$stock") b=$(text "$kernel/out-off")
	echo "kernel/events/core.o, text: stock $a, option off $b, difference $((b - a)) bytes (at most $LIMIT)"
	diff <(functions "$stock") <(functions "$kernel/out-off") || true
	[ $((b - a)) -le "$LIMIT" ] && [ $((a - b)) -le "$LIMIT" ]
}

text() { in_rootfs -r "$1:/bid/out" -- llvm-size /bid/out/kernel/events/core.o | awk 'NR == 2 { print $1 }'; }
functions() {
	in_rootfs -r "$1:/bid/out" -- llvm-nm -S --defined-only /bid/out/kernel/events/core.o |
		awk '$3 ~ /[tT]/ { print $4, $2 }' | sort
}

# panics OUT OBJECT FUNCTIONS
panics() {
	in_rootfs -r "$1:/bid/out" -r "$TOP/scripts:/bid/scripts" -C /bid/out -- /bid/scripts/panics.sh "$2" "$3"
}

no_panics() {
	local found
	found=$(panics "$@") || return
	echo "$found"
	[ -z "$found" ]
}

# The check itself: an indexing that panics is found, one that does not is not.
panic_check_works() {
	local found
	mkdir "$scratch/panic"
	cat >"$scratch/panic/panic.rs" <<-'RUST'
		#![no_std]
		#[inline(never)] pub fn indexes(bytes: &[u8], i: usize) -> u8 { bytes[i] }
		#[inline(never)] pub fn copies(to: &mut [u8], from: &[u8]) { to.copy_from_slice(from) }
		#[inline(never)] pub fn gets(bytes: &[u8], i: usize) -> u8 { bytes.get(i).copied().unwrap_or(0) }
	RUST
	in_rootfs -b "$scratch/panic:/bid/panic" -C /bid/panic -- \
		rustc --edition 2021 --crate-type lib --emit obj -C panic=abort -C opt-level=2 panic.rs || return
	found=$(panics "$scratch/panic" panic.o .) || return
	echo "$found"
	grep -q '^panic::indexes -> core::' <<<"$found" && grep -q '^panic::copies -> core::' <<<"$found" &&
		! grep -q '^panic::gets' <<<"$found"
}

write_series() { "$TOP/scripts/series.sh" "$scratch/series"; }

# Let pass: MAINTAINERS, which is for whoever takes the series; commits, of which
# there are none in an unpacked source; BIT() in the tools' copy of a uapi header,
# which has to be a copy. In programs of user space also what is the kernel's own
# way: its types, its headers and its names where the C library has others.
PASSED=FILE_PATH_CHANGES,UNKNOWN_COMMIT_ID,BIT_MACRO
USER_SPACE=CAMELCASE,PREFER_KERNEL_TYPES,INCLUDE_LINUX
checkpatch() {
	local ignore=$PASSED
	grep '^+++ b/' "$1" | grep -qvE '^\+\+\+ b/(tools|samples/perf_events|samples/(Kconfig|Makefile)$)' ||
		ignore+=,$USER_SPACE
	in_rootfs -r "$source:/bid/src" -r "$1:/bid/${1##*/}" -C /tmp -- \
		perl /bid/src/scripts/checkpatch.pl --root=/bid/src --strict --show-types --quiet \
		--ignore "$ignore" "/bid/${1##*/}"
}

check "rustfmt" format
check "the panic check finds a panic" panic_check_works
check "no panic in $FEATURE" no_panics "$kernel/out" "$FEATURE/build_id_offset.o" .
check "no panic in the abstractions" no_panics "$kernel/out" rust/kernel.o 'kernel::(build_id|mm::speculative|perf_event|shrinker|task_work)::'
check "W=1 and clippy" no_warnings
check "option off builds without warnings" option_off_builds
check "option off costs nothing" option_off_costs_nothing
grep -a 'difference' "$LOG" >&2 || true
check "make series" write_series
for patch in "$scratch"/series/*.patch; do
	[ ! -f "$patch" ] || check "checkpatch --strict ${patch##*/}" checkpatch "$patch"
done
