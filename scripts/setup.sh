#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# setup.sh: checks that this machine can do the job, one line for each thing that
# is missing, then makes the root file system and unpacks the kernel.

. "$(dirname "$0")/lib.sh"

NEED_GB=12
missing=()

check_machine() {
	local free
	[ "$(uname -m)" = x86_64 ] || missing+=("an x86-64 machine (this is $(uname -m))")
	[ "$(id -u)" = 0 ] || missing+=("root, for mounts, chroot and installing packages (run it with sudo)")
	unshare --mount true 2>/dev/null || [ "$(id -u)" != 0 ] ||
		missing+=("the permission to make mount namespaces (in a container: --privileged)")
	free=$(df --output=avail -BG "$CACHE" | tail -n 1 | tr -dc 0-9)
	# What is there already counts.
	compgen -G "$CACHE/kernel-*/complete" >/dev/null || [ "$free" -ge "$NEED_GB" ] ||
		missing+=("$NEED_GB GB of disk space in $CACHE ($free GB are free; BID_CACHE=DIR puts it elsewhere)")
}

# Only what the root file system still has to be made for.
check_debian() {
	! compgen -G "$CACHE/rootfs-*" >/dev/null || return 0
	command -v apt-get >/dev/null ||
		missing+=("apt (Debian or Ubuntu), to make the root file system; a kernel tree with tools of your own needs none: make kernel KDIR=...")
	[ -n "${DEBIAN_MIRROR:-}" ] || ! command -v apt-get >/dev/null ||
		apt-get indextargets --format '$(ORIGIN)' | grep -qx Debian ||
		missing+=("a Debian archive in apt's configuration (DEBIAN_MIRROR=URL names one)")
}

check_machine
check_debian
if [ ${#missing[@]} -gt 0 ]; then
	printf 'missing: %s\n' "${missing[@]}" >&2
	exit 1
fi
"$TOP/scripts/rootfs.sh" >/dev/null
"$TOP/scripts/kernel.sh" source >/dev/null
