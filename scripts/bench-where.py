#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""bench-where.py SYSTEM.MAP COUNTED: what guest/bench.c's calls execute, by function.

COUNTED is what count.c has written.
"""

import bisect
import collections
import sys

CALLS = 2000 * 5  # of guest/bench.c
SHOWN = 24


def main():
    with open(sys.argv[1], encoding="utf-8") as lines:
        symbols = [line.split() for line in lines]
    symbols = sorted((int(at, 16), name) for at, kind, name in symbols if kind in "tTwW")
    starts = [at for at, _ in symbols]
    spent = collections.Counter()
    with open(sys.argv[2], encoding="utf-8") as lines:
        for line in lines:
            address, instructions = line.split()
            at = bisect.bisect_right(starts, int(address, 16)) - 1
            spent[symbols[at][1] if at >= 0 else "(user mode)"] += int(instructions)
    print(f"{sum(spent.values()) / CALLS:10.1f}  all")
    for name, instructions in spent.most_common(SHOWN):
        print(f"{instructions / CALLS:10.1f}  {name}")


main()
