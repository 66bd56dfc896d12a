#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# overlay.sh: puts the overlay into a builder's kernel tree, and takes it out.
#
#   overlay.sh apply|unapply|status DIR
#
# DIR/.perf-build-id-offset (which the kernel's .gitignore covers) remembers what
# was done: `manifest` has a line per file, "installed-sha256 original-sha256
# path" with '-' for a file that was not there; `originals.tar` has what was
# there; `overlay` names the overlay's content; `state` says how far it got. It
# is written before the first file changes, so that whatever interrupts apply or
# unapply, the next run can finish taking the overlay out.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/overlay-lib.sh"

usage() { die "usage: overlay.sh apply|unapply|status DIR"; }

sha() { if [ -f "$1" ]; then sha256sum <"$1" | cut -d' ' -f1; else echo -; fi; }

# own PATH... : gives what root creates in another user's tree to that user.
own() { [ "$(id -u)" != 0 ] || chown --reference="$dir/Makefile" "$@"; }

set_state() {
	echo "$1" >"$meta/state.tmp"
	mv "$meta/state.tmp" "$meta/state"
}

# The files that hold neither what apply put there nor what was there before
# (that only counts when an apply or unapply was interrupted).
edited() {
	local installed original path now state
	state=$(cat "$meta/state")
	while read -r installed original path; do
		now=$(sha "$dir/$path")
		[ "$now" != "$installed" ] || continue
		[ "$state" = applied ] || [ "$now" != "$original" ] || continue
		echo "$path"
	done <"$meta/manifest"
}

refuse_edited() {
	local files
	files=$(edited)
	[ -z "$files" ] || die "changed in $dir since the overlay was applied (your work is left as it is;
undo or move these changes, then try again):
$(sed 's/^/  /' <<<"$files")"
}

take_out() {
	local installed original path
	refuse_edited
	set_state unapplying
	while read -r installed original path; do
		rm -f -- "$dir/$path.bid-tmp"
		if [ "$original" = - ]; then
			rm -f -- "$dir/$path"
			rmdir -p --ignore-fail-on-non-empty -- "$(dirname "$dir/$path")"
		elif [ "$(sha "$dir/$path")" != "$original" ]; then
			# A new time stamp: make must see that the file changed.
			tar -C "$dir" -xmf "$meta/originals.tar" --same-owner "./$path"
		fi
	done <"$meta/manifest"
	rm -rf -- "$meta"
}

refuse_dirty() {
	local changes
	git -c safe.directory='*' -C "$dir" rev-parse --is-inside-work-tree >/dev/null 2>&1 || return 0
	changes=$(git -c safe.directory='*' -C "$dir" status --porcelain -- .)
	[ -z "$changes" ] || die "$dir has uncommitted changes; commit or remove them first:
$(head -n 5 <<<"$changes" | sed 's/^/  /')"
}

put_in() {
	local series=$1 id=$2 scratch=$3 path new stage=$3/stage
	stage "$dir" "$series" "$stage"

	mkdir "$scratch/meta"
	echo "$id" >"$scratch/meta/overlay"
	echo applying >"$scratch/meta/state"
	while read -r path; do
		new=${path#+}
		printf '%s %s %s\n' "$(sha "$stage/$new")" "$(sha "$dir/$new")" "$new"
	done <"$stage.list" >"$scratch/meta/manifest"
	sed -n 's|^[^+]|./&|p' "$stage.list" |
		tar -C "$dir" -cf "$scratch/meta/originals.tar" -T -
	rm -rf -- "$meta.tmp"
	cp -r "$scratch/meta" "$meta.tmp"
	own -R "$meta.tmp"
	mv -T "$meta.tmp" "$meta"

	while read -r path; do
		install_file "$stage/${path#+}" "$dir/${path#+}"
	done <"$stage.list"
	set_state applied
}

own_dir() {
	[ ! -d "$1" ] || return 0
	own_dir "$(dirname "$1")"
	mkdir "$1"
	own "$1"
}

# The file appears whole or not at all, with the mode of what it replaces.
install_file() {
	local from=$1 to=$2
	own_dir "$(dirname "$to")"
	cp -- "$from" "$to.bid-tmp"
	if [ -e "$to" ]; then
		chmod --reference="$to" "$to.bid-tmp"
		[ "$(id -u)" != 0 ] || chown --reference="$to" "$to.bid-tmp"
	else
		own "$to.bid-tmp"
	fi
	mv -T -- "$to.bid-tmp" "$to"
}

apply() {
	local series id scratch changed
	series=$(series_of "$dir")
	id=$(overlay_id "$series")
	if [ -d "$meta" ]; then
		if [ "$(cat "$meta/state")" != applied ]; then
			say "an earlier run on $dir was interrupted; taking out what it left"
			take_out
		elif [ "$(cat "$meta/overlay")" != "$id" ]; then
			die "$dir has another version of the overlay; run 'make unapply KDIR=$dir' first"
		else
			changed=$(edited)
			say "already applied to $dir${changed:+; changed there since: $(xargs <<<"$changed")}"
			return
		fi
	fi
	refuse_dirty
	scratch=$(mktemp -d)
	# shellcheck disable=SC2064
	trap "rm -rf -- '$scratch'" EXIT
	put_in "$series" "$id" "$scratch"
	say "applied to $dir (Linux $(kernel_version "$dir" full)): $(wc -l <"$meta/manifest") files; 'make unapply KDIR=$dir' takes it out"
}

unapply() {
	if [ ! -d "$meta" ]; then
		say "not applied to $dir"
		return
	fi
	take_out
	say "taken out of $dir"
}

# One word for scripts on stdout: none, applied, changed, interrupted.
status() {
	if [ ! -d "$meta" ]; then
		echo none
	elif [ "$(cat "$meta/state")" != applied ]; then
		echo interrupted
	elif [ "$(cat "$meta/overlay")" != "$(overlay_id "$(series_of "$dir")")" ]; then
		echo changed
	else
		echo applied
	fi
}

[ $# = 2 ] || usage
[ -d "$2" ] || die "no directory $2"
dir=$(cd "$2" && pwd)
meta=$dir/.perf-build-id-offset
kernel_version "$dir" >/dev/null
case $1 in
apply | unapply | status) "$1" ;;
*) usage ;;
esac
