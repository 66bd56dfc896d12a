#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
#
# bench.py [quick]: times perf-bid and stock perf on the same file, in turns. Run by
# bench.sh in the root file system; perf-bid and the workload are beside it.
#
# Of each command the least of several runs counts, as everything else that runs on
# the machine only makes it slower. CPU time (user and system, of all threads) is much
# less disturbed than elapsed time. Memory is the peak resident set, in which both
# tools' maps of the recording count.
#
# Then the recording is repeated, with times that go on, to files of up to 2 GB. What
# is in memory must not grow with them: there are no new symbols or stacks.

import itertools
import os
import struct
import subprocess
import sys
import time

QUICK = sys.argv[1:] == ['quick']
SAMPLES = 300_000
RUNS = 2 if QUICK else 5
MB = 1 << 20
SIZES = [64, 256] if QUICK else [64, 256, 1024, 2048]
RECORDING = '/tmp/perf.data'
BID = './perf-bid'

# What both are asked for, and how much faster perf-bid has to be. Both reports have
# children and callchains. With inlined functions, which are looked for by default, perf
# takes minutes for programs with DWARF: that is measured once, after the others.
PAIRS = [
    ('script', 'script --no-inline -i {} {}', 'script --no-inline -i {} {}', 5),
    ('report', 'report --stdio --no-inline -i {} {}', 'report --stdio --no-inline -i {} {}', 10),
    ('inject', 'inject -b -i {} -o {}', 'inject -q --sample-buildids -i {} -o {}', 4),
]
INLINED = [
    ('script, inlined', 'script -i {} {}', 'script -i {} {}', 5),
    ('report, inlined', 'report --stdio -i {} {}', 'report --stdio -i {} {}', 10),
]

RECORD_SAMPLE, FINISHED_ROUND, USER_TYPES = 9, 68, 64
IP, TID, TIME, IDENTIFIER = 1 << 0, 1 << 1, 1 << 2, 1 << 16
# What follows the time in the end of other records: ID, STREAM_ID, CPU, IDENTIFIER.
AFTER_TIME = [1 << 6, 1 << 9, 1 << 7, IDENTIFIER]
SAMPLE_TIME_FEATURE = 21


def die(text):
    sys.exit(f'bench.py: {text}')


class Cost:
    """What a run took: seconds elapsed, seconds of CPU, bytes of memory."""

    def __init__(self, wall, cpu, memory):
        self.wall, self.cpu, self.memory = wall, cpu, memory

    @staticmethod
    def least(costs):
        return Cost(*(min(getattr(cost, of) for cost in costs) for of in ('wall', 'cpu', 'memory')))


def run(command):
    """Runs a command with its output thrown away. To the kernel, the peak memory of a
    process begins with that of its parent: this one has to stay small."""
    with open('/tmp/errors', 'w+') as errors:
        start = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            errors.seek(0)
            die(f'{" ".join(command)}: exit code {child.returncode}\n{errors.read()[-2000:]}')
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def arguments(template, path, output):
    return template.format(path, output if ' -o ' in template else '').split()


def load():
    with open('/proc/loadavg') as text:
        return ' '.join(text.read().split()[:3])


def perf_record(output, command):
    line = f'perf record -q -N -g -c 50000 -e cpu-clock -o {output} -- {command}'
    print(f'# {line}')
    run(line.split())


def record():
    """Records until there are enough samples; returns what perf-bid says of the file."""
    perf_record('first.data', 'bash ./workload 2')
    for scale in (4, 8, 16, 32):
        perf_record(RECORDING, f'sh ./busy {scale}')
        totals = [BID, 'report', '--totals', '-i', RECORDING]
        totals = subprocess.run(totals, check=True, stdout=subprocess.PIPE, text=True).stdout
        samples = int(totals.split()[0].replace(',', ''))
        if samples >= SAMPLES:
            return totals.strip()
    die(f'{samples} samples are all there were, {SAMPLES} are wanted')


def compare():
    """Both tools on the recording; returns whether all is as fast and small as wanted."""
    print(f'\n{"":20}{"perf":>24}{"perf-bid":>27}{"perf / perf-bid":>28}')
    columns = f'{"wall s":>10}{"CPU s":>9}{"MB":>8}'
    print(f'{"":17}{columns}{columns}{columns.replace(" s", "  ")}   wanted')
    good = True
    once = [] if QUICK else [(*pair, 1) for pair in INLINED]
    for name, perfs, ours, factor, runs in [*((*pair, RUNS) for pair in PAIRS), *once]:
        costs = [], []
        for _ in range(runs):
            for tool, template, of in ('perf', perfs, costs[0]), (BID, ours, costs[1]):
                of.append(run([tool, *arguments(template, RECORDING, '/tmp/output')]))
        perf, bid = map(Cost.least, costs)
        ratios = [perf.wall / bid.wall, perf.cpu / bid.cpu, perf.memory / bid.memory]
        reached = min(ratios[:2]) >= factor and ratios[2] >= 2
        good &= reached
        cells = ''.join(f'{c.wall:10.2f}{c.cpu:9.2f}{c.memory / MB:8.0f}' for c in (perf, bid))
        print(f'{name:18}{cells[1:]}{ratios[0]:9.1f}x{ratios[1]:8.1f}x{ratios[2]:7.1f}x'
              f'   {factor}x, 2x: {"yes" if reached else "NO"}')
    return good


class Recording:
    """An ordinary recording in parts: what comes once, and what can be repeated."""

    def __init__(self, path):
        with open(path, 'rb') as file:
            self.bytes = bytes_ = file.read()
        magic, _, self.attr_size, attrs, attrs_len, self.data_at, data_len = struct.unpack_from('<8s6Q', bytes_)
        if magic != b'PERFILE2':
            die(f'{path} is no perf.data of this machine')
        types = {struct.unpack_from('<Q', bytes_, at + 24)[0] for at in range(attrs, attrs + attrs_len, self.attr_size)}
        if len(types) != 1 or not (sample_type := types.pop()) & TIME:
            die(f'{path}: all events need the same fields, and the time')
        self.end = self.data_at + data_len
        in_sample = 8 + 8 * sum(sample_type & bit != 0 for bit in (IDENTIFIER, IP, TID))
        from_end = 8 + 8 * sum(sample_type & bit != 0 for bit in AFTER_TIME)
        once, again, self.times, times = bytearray(), bytearray(), [], []
        at = self.data_at
        while at < self.end:
            type_, _, size = struct.unpack_from('<IHH', bytes_, at)
            timed = type_ < USER_TYPES
            when = at + (in_sample if type_ == RECORD_SAMPLE else size - from_end)
            if timed and (stamp := struct.unpack_from('<Q', bytes_, when)[0]):
                self.times.append((len(again) + when - at, stamp))
                times.append(stamp)
            if type_ == FINISHED_ROUND or timed and stamp:
                again += bytes_[at:at + size]
            else:
                once += bytes_[at:at + size]
            at += size
        # One round after the other: no record of the next is older.
        again += struct.pack('<IHH', FINISHED_ROUND, 0, 8)
        self.once, self.again = once, again
        self.lasts = max(times) - min(times) + 1

    def repeat(self, path, size):
        """Writes a recording of about `size` bytes."""
        with open(path, 'wb') as out:
            out.write(self.bytes[:self.data_at])
            out.write(self.once)
            for again in itertools.count():
                for at, stamp in self.times:
                    struct.pack_into('<Q', self.again, at, stamp + again * self.lasts)
                out.write(self.again)
                if out.tell() + len(self.again) > size:
                    break
            end = out.tell()
            out.write(self.features(end, again * self.lasts))
            out.seek(48)
            out.write(struct.pack('<Q', end - self.data_at))

    def features(self, end, later):
        """What follows the records, behind records that end there and so much later."""
        tail = bytearray(self.bytes[self.end:])
        bits = int.from_bytes(self.bytes[72:104], 'little')
        for index, bit in enumerate(bit for bit in range(256) if bits >> bit & 1):
            at, _ = struct.unpack_from('<2Q', tail, 16 * index)
            if bit == SAMPLE_TIME_FEATURE:
                first, last = struct.unpack_from('<2Q', tail, at - self.end)
                struct.pack_into('<2Q', tail, at - self.end, first, last and last + later)
            struct.pack_into('<Q', tail, 16 * index, at - self.end + end)
        return tail


def grow():
    """perf-bid on files of several sizes, and perf on those that it can read in time."""
    print(f'\n{"":17}{"MB":>6}{"wall s":>10}{"CPU s":>9}{"CPU s/GB":>10}{"memory MB":>11}')
    path, output = 'big.data', 'output'
    for size in SIZES:
        repeat(path, size)
        size_mb = os.stat(path).st_size / MB
        for name, _, ours, _ in PAIRS:
            costs = [run([BID, *arguments(ours, path, output)]) for _ in range(1 if size > 256 else 2)]
            show(f'perf-bid {name}', size_mb, Cost.least(costs))
            if os.path.exists(output):
                os.unlink(output)
    if QUICK:
        return
    repeat(path, 256)
    for name, perfs, _, _ in PAIRS:
        show(f'perf {name}', os.stat(path).st_size / MB, run(['perf', *arguments(perfs, path, output)]))


def repeat(path, size_mb):
    """Writes the recording, repeated to that size, in a process of its own."""
    subprocess.run([sys.executable, sys.argv[0], 'repeat', path, str(size_mb)], check=True)


def show(name, size_mb, cost):
    print(f'{name:17}{size_mb:6.0f}{cost.wall:10.2f}{cost.cpu:9.2f}{cost.cpu * 1024 / size_mb:10.2f}'
          f'{cost.memory / MB:11.0f}')


def main():
    sys.stdout.reconfigure(line_buffering=True)
    print(f'# load of the machine before: {load()}, {os.cpu_count()} CPUs')
    print(f'# {record()}')
    print(f'# {os.stat(RECORDING).st_size / MB:.0f} MB; the least of {RUNS} runs')
    good = compare()
    grow()
    print(f'\n# load of the machine after: {load()}')
    if not good:
        die('not all is as fast and small as wanted')


if sys.argv[1:2] == ['repeat']:
    Recording(RECORDING).repeat(sys.argv[2], int(sys.argv[3]) * MB)
else:
    main()
