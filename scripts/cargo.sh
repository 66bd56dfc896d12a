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
# paths and time stamps, which two checkouts share.
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

# What belonged to checkouts that are gone.
for old in "$CACHE"/cargo-*/checkout; do
	[ -e "$old" ] && [ ! -d "$(cat "$old")" ] || continue
	rm -rf --one-file-system -- "${old%/*}"
done
mkdir -p "$dir/target" "$CACHE/cargo-home"
echo "$TOP" >"$dir/checkout"
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
	-e "RUSTFLAGS=$flags" -e CARGO_HOME=/bid/cargo-home -e "CARGO_TARGET_DIR=$target" -e CARGO_TERM_COLOR=never -- \
	cargo "$@"
