#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# enter.sh: runs a command inside the root file system.
#
#   enter.sh [-b SRC:DST]... [-r SRC:DST]... [-C DIR] [-e NAME=VALUE]... -- COMMAND...
#
#   -b SRC:DST   binds SRC at DST, writable; DST is created under /bid
#   -r SRC:DST   the same, read-only
#   -C DIR       starts in DIR
#   -e NAME=VAL  sets one variable in the otherwise clean environment
#
# Everything is mounted in a private mount namespace and the root file system
# itself is read-only there: it stays as it was made, and nothing of the host
# stays mounted in it. A pristine view of it, for guests, is at /bid/rootfs.

. "$(dirname "$0")/lib.sh"

# Runs in the new namespace: $1 = root, then the options, "--", the command.
inside() {
	local root=$1 dir=/ env=() opt src dst ro
	shift
	mount --bind "$root" "$root"
	mount -o remount,bind,ro "$root"
	mount -t tmpfs -o mode=0755 bid "$root/bid"
	mkdir "$root/bid/rootfs"
	mount --bind "$root" "$root/bid/rootfs"
	mount -o remount,bind,ro "$root/bid/rootfs"
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs -o mode=1777 tmp "$root/tmp"
	mount -t tmpfs -o mode=0755 run "$root/run"
	bind_host "$root" /etc/resolv.conf
	bind_host "$root" /etc/hosts
	bind_host "$root" /etc/ssl/certs
	bind_host "$root" /usr/local/share/ca-certificates

	while [ "$1" != -- ]; do
		opt=$1
		case $opt in
		-b | -r)
			src=${2%:*} dst=$root${2##*:} ro=
			[ "$opt" = -r ] && ro=,ro
			if [ -d "$src" ]; then
				[ -d "$dst" ] || mkdir -p "$dst"
			elif [ ! -e "$dst" ]; then
				mkdir -p "$(dirname "$dst")"
				: >"$dst"
			fi
			mount --bind "$src" "$dst"
			[ -z "$ro" ] || mount -o "remount,bind$ro" "$dst"
			;;
		-C) dir=$2 ;;
		-e) env+=("$2") ;;
		esac
		shift 2
	done
	shift

	local name
	for name in $(compgen -e); do
		case $name in
		CI | TERM | *_proxy | *_PROXY | *_CERT* | *_CAINFO | *_CA_BUNDLE | CARGO_*TOKEN) ;;
		CARGO_REGISTR* | CARGO_SOURCE_* | CARGO_NET_* | CARGO_HTTP_* | DEBUGINFOD_URLS) ;;
		*) continue ;;
		esac
		env+=("$name=${!name}")
	done
	exec chroot "$root" /usr/bin/env -i \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		HOME=/tmp LANG=C.UTF-8 TERM=dumb PYTHONDONTWRITEBYTECODE=1 "${env[@]}" \
		/bin/sh -c 'cd "$1" && shift && exec "$@"' enter "$dir" "$@"
}

# A file or directory of the host that the network needs, over the root's own.
bind_host() {
	local src
	src=$(readlink -f "$2" || true)
	[ -n "$src" ] && [ -e "$src" ] && [ -e "$1$2" ] || return 0
	mount --bind "$src" "$1$2"
	mount -o remount,bind,ro "$1$2"
}

if [ "${1:-}" = --inside ]; then
	shift
	inside "$@"
fi

args=("$@")
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	case $1 in
	-b | -r | -C | -e) shift 2 || die "enter.sh: $1 wants an argument" ;;
	*) die "enter.sh: unknown option '$1'" ;;
	esac
done
[ $# -ge 2 ] || die "enter.sh: no command"
[ "$(id -u)" = 0 ] || die "entering the root file system needs root"
root=$("$TOP/scripts/rootfs.sh")
exec unshare --mount --propagation private -- "$0" --inside "$root" "${args[@]}"
