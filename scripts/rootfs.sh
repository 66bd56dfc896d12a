#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rootfs.sh: makes (or finds) the Debian root file system that holds the kernel
# toolchain, the kernel source and the emulator, and prints its path.

. "$(dirname "$0")/lib.sh"

PACKAGES=$TOP/config/rootfs.packages
ROOTFS=$CACHE/rootfs-$(key "$PACKAGES" "$0")
SUITE=trixie

# The Debian archive that this machine's own apt uses.
mirror() {
	local uri
	if [ -n "${DEBIAN_MIRROR:-}" ]; then
		echo "$DEBIAN_MIRROR"
		return
	fi
	uri=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 2>/dev/null |
		awk -F'|' '$1 == "Debian" && $2 == "Debian" { print $3; exit }')
	[ -n "$uri" ] || die "no Debian archive in this machine's apt configuration; set DEBIAN_MIRROR=URL"
	echo "$uri"
}

make_rootfs() {
	local uri=$1 out=$2 packages kernel
	packages=$(sed 's/#.*//' "$PACKAGES" | tr -s ' \n' ',' | sed 's/^,//; s/,$//')
	mmdebstrap --mode=root --variant=apt --include="$packages" --verbose \
		--aptopt='APT::Install-Recommends "false"' \
		--aptopt="APT::Default-Release \"$SUITE-backports\"" \
		--customize-hook='rm -rf "$1"/usr/share/doc/* "$1"/usr/share/locale/*' \
		--customize-hook='mkdir -p "$1"/bid "$1"/mnt/host && ln -sf /bin/busybox "$1"/usr/sbin/poweroff' \
		"$SUITE" "$out" \
		"deb $uri $SUITE main" "deb $uri $SUITE-backports main" "deb $uri $SUITE-updates main"
	kernel=$(ls "$out"/usr/src/linux-source-*.tar.xz)
	echo "kernel source: $kernel"
}

build() {
	need mmdebstrap mmdebstrap
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || need debian-archive-keyring debian-archive-keyring
	local uri
	uri=$(mirror)
	make_into() { step "making the root file system" "$LOGS/rootfs.log" make_rootfs "$uri" "$1"; }
	build_dir "$ROOTFS" make_into
}

if [ ! -e "$ROOTFS" ]; then
	[ "$(id -u)" = 0 ] || die "making the root file system needs root"
	locked rootfs build
fi
echo "$ROOTFS"
