#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
#
# differential.py: compares what perf and perf-bid make of one recording.
#
#   differential.py frames PERF BID KALLSYMS    two outputs of `script`, frame by frame
#   differential.py shares PERF BID             two flat reports, the top 20 rows
#
# Frames: the same are address, symbol, offset and file. Every other frame must be of a
# class that is explained here, which is checked against the symbol tables by themselves
# (readelf, kallsyms):
#
#   other symbol     two symbols cover the address: another name for the same start, or
#                    one within the other, where perf-bid takes the inner one.
#   old program      a sample within execve(), when the old program is gone and the new
#                    one does not run yet. perf looks in the mappings of the old one.
#   broken chain     a stack walk came upon a value that perf takes for a marker it does
#                    not know (-4095 to -1). perf drops the whole callchain.
#   ended thread     a sample after a thread's EXIT record, which perf gives no name or
#                    mappings any more.
#   missing part     a deferred callchain that is not in the file: perf shows the number
#                    that announced it as an address, perf-bid where the program was.
#   no file          memory without a file: perf names a perf-PID.map that is not there.
#
# At least 99.5 % must be the same. Callers are named by their return addresses
# (--return-addresses), as perf does it: where a call is the last instruction of its
# function, that is the function behind.
#
# Shares: each of the first report's top 20 rows must be in the second, within 0.1 %.

import collections
import os
import re
import subprocess
import sys

HEAD = re.compile(r'^\s*(\S.*?)\s+(-?\d+)/(-?\d+)\s+([\d.]+):\s+(\S+?):\s*(.*)$')
FRAME = re.compile(r'^\s*([0-9a-f]+) (.*) \((.*)\)$')
NAMED = re.compile(r'^(.*)\+0x([0-9a-f]+)$')
ENOUGH = 99.5
WITHIN = 0.1

Frame = collections.namedtuple('Frame', 'ip name offset dso')


def die(text):
    sys.exit(f'differential.py: {text}')


def frame(line):
    found = FRAME.match(line)
    if not found:
        die(f'cannot read the frame {line!r}')
    ip, symbol, dso = found.groups()
    named = NAMED.match(symbol)
    name, offset = (named[1], int(named[2], 16)) if named else (symbol, None)
    return Frame(int(ip, 16), name, offset, dso)


def samples(path):
    """The samples of an output of script: what it is of, and its frames. By time: perf prints
    one whose callchain was deferred when that comes, and later ones before it."""
    out = []
    with open(path, errors='replace') as lines:
        for line in lines:
            line = line.rstrip('\n')
            if not line.strip():
                continue
            head = None if line[0] == '\t' else HEAD.match(line)
            if head:
                *key, rest = head.groups()
                out.append((tuple(key), [frame(rest)] if rest else []))
            elif not out:
                die(f'{path}: {line!r} belongs to no sample')
            else:
                out[-1][1].append(frame(line))
    return sorted(out, key=lambda sample: (float(sample[0][3]), sample[0][1:]))


class Symbols:
    """Addresses of symbols, by name, without the help of either tool."""

    def __init__(self, kallsyms):
        self.kernel = collections.defaultdict(set)
        with open(kallsyms) as lines:
            for line in lines:
                address, _, name = line.split()[:3]
                self.kernel[name].add(int(address, 16))
        self.files = {}

    def of(self, dso):
        if dso.startswith('[kernel') or dso.startswith('[guest'):
            return self.kernel
        if dso not in self.files:
            self.files[dso] = self.read(dso)
        return self.files[dso]

    def read(self, dso):
        found = collections.defaultdict(set)
        if not os.path.isfile(dso):
            return found
        notes = subprocess.run(['readelf', '-nW', dso], capture_output=True, text=True).stdout
        build_id = re.search(r'Build ID: (\w\w)(\w+)', notes)
        paths = [dso]
        if build_id:
            paths.append(f'/usr/lib/debug/.build-id/{build_id[1]}/{build_id[2]}.debug')
        for path in filter(os.path.isfile, paths):
            rows = subprocess.run(['readelf', '-sW', path], capture_output=True, text=True).stdout
            for row in map(str.split, rows.splitlines()):
                if len(row) >= 8 and row[0][:-1].isdigit() and row[6] != 'UND':
                    found[row[7].split('@')[0]].add(int(row[1], 16))
        return found

    def agree(self, perf, bid):
        """Whether the two names and offsets stand for one address."""
        table = self.of(perf.dso)
        apart = perf.offset - bid.offset
        return any(start + apart in table[bid.name] for start in table[perf.name])


def in_exec(chain):
    return any('execve' in f.name and f.dso.startswith('[') for f in chain)


def explain(perf, bid, chain, at, symbols):
    """The class of a difference at frame `at` of a callchain; None if there is none."""
    if perf.ip != bid.ip:
        # A processor and a count: no address of a program.
        cookie = perf == Frame(perf.ip, '[unknown]', None, '[unknown]') and perf.ip >> 32
        return 'missing part' if cookie and at == len(chain) - 1 and perf.ip < 1 << 44 else None
    nameless = bid.name == '[unknown]' and perf.name == '[unknown]'
    if nameless and re.match(r'/tmp/perf-\d+\.map$|//anon$|\[(heap|stack)\]$', perf.dso):
        return 'no file'
    if bid == Frame(bid.ip, '[unknown]', None, '[unknown]'):
        return 'old program' if in_exec(chain[:at]) else None
    if perf.dso != bid.dso or perf.offset is None or bid.offset is None:
        return None
    if not symbols.agree(perf, bid):
        return None
    return 'other symbol' if bid.offset <= perf.offset else None


def frames(perf_path, bid_path, kallsyms):
    perf, bid = samples(perf_path), samples(bid_path)
    if [key[1:] for key, _ in perf] != [key[1:] for key, _ in bid]:
        pairs = zip(perf, bid)
        here = next(((p[0], b[0]) for p, b in pairs if p[0][1:] != b[0][1:]), None)
        die(f'not the same samples: {len(perf)} and {len(bid)}; first difference: {here}')
    if not any(theirs for _, theirs in perf):
        die(f'{perf_path}: no frames')
    symbols = Symbols(kallsyms)
    total = same = 0
    classes, names, unexplained = collections.Counter(), collections.Counter(), []
    for (key, ours), (their_key, theirs) in zip(bid, perf):
        total += max(len(ours), len(theirs))
        ended = their_key[0] == f':{key[2]}' != key[0]
        if key[0] != their_key[0]:
            why = 'ended thread' if ended else 'old program' if in_exec(ours) else None
            names[why] += 1
            if why is None:
                unexplained.append((key, f'name {their_key[0]}', f'name {key[0]}'))
        if len(ours) != len(theirs):
            broken = not theirs and any(f.ip >= 2 ** 64 - 4095 for f in ours)
            if broken:
                # Not a frame that perf says anything about.
                classes['broken chain'] += 1
                total -= len(ours)
            else:
                unexplained.append((key, f'{len(theirs)} frames', f'{len(ours)} frames'))
            continue
        for at, (p, b) in enumerate(zip(theirs, ours)):
            if p == b:
                same += 1
                continue
            nothing = p == Frame(b.ip, '[unknown]', None, '[unknown]')
            why = 'ended thread' if ended and nothing else explain(p, b, ours, at, symbols)
            classes[why] += 1
            if why is None:
                unexplained.append((key, p, b))
    share = 100 * same / total
    print(f'{len(perf)} samples, {total} frames, {share:.2f} % the same;',
          ', '.join(f'{why or "unexplained"}: {n}' for why, n in sorted(classes.items(), key=str)))
    if names:
        print('other thread names:', ', '.join(f'{why or "unexplained"}: {n}' for why, n in names.items()))
    for key, p, b in unexplained[:20]:
        print('unexplained:', *key, f'\n  perf      {p}\n  perf-bid  {b}')
    if unexplained:
        sys.exit(1)
    if share < ENOUGH:
        die(f'less than {ENOUGH} % are the same')


def shares(path):
    """Percentages by name from rows of `12.34%  period  name`. The first is rounded."""
    rows = collections.Counter()
    with open(path, errors='replace') as lines:
        for line in lines:
            row = re.match(r'^\s*[\d.]+%\s+(\d+)\s+(.*\S)', line)
            if row:
                # Where there is no symbol, perf has a row for each address and perf-bid one
                # for each function, as far as the unwind table tells, or file+offset.
                name = re.sub(r'(\[function 0x\w+\]|0x\w{16}|\S+\+0x\w+)$', 'without a symbol', row[2])
                rows[re.sub(r'\s+', ' ', name)] += int(row[1])
    total = sum(rows.values())
    return collections.Counter({name: 100 * sum_ / total for name, sum_ in rows.items()})


def compare_shares(perf_path, bid_path):
    perf, bid = shares(perf_path), shares(bid_path)
    top = perf.most_common(20)
    off = [(name, share, bid[name]) for name, share in top if abs(bid[name] - share) > WITHIN]
    print(f'top {len(top)} rows, {sum(share for _, share in top):.1f} % of all; {len(off)} differ')
    for name, share, ours in off:
        print(f'  {share:.2f} % and {ours:.2f} %: {name}')
    if off or len(top) < 10:
        sys.exit(1)


match sys.argv[1:]:
    case ['frames', perf_path, bid_path, kallsyms]:
        frames(perf_path, bid_path, kallsyms)
    case ['shares', perf_path, bid_path]:
        compare_shares(perf_path, bid_path)
    case _:
        die('usage: frames PERF BID KALLSYMS | shares PERF BID')
