#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# test-overlay.sh SOURCE: apply and unapply on small copies of the kernel tree
# SOURCE, that have only the files that the patches change. Prints KTAP.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/overlay-lib.sh"

source=$1
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
n=0

# A checkout of the test's own: nobody edits it meanwhile, and the test may.
checkout=$scratch/checkout
mkdir "$checkout"
cp -r "$TOP/scripts" "$TOP/patches" "$checkout/"
overlay_files | tar -C "$TOP" -cf - -T - | tar -C "$checkout" -xf -
TOP=$checkout
overlay=$TOP/scripts/overlay.sh

export GIT_CONFIG_GLOBAL=$scratch/gitconfig
printf '[user]\n\tname = t\n\temail = t@example.com\n[safe]\n\tdirectory = *\n' >"$GIT_CONFIG_GLOBAL"

# tree NAME [git] : a new small tree in $scratch/NAME, and $tree is its path.
tree() {
	local patches=() f
	tree=$scratch/$1
	mapfile -t patches < <(overlay_patches "$(series_of "$source")")
	{ printf '%s\n' Makefile Kbuild .gitignore && touched_files "${patches[@]}"; } | while read -r f; do
		[ -f "$source/$f" ] || continue
		mkdir -p "$tree/$(dirname "$f")"
		cp -p "$source/$f" "$tree/$f"
	done
	# Debian's source ignores all of itself.
	sed -i '/^\/\*$/d' "$tree/.gitignore"
	[ "${2:-}" != git ] || commit "the tree"
}

commit() { git -C "$tree" init -q 2>/dev/null && git -C "$tree" add -A && git -C "$tree" commit -qm "$1"; }

sum() { (cd "$tree" && find . -type f ! -path './.git/*' ! -path './.perf-build-id-offset/*' -exec sha256sum {} + | sort); }

run() { "$overlay" "$@" >"$scratch/out" 2>&1; }

said() { grep -q -- "$1" "$scratch/out"; }

# The function test_<name> decides; what overlay.sh said last is shown if it fails.
t() {
	n=$((n + 1))
	if (set -e && "test_$1"); then
		echo "ok $n $1"
	else
		sed 's/^/# /' "$scratch/out"
		echo "not ok $n $1"
	fi
}

# Each test is one chain of commands: `set -e` does not reach into a condition.
test_round_trip() {
	tree rt && sum >"$scratch/before" &&
		run apply "$tree" && said 'applied to' && [ "$("$overlay" status "$tree")" = applied ] &&
		! sum | cmp -s - "$scratch/before" &&
		run unapply "$tree" && sum | cmp - "$scratch/before" &&
		[ ! -e "$tree/.perf-build-id-offset" ] && [ "$("$overlay" status "$tree")" = none ]
}
test_what_is_applied_is_the_overlay() {
	tree same && run apply "$tree" && stage "$source" "$(series_of "$source")" "$scratch/want" &&
		(cd "$scratch/want" && find . -type f -exec cmp {} "$tree/{}" \;) >"$scratch/out" 2>&1 &&
		[ ! -s "$scratch/out" ]
}
test_apply_twice() {
	tree twice && run apply "$tree" && sum >"$scratch/before" &&
		run apply "$tree" && said 'already applied' && sum | cmp - "$scratch/before"
}
test_unapply_twice() { tree none && run unapply "$tree" && said 'not applied'; }
test_clean_git_tree() {
	tree git git && run apply "$tree" && run unapply "$tree" &&
		[ -z "$(git -C "$tree" status --porcelain)" ]
}
test_git_ignores_our_notes() {
	tree notes git && run apply "$tree" &&
		! git -C "$tree" status --porcelain | grep -q perf-build-id-offset/
}
test_dirty_git_tree_is_refused() {
	tree dirty git && echo '# mine' >>"$tree/Kbuild" && sum >"$scratch/before" &&
		! run apply "$tree" && said 'uncommitted changes' && said Kbuild &&
		sum | cmp - "$scratch/before"
}
test_untracked_file_is_refused() {
	tree untracked git && echo mine >"$tree/mine.c" && ! run apply "$tree" && said mine.c
}
test_other_version_is_refused() {
	tree old && sed -i 's/^PATCHLEVEL = .*/PATCHLEVEL = 1/' "$tree/Makefile" && sum >"$scratch/before" &&
		! run apply "$tree" && said 'there are patches for' && sum | cmp - "$scratch/before"
}
test_no_kernel_tree_is_refused() { mkdir "$scratch/no" && ! run apply "$scratch/no" && said 'no kernel source tree'; }
test_new_file_in_the_way_is_refused() {
	local f
	f=$(overlay_files | head -n 1)
	tree way && mkdir -p "$tree/$(dirname "$f")" && echo mine >"$tree/$f" &&
		! run apply "$tree" && said "$f" && [ "$(cat "$tree/$f")" = mine ]
}
test_patch_that_does_not_apply_is_refused() {
	local f patches
	mapfile -t patches < <(overlay_patches "$(series_of "$source")")
	[ ${#patches[@]} -gt 0 ] || return 0
	f=$(touched_files "${patches[0]}" | while read -r f; do [ ! -f "$source/$f" ] || echo "$f"; done | head -n 1)
	tree reject && echo 'nothing of before' >"$tree/$f" && sum >"$scratch/before" &&
		! run apply "$tree" && said 'does not apply' && sum | cmp - "$scratch/before" &&
		[ ! -e "$tree/.perf-build-id-offset" ]
}
test_edits_since_are_kept() {
	tree edits && run apply "$tree" || return 1
	local f
	f=$(awk 'END { print $3 }' "$tree/.perf-build-id-offset/manifest")
	echo '/* mine */' >>"$tree/$f" && sum >"$scratch/before" &&
		! run unapply "$tree" && said "$f" && sum | cmp - "$scratch/before" &&
		run apply "$tree" && said 'changed there since'
}
test_other_overlay_is_told() {
	tree other && sum >"$scratch/before" && run apply "$tree" &&
		mkdir -p "$TOP/samples" && echo new >"$TOP/samples/new" &&
		! run apply "$tree" && said 'make unapply' && [ "$("$overlay" status "$tree")" = changed ] &&
		run unapply "$tree" && rm "$TOP/samples/new" && sum | cmp - "$scratch/before"
}
# What apply leaves when it is killed half-way: some files installed, some not.
half_applied() {
	local original path i=0
	tree "$1" && sum >"$scratch/before" && run apply "$tree" && sum >"$scratch/after" || return 1
	while read -r _ original path; do
		i=$((i + 1))
		[ $((i % 2)) = 0 ] || continue
		if [ "$original" = - ]; then rm "$tree/$path"; else cp "$source/$path" "$tree/$path"; fi
		echo half >"$tree/$path.bid-tmp"
	done <"$tree/.perf-build-id-offset/manifest"
	echo "$2" >"$tree/.perf-build-id-offset/state"
}
test_interrupted_apply_is_taken_out() {
	half_applied half1 applying && [ "$("$overlay" status "$tree")" = interrupted ] &&
		run unapply "$tree" && sum | cmp - "$scratch/before"
}
test_interrupted_apply_is_redone() {
	half_applied half2 applying && run apply "$tree" && said 'was interrupted' && sum | cmp - "$scratch/after"
}
test_interrupted_unapply_is_finished() {
	half_applied half3 unapplying && run unapply "$tree" && sum | cmp - "$scratch/before"
}
test_killed_apply_is_recovered() {
	tree killed && sum >"$scratch/before" || return 1
	local delay
	for delay in 0.02 0.05 0.08 0.12 0.2; do
		"$overlay" apply "$tree" >"$scratch/out" 2>&1 &
		sleep "$delay"
		kill -KILL $! 2>/dev/null || true
		wait $! 2>/dev/null || true
		run unapply "$tree" || return 1
		sum | cmp - "$scratch/before" || return 1
	done
}

mapfile -t tests < <(compgen -A function test_ | sed 's/^test_//')
echo "TAP version 13"
echo "1..${#tests[@]}"
for name in "${tests[@]}"; do
	t "$name"
done
