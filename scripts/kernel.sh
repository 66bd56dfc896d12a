#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kernel.sh: unpacks the kernel, puts the overlay on it and builds it.
#
#   kernel.sh source       prints the pristine source tree (unpacks it if need be)
#   kernel.sh build [FLAVOUR]
#                          builds stock + overlay, prints the directory that has it
#   kernel.sh path [FLAVOUR]
#                          prints that directory if the build in it is complete
#   kernel.sh variant DIR NAME LOG [-d OPTION]... MAKE-ARGUMENT...
#                          makes something in a copy of that build
#   kernel.sh make SRC OUT MAKE-ARGUMENT...
#                          makes something with the root file system's tools
#   kernel.sh host KDIR    builds a builder's own tree with his own tools
#
# A FLAVOUR is a file config/FLAVOUR.config, whose options go on top of those of
# config/guest.config; without one, $BID_FLAVOUR is it, if that is set.
#
# A build directory is $CACHE/kernel-<key>/{src,out}, or FLAVOUR-<key>; the key
# covers whatever the kernel depends on. src is a hard-link copy of the pristine tree in which the
# files of the overlay replace their links. A new key starts as a copy of the
# last build, and only files that differ get a new time stamp, so that
# make rebuilds no more than it must. Inside the root file system it is always
# built as /bid/src and /bid/out. The file `complete` appears when it is built.

. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/overlay-lib.sh"

CONFIG=$TOP/config/guest.config
# The files that say what is configured, and what the build directories are called.
CONFIGS=("$CONFIG")
NAME=kernel
KEEP=3
# Part of the key; a new number makes builds of before unused.
FORMAT=1

# Prints "SERIES TARBALL": the newest kernel that we have patches and source for.
find_source() {
	local series tarball tried=()
	for series in $(supported_series); do
		tarball=$ROOTFS/usr/src/linux-source-$series.tar.xz
		if [ -f "$tarball" ]; then
			echo "$series $tarball"
			return
		fi
		tried+=("linux-source-$series")
	done
	die "no kernel source that patches/ supports: looked for ${tried[*]:-any patches/<series>/} in the root file system's /usr/src, which has: $(cd "$ROOTFS/usr/src" && echo linux-source-*)"
}

# From here on it is about FLAVOUR. Those are large, and one of each has to do.
flavour() {
	[ -n "$1" ] || return 0
	[ -f "$TOP/config/$1.config" ] || die "no config/$1.config"
	CONFIGS+=("$TOP/config/$1.config")
	NAME=$1
	KEEP=1
}

unpack() { tar -C "$2" --strip-components=1 -xf "$1"; }

make_source() {
	unpack_into() { step "unpacking ${1##*/}" "$LOGS/source.log" unpack "$1" "$2"; }
	need xz xz-utils
	build_dir "$SOURCE" unpack_into "$1"
}

# Sets ROOTFS, SERIES and SOURCE.
need_source() {
	local tarball found
	ROOTFS=$("$TOP/scripts/rootfs.sh")
	found=$(find_source)
	read -r SERIES tarball <<<"$found"
	SOURCE=$CACHE/source-$SERIES-$(stat -c '%s %Y' "$tarball" | sha256sum | cut -c1-16)
	[ -d "$SOURCE" ] || locked source make_source "$tarball"
}

# The overlay's files that end up in the kernel image or its headers.
kernel_files() { overlay_files | grep -Ev '^(Documentation|tools|samples/perf_events)/' || true; }

# The patches that change more than tests: a new test is no new kernel.
kernel_patches() {
	local patch
	for patch in $(overlay_patches "$SERIES"); do
		! touched_files "$patch" | grep -qv '^tools/testing/' || echo "$patch"
	done
}

# Sets DIR, the build directory for the content as it is now.
need_dir() {
	local patches=() files=()
	need_source
	mapfile -t patches < <(kernel_patches)
	mapfile -t files < <(kernel_files)
	BASE="${SOURCE##*/} ${ROOTFS##*/}"
	DIR=$CACHE/$NAME-$({
		echo "$BASE $FORMAT"
		key "${CONFIGS[@]}" "${patches[@]}" "${files[@]/#/$TOP/}"
	} | sha256sum | cut -c1-16)
}

# kmake SRC OUT MAKE-ARGUMENTS... : make inside the root file system.
kmake() {
	local src=$1 out=$2
	shift 2
	"$TOP/scripts/enter.sh" -r "$src:/bid/src" -b "$out:/bid/out" -C /bid/out \
		-e KBUILD_BUILD_TIMESTAMP=2026-01-01 -e KBUILD_BUILD_VERSION=1 \
		-e KBUILD_BUILD_USER=bid -e KBUILD_BUILD_HOST=bid -- \
		make -C /bid/src O=/bid/out LLVM=1 -j"$JOBS" "$@"
}

# The most recent build that this one can start from, if any; held against
# pruning through the file descriptor SEED_FD. It need not have succeeded: make
# goes on from there as it would in place.
find_seed() {
	local marker dir
	SEED=
	while read -r marker; do
		dir=${marker%/tried}
		[ "$(cat "$dir/base")" = "$BASE" ] || continue
		exec {SEED_FD}>"$LOCKS/${dir##*/}"
		if flock -s -n "$SEED_FD" && [ -e "$marker" ]; then
			SEED=$dir
			return
		fi
		exec {SEED_FD}>&-
	done < <(find "$CACHE" -maxdepth 2 -path "$CACHE/$NAME-*/tried" -printf '%T@ %p\n' | sort -rn | cut -d' ' -f2-)
}

# Makes DIR/src and DIR/out; whatever an interrupted run left is redone.
start_dir() {
	[ ! -d "$DIR/src" ] || return 0
	rm -rf -- "$DIR"
	mkdir -p "$DIR"
	echo "$BASE" >"$DIR/base"
	find_seed
	if [ -n "$SEED" ]; then
		cp "$SEED/overlay.list" "$DIR/overlay.list"
		cp -a "$SEED/out" "$DIR/out"
		cp -al "$SEED/src" "$DIR/src.tmp"
		exec {SEED_FD}>&-
	else
		: >"$DIR/overlay.list"
		mkdir "$DIR/out"
		cp -al "$SOURCE" "$DIR/src.tmp"
	fi
	mv -T "$DIR/src.tmp" "$DIR/src"
}

# sync_src STAGE : makes DIR/src the pristine tree plus STAGE, touching only what
# differs and replacing files, never writing through their links.
sync_src() {
	local stage=$1 path from
	sed 's/^+//' "$stage.list" | sort -u - "$DIR/overlay.list" >"$DIR/overlay.list.tmp"
	mv "$DIR/overlay.list.tmp" "$DIR/overlay.list"
	while read -r path; do
		from=$SOURCE/$path
		[ ! -f "$stage/$path" ] || from=$stage/$path
		if [ ! -f "$from" ]; then
			rm -f -- "$DIR/src/$path"
			rmdir -p --ignore-fail-on-non-empty -- "$(dirname "$DIR/src/$path")" 2>/dev/null || true
		elif ! cmp -s "$from" "$DIR/src/$path"; then
			mkdir -p "$(dirname "$DIR/src/$path")"
			cp --remove-destination -- "$from" "$DIR/src/$path"
		fi
	done <"$DIR/overlay.list"
	sed 's/^+//' "$stage.list" >"$DIR/overlay.list"
}

# The options that a fragment asks for and a .config does not have.
missing_options() {
	local line name
	while read -r line; do
		case $line in
		CONFIG_*=*) grep -qxF -- "$line" "$2" || echo "$line" ;;
		'# CONFIG_'*' is not set')
			name=${line#\# }
			name=${name%% *}
			! grep -q "^$name=" "$2" || echo "$line"
			;;
		esac
	done <"$1"
}

# The last of each option's lines.
last_of_each() {
	awk '{
		name = $0 ~ /^CONFIG_/ ? substr($0, 1, index($0, "=") - 1) : $0 ~ /^# CONFIG_.* is not set$/ ? $2 : ""
		if (name == "") next
		if (name in line) lines[line[name]] = ""
		line[name] = ++n
		lines[n] = $0
	} END { for (i = 1; i <= n; i++) if (lines[i] != "") print lines[i] }' "$@"
}

# The fragment, without our own options where the overlay has none yet.
fragment() {
	if grep -rqs 'config PERF_BUILD_ID_OFFSET' "$1/kernel/events" "$1/init/Kconfig"; then
		last_of_each "${CONFIGS[@]}"
	else
		last_of_each "${CONFIGS[@]}" | grep -v PERF_BUILD_ID_OFFSET
	fi
}

# merge_config SRC OUT : tinyconfig and OUT/fragment make OUT/.config.
merge_config() {
	kmake "$1" "$2" tinyconfig
	"$TOP/scripts/enter.sh" -r "$1:/bid/src" -b "$2:/bid/out" -C /bid/out -- \
		/bid/src/scripts/kconfig/merge_config.sh -m -O /bid/out .config fragment
	kmake "$1" "$2" olddefconfig
}

update_config() { kmake "$1" "$2" olddefconfig; }

# Only when the fragment or a Kconfig file changed: a new .config costs time.
configure() {
	local stage=$1 now missing how
	now=$({
		cat "${CONFIGS[@]}"
		{ grep '/Kconfig[^/]*$' "$stage.list" || true; } | while read -r f; do cat "$stage/${f#+}"; done
	} | sha256sum)
	[ "$now" != "$(cat "$DIR/out/config-key" 2>/dev/null)" ] || return 0
	how=merge_config
	fragment "$DIR/src" >"$DIR/out/fragment.new"
	# Where only a Kconfig file changed, the options are those of before.
	if cmp -s "$DIR/out/fragment" "$DIR/out/fragment.new" && [ -e "$DIR/out/config-key" ]; then
		how=update_config
	fi
	rm -f "$DIR/out/config-key"
	mv "$DIR/out/fragment.new" "$DIR/out/fragment"
	step "configuring the kernel" "$LOGS/kernel-${DIR##*-}-config.log" "$how" "$DIR/src" "$DIR/out"
	missing=$(missing_options "$DIR/out/fragment" "$DIR/out/.config")
	[ -z "$missing" ] || die "these lines of ${CONFIGS[*]#"$TOP/"} did not make it into the .config:
$(sed 's/^/  /' <<<"$missing")"
	echo "$now" >"$DIR/out/config-key"
}

prune() {
	local dir fd n=0
	while read -r dir; do
		n=$((n + 1))
		[ "$n" -gt "$KEEP" ] && [ "$dir" != "$DIR" ] || continue
		exec {fd}>"$LOCKS/${dir##*/}"
		! flock -n "$fd" || rm -rf --one-file-system -- "$dir"
		exec {fd}>&-
	done < <(find "$CACHE" -maxdepth 1 -name "$NAME-*" -printf '%T@ %p\n' | sort -rn | cut -d' ' -f2-)
	find "$CACHE" -maxdepth 1 -name 'stock-*' -mtime +7 -exec rm -rf --one-file-system -- {} +
}

build_here() {
	local scratch title was=$DIR
	# The overlay may have changed while this waited; `build` then goes on from there.
	need_dir
	[ "$DIR" = "$was" ] && [ ! -e "$DIR/complete" ] || return 0
	scratch=$(mktemp -d)
	# shellcheck disable=SC2064
	trap "rm -rf -- '$scratch'" EXIT
	stage "$SOURCE" "$SERIES" "$scratch/stage"
	need_dir
	[ "$DIR" = "$was" ] || return 0
	start_dir
	sync_src "$scratch/stage"
	configure "$scratch/stage"
	touch "$DIR/tried"
	title="building the kernel"
	[ "$NAME" = kernel ] || title+=" ($NAME)"
	[ ! -f "$DIR/out/arch/x86/boot/bzImage" ] || title="re$title"
	step "$title" "$LOGS/kernel-${DIR##*-}.log" kmake "$DIR/src" "$DIR/out" bzImage headers
	touch "$DIR/complete"
}

build() {
	need_dir
	# One at a time: the next one starts from what this one has built.
	while [ ! -e "$DIR/complete" ]; do
		locked "build-$NAME" locked "${DIR##*/}" build_here
	done
	touch "$DIR" "$DIR/tried" "$DIR/complete"
	prune
	echo "$DIR"
}

# copy_out FROM TO : a build directory to go on from, without the images.
copy_out() {
	rm -rf -- "$2.tmp"
	cp -a "$1" "$2.tmp"
	rm -f -- "$2.tmp"/vmlinux* "$2.tmp/arch/x86/boot/bzImage"
	mv -T "$2.tmp" "$2"
}

# variant DIR NAME LOG [-d OPTION]... MAKE-ARGUMENT... : make in a copy of the out
# of build directory DIR, with options disabled; in the pristine source, without
# the overlay, if NAME is stock. Prints the directory.
variant() {
	local dir=$1 which=$2 log=$3 src=$1/src out=$1/out-$2 options=()
	shift 3
	while [ "${1:-}" = -d ]; do
		options+=(-d "$2")
		shift 2
	done
	if [ "$which" = stock ]; then
		# The same for every overlay.
		src=$CACHE/$(cut -d' ' -f1 "$dir/base")
		out=$CACHE/stock-$({ cat "$dir/base" && key "$CONFIG"; } | sha256sum | cut -c1-16)
	fi
	locked "${out##*/}" variant_here "$@"
	echo "$out"
}

variant_here() {
	[ -d "$out" ] || copy_out "$dir/out" "$out"
	if [ ! -e "$out/configured" ]; then
		[ ${#options[@]} -eq 0 ] || "$src/scripts/config" --file "$out/.config" "${options[@]}"
		step "configuring the kernel ($which)" "$log" kmake "$src" "$out" olddefconfig
		touch "$out/configured"
	fi
	step "building the kernel ($which)" "$log" kmake "$src" "$out" "$@"
}

# What a builder's own machine lacks, a line each.
missing_tools() {
	local tool
	for tool in make flex bison bc perl clang ld.lld llvm-nm llvm-objcopy llvm-ar rustc bindgen; do
		command -v "$tool" >/dev/null || echo "missing: $tool"
	done
	# With a compiler there, the kernel's own words say what is wrong with the rest.
	if command -v clang >/dev/null && command -v ld.lld >/dev/null; then
		make -s -C "$1" O="$2" LLVM=1 rustavailable 2>&1 | grep -E '^\*\*\* [A-Z]' | sed 's/^\*\*\* /Rust: /' || true
	fi
}

# A builder's own tree, with the tools of this machine, built outside of it.
host() {
	local kdir out missing status
	[ -d "$1" ] || die "no directory $1"
	kdir=$(cd "$1" && pwd)
	series_of "$kdir" >/dev/null
	status=$("$TOP/scripts/overlay.sh" status "$kdir")
	case $status in
	applied) ;;
	changed) die "$kdir has another version of the overlay; run 'make unapply apply KDIR=$kdir' first" ;;
	*) die "the overlay is not applied to $kdir; run 'make apply KDIR=$kdir' first" ;;
	esac
	[ ! -e "$kdir/.config" ] && [ ! -d "$kdir/include/config" ] ||
		die "$kdir was built in place; run 'make -C $kdir mrproper' first (it removes .config), or build it there yourself"
	out=$CACHE/kdir-$(printf '%s' "$kdir" | sha256sum | cut -c1-16)/out
	mkdir -p "$out"
	missing=$(missing_tools "$kdir" "$out")
	[ -z "$missing" ] || die "this machine cannot build $kdir with Rust:
$missing"
	if [ ! -e "$out/.config" ] || ! cmp -s "$CONFIG" "$out/fragment"; then
		cp "$CONFIG" "$out/fragment"
		step "configuring $kdir" "$LOGS/kdir-config.log" host_config "$kdir" "$out"
	fi
	step "building $kdir" "$LOGS/kdir.log" make -C "$kdir" O="$out" LLVM=1 -j"$JOBS" bzImage headers
	say "built $out/arch/x86/boot/bzImage"
}

host_config() {
	make -C "$1" O="$2" LLVM=1 tinyconfig
	(cd "$2" && "$1/scripts/kconfig/merge_config.sh" -m -O "$2" .config fragment)
	make -C "$1" O="$2" LLVM=1 olddefconfig
}

case ${1:-} in
make)
	shift
	kmake "$@"
	;;
variant)
	shift
	variant "$@"
	;;
source)
	need_source
	echo "$SOURCE"
	;;
build)
	flavour "${2:-${BID_FLAVOUR:-}}"
	build
	;;
path)
	flavour "${2:-${BID_FLAVOUR:-}}"
	need_dir
	[ -e "$DIR/complete" ] || die "the kernel is not built; run 'scripts/kernel.sh build ${CONFIGS[1]:+$NAME}'"
	echo "$DIR"
	;;
host)
	[ $# = 2 ] || die "usage: kernel.sh host KDIR"
	host "$2"
	;;
*) die "usage: kernel.sh source|build [FLAVOUR]|path [FLAVOUR]|host KDIR" ;;
esac
