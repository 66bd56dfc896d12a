#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-series.sh: each step of `make series` applies and builds, with the guest's
# configuration as far as the step knows it. Slow. Run by test.sh.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/test-lib.sh"

kernel=$("$TOP/scripts/kernel.sh" build)
source=$("$TOP/scripts/kernel.sh" source)
scratch=$(mktemp -d -p "$CACHE" series.XXXXXX)
trap 'rm -rf --one-file-system -- "$scratch"' EXIT
cp -al "$source" "$scratch/src"
cp -a "$kernel/out" "$scratch/out"
"$TOP/scripts/series.sh" "$scratch/series"

# patch replaces files, and so leaves the pristine tree behind the links alone.
one_step() {
	patch -p1 -s -f --fuzz=0 --no-backup-if-mismatch -d "$scratch/src" <"$1" &&
		"$TOP/scripts/kernel.sh" make "$scratch/src" "$scratch/out" olddefconfig &&
		"$TOP/scripts/kernel.sh" make "$scratch/src" "$scratch/out" bzImage
}

for step in "$scratch"/series/*.patch; do
	name=${step##*/}
	check "${name%.patch} builds" one_step "$step"
	[ "$(tail -n 1 "$RESULTS" | cut -f1)" = pass ] || break
done
