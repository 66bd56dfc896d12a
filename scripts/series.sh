#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# series.sh OUT: writes the overlay as a patch series for `git am` into OUT.
#
# patches/<series>/series lists the steps: a patch file (or "new: FILE" with a
# message and no diff) on a line of its own, then, indented, the overlay's new
# files that come with it, as paths or shell patterns. A message file begins with
# "Subject: ", and ends at "---". Every new file must be in exactly one step.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/overlay-lib.sh"

[ $# = 1 ] || die "usage: series.sh OUT"
mkdir -p "$1"
out=$(cd "$1" && pwd)
need git git
source=$("$TOP/scripts/kernel.sh" source)
series=$(series_of "$source")
steps=$TOP/patches/$series/series
[ -f "$steps" ] || die "no ${steps#"$TOP"/}: it lists the steps"

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
tree=$scratch/tree
overlay_files >"$scratch/left"
overlay_patches "$series" >"$scratch/patches"

in_tree() { git -C "$tree" "$@"; }

# Who the series is from, and when: as in the checkout.
name=$(git -c safe.directory='*' -C "$TOP" config user.name || true)
email=$(git -c safe.directory='*' -C "$TOP" config user.email || true)
[ -n "$name" ] && [ -n "$email" ] || die "git does not know who you are: git config user.name and user.email"
date=$(git -c safe.directory='*' -C "$TOP" log -1 --format=%aI)
export GIT_AUTHOR_NAME=$name GIT_AUTHOR_EMAIL=$email GIT_AUTHOR_DATE=$date
export GIT_COMMITTER_NAME=$name GIT_COMMITTER_EMAIL=$email GIT_COMMITTER_DATE=$date
export GIT_CONFIG_GLOBAL=/dev/null

# The repository has only what the patches touch; the blobs are the kernel's own,
# so the patches apply to a whole tree as well.
start_tree() {
	local patches f
	mapfile -t patches <"$scratch/patches"
	mkdir "$tree"
	in_tree init -q
	touched_files "${patches[@]}" | while read -r f; do
		[ -f "$source/$f" ] || continue
		mkdir -p "$tree/$(dirname "$f")"
		cp "$source/$f" "$tree/$f"
	done
	in_tree add -Af
	in_tree commit -q --allow-empty -m "Linux $(kernel_version "$source" full)"
	in_tree tag base
}

# The message of a patch or message file.
message() {
	awk '
		/^---/ || /^diff --git / { exit }
		/^Subject: / && !subject { sub(/^Subject: */, ""); sub(/^\[PATCH[^]]*\] */, ""); print; subject = 1; next }
		subject { print }
		END { exit !subject }' "$1" || die "${1#"$TOP"/} has no 'Subject:' line"
}

# begin FILE : a new step, from a patch or (with "new:") from a message alone.
begin() {
	file=$TOP/patches/$series/$1
	[ -f "$file" ] || die "${steps#"$TOP"/} names $1, which is not there"
	message "$file" >"$scratch/message"
	[ "$2" = patch ] || return 0
	grep -qxF "$file" "$scratch/patches" || die "$1 is in two steps"
	[ "$(head -n 1 "$scratch/patches")" = "$file" ] || die "${steps#"$TOP"/}: $1 is not in the order of the file names"
	sed -i 1d "$scratch/patches"
	patch -p1 -s -f --fuzz=0 --no-backup-if-mismatch -d "$tree" <"$file" >"$scratch/log" ||
		die "$1 does not apply: $(head -n 3 "$scratch/log" | xargs)"
}

# add PATTERN : the overlay's new files that match, out of those that are left.
add() {
	local f found=
	while read -r f; do
		# shellcheck disable=SC2053
		[[ $f == $1 ]] || continue
		found=1
		mkdir -p "$tree/$(dirname "$f")"
		cp "$TOP/$f" "$tree/$f"
		echo "$f"
	done <"$scratch/left" >"$scratch/added"
	found=$(wc -l <"$scratch/added")
	[ "$found" -gt 0 ] || die "${steps#"$TOP"/}: no new file is left that matches $1"
	grep -vxFf "$scratch/added" "$scratch/left" >"$scratch/left.tmp" || true
	mv "$scratch/left.tmp" "$scratch/left"
}

commit() {
	[ -n "$file" ] || return 0
	in_tree add -Af
	in_tree commit -q -s -F "$scratch/message" || die "the step of ${file##*/} changes nothing"
	file=
}

start_tree
file=
while IFS= read -r line; do
	case $line in
	'' | '#'*) ;;
	[[:space:]]*) add "$(xargs <<<"$line")" ;;
	new:*)
		commit
		begin "$(xargs <<<"${line#new:}")" new
		;;
	*)
		commit
		begin "$(xargs <<<"$line")" patch
		;;
	esac
done <"$steps"
commit
[ ! -s "$scratch/patches" ] || die "in no step of ${steps#"$TOP"/}: $(xargs -n 1 basename <"$scratch/patches" | xargs)"
[ ! -s "$scratch/left" ] || die "in no step of ${steps#"$TOP"/}: $(xargs <"$scratch/left")"

rm -f -- "$out"/[0-9]*.patch
in_tree format-patch -q --signature= -o "$out" base..HEAD
say "$(find "$out" -name '[0-9]*.patch' | wc -l) patches in $out"
