#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# programs.sh: builds what the guest runs.
#
#   programs.sh tools OUT              perf-bid and bid-oracle, in OUT
#   programs.sh selftests KERNEL OUT   the installed kselftest tree, in OUT;
#                                      KERNEL is the kernel build directory

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/overlay-lib.sh"

tools() {
	local target
	step "building perf-bid" "$LOGS/cargo-build.log" "$TOP/scripts/cargo.sh" build --release --locked
	target=$("$TOP/scripts/cargo.sh" dir)/release
	mkdir -p "$1"
	cp "$target/perf-bid" "$target/bid-oracle" "$1/"
}

# tools/testing/selftests/perf_events of the kernel with the overlay's of now:
# a kernel build is not redone because a test changed.
selftests() {
	local kernel=$1 out=$2 scratch source tests=tools/testing/selftests/perf_events
	source=$("$TOP/scripts/kernel.sh" source)
	scratch=$(mktemp -d)
	# shellcheck disable=SC2064
	trap "rm -rf -- '$scratch'" EXIT
	stage "$source" "$(series_of "$source")" "$scratch/stage"
	mkdir -p "$scratch/tests" "$scratch/obj/usr" "$out"
	cp -r "$source/$tests/." "$scratch/tests/"
	[ ! -d "$scratch/stage/$tests" ] || cp -r "$scratch/stage/$tests/." "$scratch/tests/"
	step "building the selftests" "$LOGS/selftests-build.log" "$TOP/scripts/enter.sh" \
		-r "$kernel/src:/bid/src" -r "$scratch/tests:/bid/src/$tests" \
		-b "$scratch/obj:/bid/obj" -r "$kernel/out/usr:/bid/obj/usr" -b "$out:/bid/install" -- \
		make -C /bid/src/tools/testing/selftests O=/bid/obj TARGETS=perf_events \
		USERCFLAGS="-DBID_SLOWER=${BID_SLOWER:-1}" \
		INSTALL_PATH=/bid/install FORCE_TARGETS=1 install
}

case ${1:-} in
tools | selftests) "$@" ;;
*) die "usage: programs.sh tools OUT | selftests KERNEL OUT" ;;
esac
