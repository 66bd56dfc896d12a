#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# cost.sh: what a sample costs, by what is in it, in instructions counted in the
# guest. The figures repeat.

. "$(dirname "$0")/lib.sh"

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
kernel=$("$TOP/scripts/kernel.sh" build)
"$TOP/scripts/enter.sh" -r "$TOP/scripts/guest:/bid/guest" -r "$kernel/out/usr/include:/bid/include" \
	-b "$share:/bid/share" -- gcc -O1 -Wall -Werror -fno-omit-frame-pointer \
	-fno-optimize-sibling-calls -I/bid/include -o /bid/share/cost /bid/guest/cost.c
"$TOP/scripts/boot.sh" --quiet --icount --kernel "$kernel" --share "$share" --timeout 900 -- /mnt/host/cost
