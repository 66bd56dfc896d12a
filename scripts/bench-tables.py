#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""bench-tables.py DIR JSON: prints the tables of bench-kernel.sh.

DIR has what the guests said (`*.rows`, a JSON object a line), what the emulator has
counted for each row of `cost` (`*.counted`, see count.c), the kernels' symbols
(`*.map`), and recordings. JSON is where all of the figures are written to.
"""

import bisect
import collections
import json
import os
import struct
import subprocess
import sys

KERNELS = ["ours", "off", "stock"]
LIMIT = 0.2  # per cent that an ordinary sample may cost more than without us
CLOCK_LIMIT = 0.5  # per cent by which the guest's clock and the count may differ

# What rows are called
MODES = {
    "nothing": "not sampled",
    "tid": "no callchain",
    "chain": "addresses",
    "chain_deferred": "addresses, deferred",
    "bid": "build IDs, immediate",
    "bid_deferred": "build IDs, deferred",
    "bpf_empty": "BPF that does nothing",
    "bpf_dropped": "BPF, not delivered",
    "bpf": "BPF",
    "bpf_sleepable": "sleepable BPF",
}
# Where samples are taken; what costs nothing but to get there; the BPF program that does
# the same as we (in a uprobe, it may sleep when it asks for a stack).
CALL, PROBE = "system call", "uprobe"
BASE = {CALL: "nothing", PROBE: "bpf_empty"}
LIKE = {CALL: {"bid": "bpf", "bid_deferred": "bpf"},
        PROBE: {"bid": "bpf", "bid_deferred": "bpf_sleepable"}}
# What is to cost no more than without us
ORDINARY = ["nothing", "tid", "chain", "chain_deferred", "bpf"]

SHOWN = 32  # functions
NAME = 58  # columns of a name


def die(text):
    sys.exit(f"bench-tables.py: {text}")


def rows_of(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Symbols:
    """The functions of a kernel, by address."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as lines:
            found = [line.split() for line in lines]
        found = sorted((int(at, 16), name) for at, kind, name in found if kind in "tTwW")
        names = "\n".join(name for _, name in found)
        plain = subprocess.run(["llvm-cxxfilt"], input=names, text=True, check=True,
                               stdout=subprocess.PIPE).stdout
        self.starts = [at for at, _ in found]
        self.names = plain.split("\n")

    def name(self, address):
        if address >> 63 == 0:
            return "(user mode)"
        # what BPF programs are compiled to comes after the kernel
        at = bisect.bisect_right(self.starts, address) - 1
        return self.names[at] if at + 1 < len(self.starts) else "(BPF programs)"


def counted(path, symbols):
    """What the emulator has counted, for each row."""
    found = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            kind, *values = line.split()
            if kind == "row":
                names = "counted interrupted instructions repetitions least most emulated"
                found.append(dict(zip(names.split(), map(int, values)),
                                  functions=collections.Counter()))
            else:
                name = symbols.name(int(values[0], 16))
                found[-1]["functions"][name] += int(values[1])
    return found


def costs_of(directory, kernel):
    """The rows of a kernel: figures are those of one call."""
    rows = rows_of(f"{directory}/{kernel}.rows")
    counts = counted(f"{directory}/{kernel}.counted", Symbols(f"{directory}/{kernel}.map"))
    if len(rows) != len(counts):
        die(f"{kernel}: {len(rows)} rows, of which {len(counts)} were counted")
    for row, count in zip(rows, counts):
        what = f"{kernel}, {row['where']}, {row['mode']}, depth {row['depth']}"
        calls = count.pop("counted")
        if not calls or calls + count["interrupted"] != row["calls"]:
            die(f"{what}: {calls} and {count['interrupted']} of {row['calls']} calls")
        if row["resolved"] != row["frames"]:
            die(f"{what}: {row['resolved']} of {row['frames']} frames are resolved")
        # Both have all calls, and each repetition.
        emulated, clock = count.pop("emulated"), row.pop("clock")
        if abs(emulated - clock) > clock * CLOCK_LIMIT / 100:
            die(f"{what}: {emulated} instructions in {clock} ns of the guest's clock")
        row.update(kernel=kernel, **count)
        for name in ("instructions", "repetitions", "frames", "resolved"):
            row[name] /= calls if name in count else row["calls"]
        row["functions"] = {name: n / calls for name, n in count["functions"].items()}
    return rows


class Costs:
    """Rows by kernel, place, mode, depth and files."""

    def __init__(self, rows):
        self.rows = {
            (row["kernel"], row["where"], row["mode"], row["depth"],
             (row["dsos"], row["order"])): row for row in rows
        }

    def has(self, kernel, where, mode):
        return (kernel, where, mode, *DEPTHS[0]) in self.rows

    def sample(self, kernel, where, mode, *shape):
        """Instructions of the sample: what is more than without."""
        row = self.rows.get((kernel, where, mode, *shape))
        if row is None or mode == BASE[where]:
            return row and row["instructions"]
        base = self.rows[kernel, where, BASE[where], *shape]
        return row["instructions"] - base["instructions"]

    def functions(self, kernel, where, mode, *shape):
        """The same by function."""
        found = collections.Counter(self.rows[kernel, where, mode, *shape]["functions"])
        if mode != BASE[where]:
            found.subtract(self.rows[kernel, where, BASE[where], *shape]["functions"])
        return found


ONE = (1, "grouped")
DEPTHS = [(1, ONE), (10, ONE), (30, ONE), (127, ONE)]
DEPTH_NAMES = ["1 frame", "10 frames", "30 frames", "127 frames"]
FILES = [(30, ONE), (30, (5, "grouped")), (30, (5, "alternating")), (30, (20, "grouped")),
         (30, (20, "alternating"))]
FILE_NAMES = ["1 file", "5 files", "5 by turns", "20 files", "20 by turns"]
# What the instructions are shown of, by function
WHERE = [
    (CALL, ["bid", "bid_deferred", "bpf"], (30, ONE), "30 frames of 1 file"),
    (CALL, ["bid", "bid_deferred", "bpf"], (30, (20, "alternating")),
     "30 frames of 20 files by turns"),
    (CALL, ["bid", "bid_deferred", "bpf"], (127, ONE), "127 frames of 1 file"),
    (PROBE, ["bid_deferred", "bpf_sleepable"], (30, (20, "alternating")),
     "30 frames of 20 files by turns"),
]


def cell(value):
    return "-" if value is None else f"{value:.0f}"


def name_of(mode):
    return f"{MODES[mode[1]]}, {mode[0]}" if isinstance(mode, tuple) else MODES[mode]


def table(title, modes, names, value, like):
    """Modes, or kernels and modes, against columns, some of them beside what is like them."""
    print(f"\n{title}\n{'':28}" + "".join(f"{name:>12}{'of BPF':>8}" for name in names))
    for mode in modes:
        line = f"{name_of(mode):28}"
        for at in range(len(names)):
            mine, its = value(mode, at), mode in like and value(like[mode], at)
            ratio = f"{100 * mine / its:.0f} %" if its else ""
            line += f"{cell(mine):>12}{ratio:>8}"
        print(line.rstrip())


def kernel_tables(costs, kernel):
    for where in (CALL, PROBE):
        modes = [mode for mode in MODES if costs.has(kernel, where, mode)]

        def sample(shapes):
            return lambda mode, i: costs.sample(kernel, where, mode, *shapes[i])

        def other(field):
            return lambda mode, i: costs.rows[(kernel, where, mode, *DEPTHS[i])][field]

        title = f"{kernel}, {where}: instructions of a sample"
        base = MODES[BASE[where]]
        table(f"{title}, by depth of the callchain (\"{base}\" is all that there is then)", modes,
              DEPTH_NAMES, sample(DEPTHS), LIKE[where])
        table(f"{title} of 30 frames, by files that these are in", modes, FILE_NAMES,
              sample(FILES), LIKE[where])
        if kernel == "ours" and where == CALL:
            table(f"{kernel}, {where}: bytes of a sample in the ring buffer", modes,
                  DEPTH_NAMES, other("bytes"), LIKE[where])
            table(f"{kernel}, {where}: repetitions of string instructions (bytes that are copied "
                  "or cleared, mostly); each such instruction is one above", modes, DEPTH_NAMES,
                  other("repetitions"), {})
    if kernel == "ours":
        for where, modes, shape, name in WHERE:
            by_function(costs, kernel, where, modes, shape, name)


def beside_stock_bpf(costs):
    """What we do against BPF as it is without our kernel: some of ours makes it quicker, too."""
    for where in (CALL, PROBE):
        like = {("ours", mode): ("stock", its) for mode, its in LIKE[where].items()}
        like |= {("ours", its): ("stock", its) for its in LIKE[where].values()}
        modes = [*like, *dict.fromkeys(like.values())]

        def sample(shapes):
            return lambda mode, i: costs.sample(mode[0], where, mode[1], *shapes[i])

        title = f"{where}: instructions of a sample beside BPF on the stock kernel"
        table(title, modes, DEPTH_NAMES, sample(DEPTHS), like)
        table(f"{title}, 30 frames", modes, FILE_NAMES, sample(FILES), like)


def by_function(costs, kernel, where, modes, shape, name):
    """Functions against modes that are like each other."""
    by_mode = [costs.functions(kernel, where, mode, *shape) for mode in modes]
    most = collections.Counter()
    for functions in by_mode:
        for function, n in functions.items():
            most[function] = max(most[function], n)
    shown = [function for function, _ in most.most_common(SHOWN)]

    def line(what, values):
        if len(what) > NAME:
            what = what[:NAME // 2 - 2] + "..." + what[-NAME // 2 + 2:]
        print(f"{what:{NAME}}" + "".join(f"{round(value) or '-':>22}" for value in values))

    print(f"\n{kernel}, {where}: instructions of a sample by function, {name}\n{'':{NAME}}"
          + "".join(f"{MODES[mode]:>22}" for mode in modes))
    for function in shown:
        line(function, [functions[function] for functions in by_mode])
    line("others", [sum(n for function, n in functions.items() if function not in shown)
                    for functions in by_mode])
    line("all", [sum(functions.values()) for functions in by_mode])


def compare(costs, kernels, base):
    """What ordinary samples cost more than on another kernel, and where."""
    print(f"\ninstructions of an ordinary sample (!: over {LIMIT} % more than on \"{base}\")")
    print(f"{'':36}{base:>10}" + "".join(f"{kernel:>10}{'':11}" for kernel in kernels))
    for mode in ORDINARY:
        for shape in DEPTHS:
            least = costs.sample(base, CALL, mode, *shape)
            line = f"{MODES[mode]:24}{shape[0]:4} frames {least:10.1f}"
            for kernel in kernels:
                ours = costs.sample(kernel, CALL, mode, *shape)
                more = 100 * (ours - least) / least
                line += f"{ours:10.1f}{more:+8.2f} %" + ("!" if more > LIMIT else " ")
            print(line.rstrip())
    for kernel in kernels:
        for mode in ORDINARY:
            differing(costs, kernel, base, mode)


def differing(costs, kernel, base, mode):
    less, ours = (costs.functions(which, CALL, mode, 30, ONE) for which in (base, kernel))
    more = {name: ours[name] - less[name] for name in ours.keys() | less.keys()}
    shown = sorted((n, name) for name, n in more.items() if abs(n) >= 0.5)
    if not shown:
        return
    print(f"\n{kernel} against {base}, {MODES[mode]}, 30 frames, by function: "
          f"{sum(more.values()):+.1f}")
    for n, name in reversed(shown):
        print(f"{n:+10.1f}  {name}")


def shares(rows):
    """How many frames are resolved, of what."""
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    conditions = list(dict.fromkeys((row["state"], row["where"]) for row in rows))
    found = {(row["mode"], row["state"], row["where"]): row for row in rows}
    print(f"\nuser frames that are resolved, of callchains through 20 files\n{'':24}"
          + "".join(f"{state:>13}" for state, _ in conditions) + f"\n{'':24}"
          + "".join(f"{at:>13}" for _, at in conditions))
    for mode in modes:
        line = f"{MODES[mode]:24}"
        for condition in conditions:
            row = found.get((mode, *condition))
            line += f"{100 * row['resolved'] / row['frames']:11.2f} %" if row else f"{'-':>13}"
        print(line)
    print("\nthe others, by reason")
    for row in rows:
        others = {name: n for name, n in row["status"].items() if name != "resolved"}
        if others:
            print(f"{MODES[row['mode']]:24}{row['state']:>10}, {row['where'] + ':':13} "
                  + ", ".join(f"{name} {100 * n / row['frames']:.2f} %"
                              for name, n in others.items()))
    for row in rows:
        # the last one may come when the event is off already
        if row["lost"] or row["announced"] > row["came"] + 1:
            print(f"{MODES[row['mode']]}, {row['state']}, {row['where']}: {row['lost']} lost, "
                  f"{row['announced']} callchains announced, {row['came']} came")


RECORD_SAMPLE, RECORD_DEFERRED = 9, 22
TIME_AFTER = [1 << 16, 1 << 0, 1 << 1]  # IDENTIFIER, IP, TID
TIME = 1 << 2


class Recording:
    """What of a perf.data file says how it began."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        self.size = len(data)
        magic, _, attr_size, attrs, _, start, size = struct.unpack_from("=8sQQQQQQ", data)
        if magic != b"PERFILE2":
            die(f"{path} is no recording")
        sample_type = struct.unpack_from("=Q", data, attrs + 24)[0]
        if not sample_type & TIME or not attr_size:
            die(f"{path}: samples without times")
        before = 8 + 8 * sum(bool(sample_type & bit) for bit in TIME_AFTER)
        self.samples, self.sample_bytes, self.first, self.before_first = 0, 0, None, None
        at = start
        while at < start + size:
            kind, _, length = struct.unpack_from("=IHH", data, at)
            if kind == RECORD_SAMPLE:
                time = struct.unpack_from("=Q", data, at + before)[0]
                if self.first is None:
                    self.before_first = at - start
                self.first = min(time, self.first or time)
                self.samples += 1
            if kind in (RECORD_SAMPLE, RECORD_DEFERRED):
                self.sample_bytes += length
            at += length
        if self.first is None:
            die(f"{path}: no samples")


def startups_of(directory):
    """Of what was recorded several times, the one that began first."""
    best = {}
    for row in rows_of(f"{directory}/startup.rows"):
        recording = Recording(f"{directory}/{row.pop('file')}")
        row.update(size=recording.size, samples=recording.samples,
                   sample_bytes=recording.sample_bytes / recording.samples,
                   before_first_sample=recording.before_first,
                   first_sample_ns=recording.first - row.pop("start"))
        key = row["tool"], row["processes"]
        best[key] = min(row, best.get(key, row), key=lambda row: row["first_sample_ns"])
    return list(best.values())


def startups(rows):
    """Tools against numbers of processes."""
    numbers = list(dict.fromkeys(row["processes"] for row in rows))
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    found = {(row["tool"], row["processes"]): row for row in rows}

    def print_table(title, text):
        print(f"\n{title}\n{'already running processes':44}"
              + "".join(f"{number:>12}" for number in numbers))
        for tool in tools:
            print(f"{tool:44}" + "".join(f"{text(found[tool, number]):>12}" for number in numbers))

    print_table("milliseconds from the tool's start to the first sample (of an instruction a "
                "nanosecond)", lambda row: f"{row['first_sample_ns'] / 1e6:.1f}")
    print_table("kilobytes before the first sample",
                lambda row: f"{row['before_first_sample'] / 1000:.1f}")
    print_table("kilobytes of the recording", lambda row: f"{row['size'] / 1000:.1f}")
    print_table("samples in it", lambda row: row["samples"])
    print_table("bytes for each of its samples", lambda row: f"{row['sample_bytes']:.0f}")


def main():
    directory, out = sys.argv[1:]
    kernels = [kernel for kernel in KERNELS if os.path.exists(f"{directory}/{kernel}.rows")]
    rows = [row for kernel in kernels for row in costs_of(directory, kernel)]
    result = {}
    if rows:
        costs = Costs(rows)
        for kernel in kernels:
            kernel_tables(costs, kernel)
        if {"ours", "stock"} <= set(kernels):
            beside_stock_bpf(costs)
        if "stock" in kernels:
            compare(costs, kernels[:-1], "stock")
        # The same sources but for what is built in: some patches make a sample cheaper.
        if {"ours", "off"} <= set(kernels):
            compare(costs, ["ours"], "off")
        for row in rows:
            row["functions"] = {name: round(n, 1) for name, n in row["functions"].items()}
        result["costs"] = rows
    if os.path.exists(f"{directory}/shares.rows"):
        result["shares"] = rows_of(f"{directory}/shares.rows")
        shares(result["shares"])
    if os.path.exists(f"{directory}/startup.rows"):
        result["startup"] = startups_of(directory)
        startups(result["startup"])
    with open(out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)


main()
