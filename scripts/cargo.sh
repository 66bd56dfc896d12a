#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# cargo.sh: cargo for tools/perf-bid, inside the root file system.
#
#   cargo.sh dir                 prints where target/ is
#   cargo.sh ARGUMENT...         runs cargo
#   cargo.sh --fuzz ARGUMENT...  runs it in fuzz/, for the target directory fuzz
#
# With frame pointers, so that the tool can look at itself. The sources are
# read-only there. target/ is in the cache, one for each checkout: cargo goes by
# paths and time stamps, which two checkouts share. A new one begins with what
# another checkout has built of other people's crates.
#
# Fuzz targets are instrumented as cargo-fuzz does it, but for a sanitizer, which
# a stable compiler has not. The target is named, so that build scripts are not
# instrumented, too.

. "$(dirname "$0")/lib.sh"

root=$("$TOP/scripts/rootfs.sh")
dir=$CACHE/cargo-$(printf '%s %s' "$TOP" "${root##*/}" | sha256sum | cut -c1-16)
if [ "$*" = dir ]; then
	echo "$dir/target"
	exit
fi

# Our own crates are built anew: here they may be others of the same name.
not_ours() { # not_ours TARGET
	find "$1" -depth \( -path '*/.fingerprint/*' -o -path '*/incremental/*' \) \
		\( -name 'perf-bid*' -o -name 'perf_bid*' -o -name 'oracle*' -o -name 'bid_oracle*' \) \
		-exec rm -rf {} +
}

# The latest of the other checkouts' directories, if nobody is writing to it.
another() {
	local other latest=''
	for other in "$CACHE"/cargo-*/; do
		[ "$(cat "$other/root" 2>/dev/null)" = "${root##*/}" ] || continue
		flock -n "$other/target/release/.cargo-lock" true 2>/dev/null || continue
		[ -n "$latest" ] && [ "$latest" -nt "$other/target/release" ] || latest=$other/target/release
	done
	[ -z "$latest" ] || echo "${latest%/target/release}"
}

if [ ! -d "$dir/target" ]; then
	mkdir -p "$dir"
	rm -rf --one-file-system -- "$dir/target.new"
	other=$(another)
	if [ -n "$other" ]; then
		say "taking over the crates that $(cat "$other/checkout") has built"
		cp -a --reflink=auto "$other/target" "$dir/target.new"
		not_ours "$dir/target.new"
		mv "$dir/target.new" "$dir/target"
	fi
fi
# What belonged to checkouts that are gone.
for old in "$CACHE"/cargo-*/checkout; do
	[ -e "$old" ] && [ ! -d "$(cat "$old")" ] || continue
	rm -rf --one-file-system -- "${old%/*}"
done
mkdir -p "$dir/target" "$CACHE/cargo-home"
echo "$TOP" >"$dir/checkout"
echo "${root##*/}" >"$dir/root"
# Where crates come from is as on this machine.
settings=() config=${CARGO_HOME:-${HOME:-/root}/.cargo}/config.toml
[ ! -f "$config" ] || settings=(-r "$config:/bid/cargo-home/config.toml")
flags=-Cforce-frame-pointers=yes sources=/bid/perf-bid target=/bid/target env=()
if [ "${1:-}" = --fuzz ]; then
	shift
	sources+=/fuzz target+=/fuzz
	flags+=" --cfg fuzzing -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1 -Cpasses=sancov-module"
	for option in level=4 inline-8bit-counters pc-table trace-compares; do
		flags+=" -Cllvm-args=-sanitizer-coverage-$option"
	done
	env=(-e "CARGO_BUILD_TARGET=$(uname -m)-unknown-linux-gnu")
fi
exec "$TOP/scripts/enter.sh" -r "$TOP/tools/perf-bid:/bid/perf-bid" -b "$CACHE/cargo-home:/bid/cargo-home" \
	-b "$dir/target:/bid/target" "${settings[@]}" -C "$sources" "${env[@]}" \
	-e "RUSTFLAGS=$flags" -e CARGO_HOME=/bid/cargo-home -e TMPDIR=/tmp -e "CARGO_TARGET_DIR=$target" -e CARGO_TERM_COLOR=never -- \
	cargo "$@"
