#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""bench-tables.py ROWS JSON: prints the tables of bench-kernel.sh.

ROWS has a JSON object a line, as guest/bench.c prints them; JSON is where all of
them are written to.
"""

import json
import sys

LIMIT = 0.2  # per cent that an ordinary sample may cost more than on the stock kernel
ORDINARY = ["nothing", "tid", "chain", "chain_deferred"]


def table(title, rows, column, field):
    """Modes against the values of `column`."""
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    columns = list(dict.fromkeys(column(row) for row in rows))
    values = {(row["mode"], column(row)): row[field] for row in rows}

    print(f"\n{title}\n{'':16}" + "".join(f"{at:>16}" for at in columns))
    for mode in modes:
        cells = (values.get((mode, at)) for at in columns)
        print(f"{mode:16}" + "".join(f"{'-' if cell is None else round(cell):>16}" for cell in cells))


def compare(rows):
    """What ordinary samples cost more than on the stock kernel."""
    cost = {
        (row["kernel"], row["mode"], row["depth"]): row["instructions"]
        for row in rows
        if row["dsos"] == 1 and row["mode"] in ORDINARY
    }
    print(f"\nmore than on the stock kernel, where {LIMIT} % are allowed")
    for (kernel, mode, depth), instructions in cost.items():
        stock = cost.get(("stock", mode, depth))
        if kernel == "stock" or stock is None:
            continue
        more = 100 * (instructions - stock) / stock
        note = "  too much" if more > LIMIT else ""
        print(
            f"{kernel:6}{mode:16}depth {depth:3}: {stock:10.1f} {instructions:10.1f} "
            f"{more:+7.2f} %{note}"
        )


def main():
    with open(sys.argv[1], encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]

    def files(row):
        return f"{row['dsos']} {row['order']}"

    for kernel in dict.fromkeys(row["kernel"] for row in rows):
        ours = [row for row in rows if row["kernel"] == kernel]
        one = [row for row in ours if row["dsos"] == 1]
        deep = [row for row in ours if row["depth"] == 30]
        table(f"{kernel}: instructions of a sampled system call, by depth", one,
              lambda row: row["depth"], "instructions")
        table(f"{kernel}: the same at depth 30, by files in the callchain", deep, files,
              "instructions")
        if kernel == "ours":
            table(f"{kernel}: bytes in the ring, by depth", one, lambda row: row["depth"], "bytes")
    compare(rows)

    with open(sys.argv[2], "w", encoding="utf-8") as out:
        json.dump(rows, out, indent=0)


main()
