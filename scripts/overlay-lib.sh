# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the overlay is and how it is put together. Source it after lib.sh.
#
# The overlay is patches/<series>/*.patch (changes to existing kernel files) and
# every other file under the directories below (new files, at their place in the
# kernel tree). tools/perf-bid is a project of its own and no part of it.

OVERLAY_DIRS=(arch include kernel lib mm rust samples Documentation tools)

# The new files, one path a line, committed or not.
overlay_files() {
	local dirs=() d
	for d in "${OVERLAY_DIRS[@]}"; do
		[ ! -d "$TOP/$d" ] || dirs+=("$d")
	done
	[ ${#dirs[@]} -gt 0 ] || return 0
	if [ -e "$TOP/.git" ]; then
		git -c safe.directory='*' -C "$TOP" ls-files -co --exclude-standard -- "${dirs[@]}"
	else
		(cd "$TOP" && find "${dirs[@]}" -type f)
	fi | { grep -v '^tools/perf-bid/' || true; } | sort -u | while read -r d; do
		# A deleted file is in the index until the deletion is committed.
		[ ! -f "$TOP/$d" ] || echo "$d"
	done
}

# The patches for series $1 in order, one path a line.
overlay_patches() {
	find "$TOP/patches/$1" -name '[0-9]*.patch' 2>/dev/null | sort
}

# The series that we have patches for, newest first.
supported_series() {
	find "$TOP/patches" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' 2>/dev/null | sort -rV
}

# VERSION.PATCHLEVEL of kernel tree $1; $2 = full for the whole version.
kernel_version() {
	[ -f "$1/Makefile" ] && [ -f "$1/Kbuild" ] || die "$1 is no kernel source tree"
	awk -v full="${2:-}" '
		/^VERSION = / { v = $3 } /^PATCHLEVEL = / { p = $3 }
		/^SUBLEVEL = / { s = $3 } /^EXTRAVERSION =/ { e = $3; exit }
		END { print full ? v "." p "." s e : v "." p }' "$1/Makefile"
}

# The series for kernel tree $1.
series_of() {
	local version
	version=$(kernel_version "$1")
	[ -d "$TOP/patches/$version" ] ||
		die "$1 is Linux $(kernel_version "$1" full); there are patches for: $(supported_series | xargs)"
	echo "$version"
}

# The existing files that the patches named on the command line change.
touched_files() {
	[ $# -gt 0 ] || return 0
	sed -n 's|^--- a/||p; s|^+++ b/||p' "$@" | sed 's/\t.*//' | sort -u
}

# stage SOURCE SERIES OUT : puts every file that differs between SOURCE and
# SOURCE with the overlay into OUT. Prints their paths into OUT.list, new ones
# with a leading '+'.
stage() {
	local source=$1 series=$2 out=$3 patches=() p f log
	need patch patch
	mapfile -t patches < <(overlay_patches "$series")
	mkdir -p "$out"
	: >"$out.list"
	while read -r f; do
		[ -f "$source/$f" ] || continue
		mkdir -p "$out/$(dirname "$f")"
		cp "$source/$f" "$out/$f"
	done < <(touched_files "${patches[@]}")
	for p in "${patches[@]}"; do
		log=$(patch -p1 -s -f --fuzz=0 --no-backup-if-mismatch -d "$out" <"$p" 2>&1) ||
			die "${p#"$TOP"/} does not apply to Linux $(kernel_version "$source" full): $(head -n 3 <<<"$log" | xargs)"
	done
	while read -r f; do
		[ ! -e "$source/$f" ] || die "the overlay's new file $f is already in $source"
		[ ! -e "$out/$f" ] || die "the overlay's new file $f is also made by a patch"
		mkdir -p "$out/$(dirname "$f")"
		cp "$TOP/$f" "$out/$f"
	done < <(overlay_files)
	(cd "$out" && find . -type f -printf '%P\n' | sort) | while read -r f; do
		if [ -e "$source/$f" ]; then echo "$f"; else echo "+$f"; fi
	done >"$out.list"
}

# A name for the overlay's content as it is for series $1.
overlay_id() {
	local files=() patches=()
	mapfile -t files < <(overlay_files)
	mapfile -t patches < <(overlay_patches "$1")
	key "${patches[@]}" "${files[@]/#/$TOP/}"
}
