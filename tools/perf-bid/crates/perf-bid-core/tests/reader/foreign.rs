// SPDX-License-Identifier: GPL-2.0
//! Turns a recording of this machine into what one of the other byte order would have written.
//!
//! Nothing here is taken from the reader: a record is a list of field widths, as
//! `include/uapi/linux/perf_event.h` and `tools/lib/perf/include/perf/event.h` declare them, and
//! bit fields are laid out from the other end, as compilers do.

/// What a recording says about the layout of its records.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    sample_type: u64,
    read_format: u64,
    branch: u64,
    regs_user: u32,
    regs_intr: u32,
    id_all: bool,
}

impl Layout {
    /// From an attr in native order.
    pub fn of(attr: &[u8]) -> Self {
        let tail = |at| if attr.len() >= at + 8 { u64_at(attr, at) } else { 0 };
        Self {
            sample_type: u64_at(attr, 24),
            read_format: u64_at(attr, 32),
            branch: tail(72),
            regs_user: tail(80).count_ones(),
            regs_intr: tail(96).count_ones(),
            id_all: u64_at(attr, 40) >> 18 & 1 == 1,
        }
    }
}

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Walks over native bytes and reverses field after field.
struct Flip<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Flip<'_> {
    fn field(&mut self, width: usize) -> u64 {
        let mut value = [0; 8];
        let field = &mut self.bytes[self.at..self.at + width];
        value[..width].copy_from_slice(field);
        field.reverse();
        self.at += width;
        // The host of these tests is little-endian, as are the fixtures.
        u64::from_le_bytes(value)
    }

    fn fields(&mut self, widths: &[usize]) {
        for &width in widths {
            self.field(width);
        }
    }

    fn words(&mut self, nr: u64) {
        for _ in 0..nr {
            self.field(8);
        }
    }

    fn skip(&mut self, len: usize) {
        self.at += len;
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Bit fields of these widths, in the order of their declaration.
    fn bits(&mut self, widths: &[u32]) {
        let total: u32 = widths.iter().sum();
        let size = total as usize / 8;
        let mut value = 0u64;
        for at in (0..size).rev() {
            value = value << 8 | u64::from(self.bytes[self.at + at]);
        }
        let (mut low, mut out) = (0, 0u64);
        for width in widths {
            let field = value >> low & ((1 << width) - 1);
            low += width;
            out |= field << (total - low);
        }
        for at in 0..size {
            self.bytes[self.at + at] = (out >> (8 * (size - 1 - at))) as u8;
        }
        self.at += size;
    }

    /// Lists of strings and numbers in a feature section.
    fn string(&mut self) {
        let len = self.field(4);
        self.skip(len as usize);
    }
}

/// `perf_event_attr`, whose size is known.
pub fn attr(bytes: &mut [u8]) {
    let size = bytes.len();
    let mut f = Flip { bytes, at: 0 };
    // type, size, config, sample_period, sample_type, read_format
    f.fields(&[4, 4, 8, 8, 8, 8]);
    // disabled .. watermark, precise_ip, mmap_data .. defer_output, __reserved_1
    let mut flags = vec![1; 15];
    flags.push(2);
    flags.extend([1; 23]);
    flags.push(24);
    f.bits(&flags);
    // wakeup, bp_type, config1, config2, branch_sample_type, sample_regs_user,
    // sample_stack_user, clockid, sample_regs_intr, aux_watermark, sample_max_stack,
    // __reserved_2, aux_sample_size
    for width in [4, 4, 8, 8, 8, 8, 4, 4, 8, 4, 2, 2, 4] {
        if f.at < size {
            f.field(width);
        }
    }
    if f.at < size {
        // aux_start_paused, aux_pause, aux_resume, __reserved_3
        f.bits(&[1, 1, 1, 29]);
    }
    // sig_data, config3, config4
    while f.at < size {
        f.field(8);
    }
}

/// One whole record in native order; `payload` is what comes behind it.
pub fn record(layout: &Layout, bytes: &mut [u8]) {
    let (type_, misc) = (u32_at(bytes, 0), u16_at(bytes, 4));
    let attr_size = if type_ == 64 { u32_at(bytes, 12) as usize } else { 0 };
    if type_ == 64 {
        attr(&mut bytes[8..8 + attr_size]);
    }
    let len = bytes.len();
    let tail = if type_ < 64 && type_ != 9 && layout.id_all { sample_id(layout) } else { vec![] };
    let own = len - tail.iter().sum::<usize>();
    let mut f = Flip { bytes: &mut bytes[..own], at: 0 };
    f.fields(&[4, 2, 2]);
    match type_ {
        1 => f.fields(&[4, 4, 8, 8, 8]),
        2 => f.fields(&[8, 8]),
        3 => f.fields(&[4, 4]),
        4 | 7 => f.fields(&[4, 4, 4, 4, 8]),
        5 | 6 => f.fields(&[8, 8, 8]),
        8 => {
            f.fields(&[4, 4]);
            read(layout, &mut f);
        }
        9 => sample(layout, &mut f),
        10 => {
            f.fields(&[4, 4, 8, 8, 8]);
            if misc >> 14 & 1 == 1 {
                // size, reserved, the ID: bytes, but for reserved zeros
                f.skip(24);
            } else {
                f.fields(&[4, 4, 8, 8]);
            }
            f.fields(&[4, 4]);
        }
        11 => f.fields(&[8, 8, 8]),
        12 | 15 => f.fields(&[4, 4]),
        13 | 19 | 21 => f.fields(&[8]),
        14 => {}
        16 => {
            f.fields(&[4, 4]);
            let nr = f.field(8);
            f.words(2 * nr);
        }
        17 => f.fields(&[8, 4, 2, 2]),
        18 => f.fields(&[2, 2, 4]),
        20 => f.fields(&[8, 2, 2]),
        22 => {
            f.field(8);
            let nr = f.field(8);
            if misc >> 14 & 1 == 1 { entries(&mut f, nr) } else { f.words(nr) }
        }
        64 => {
            f.skip(attr_size);
            f.words(f.left() as u64 / 8);
        }
        65 => f.fields(&[8]),
        66 => f.fields(&[4, 4]),
        67 => f.fields(&[4]),
        68 | 81 | 82 => {}
        69 => f.words(f.left() as u64 / 8),
        70 => {
            f.fields(&[4, 4]);
            f.words(f.left() as u64 / 8);
        }
        71 => f.fields(&[8, 8, 8, 4, 4, 4, 4]),
        72 => {
            f.fields(&[4, 4, 4, 4, 4, 4, 8, 8]);
            f.skip(64);
            f.fields(&[4, 4]);
        }
        73 => {
            for _ in 0..f.field(8) {
                f.field(8);
                f.skip(16);
            }
        }
        74 => cpu_map(&mut f),
        75 | 77 => f.words(f.left() as u64 / 8),
        76 => f.fields(&[8, 4, 4, 8, 8, 8]),
        78 => {
            let kind = f.field(8);
            f.field(8);
            match kind {
                1 => f.fields(&[8]),
                3 => cpu_map(&mut f),
                _ => {}
            }
        }
        79 => f.fields(&[8, 8, 8, 8, 8]),
        80 => {
            let bit = f.field(8);
            feature(bit, &mut f);
        }
        83 => f.fields(&[8]),
        other => panic!("record of type {other}"),
    }
    let mut f = Flip { bytes, at: own };
    f.fields(&tail);
}

fn sample_id(layout: &Layout) -> Vec<usize> {
    let mut widths = Vec::new();
    // pid tid, time, id, stream_id, cpu res, identifier
    for (bit, fields) in
        [(1, vec![4, 4]), (2, vec![8]), (6, vec![8]), (9, vec![8]), (7, vec![4, 4]), (16, vec![8])]
    {
        if layout.sample_type >> bit & 1 == 1 {
            widths.extend(fields);
        }
    }
    widths
}

fn entries(f: &mut Flip<'_>, nr: u64) {
    for _ in 0..nr {
        f.skip(24);
        f.field(8);
    }
}

fn read(layout: &Layout, f: &mut Flip<'_>) {
    let set = |bit: u32| layout.read_format >> bit & 1;
    if set(3) == 1 {
        let nr = f.field(8);
        f.words(set(0) + set(1));
        f.words(nr * (1 + set(2) + set(4)));
    } else {
        f.words(1 + set(0) + set(1) + set(2) + set(4));
    }
}

fn sample(layout: &Layout, f: &mut Flip<'_>) {
    // In the order of PERF_RECORD_SAMPLE: identifier, ip, tid, time, addr, id, stream_id, cpu,
    // period, read, callchain, raw, branch stack, registers, stack, weight and so on.
    let order = [
        16, 0, 1, 2, 3, 6, 9, 7, 8, 4, 5, 10, 11, 12, 13, 14, 24, 15, 17, 18, 19, 21, 22, 23, 25,
        26, 20,
    ];
    for bit in order.into_iter().filter(|bit| layout.sample_type >> bit & 1 == 1) {
        match bit {
            1 | 7 => f.fields(&[4, 4]),
            4 => read(layout, f),
            5 => {
                let nr = f.field(8);
                f.words(nr);
            }
            10 => {
                let len = f.field(4);
                f.skip(len as usize);
            }
            11 => branches(layout, f),
            12 | 18 => {
                let nr = if bit == 12 { layout.regs_user } else { layout.regs_intr };
                let abi = f.field(8);
                f.words(if abi == 0 { 0 } else { nr.into() });
            }
            13 => {
                let len = f.field(8);
                f.skip(len as usize);
                f.words(u64::from(len != 0));
            }
            // var1_dw, var2_w, var3_w; big-endian machines declare them the other way round.
            24 => f.fields(&[8]),
            25 => entries(f, 1),
            26 => {
                let nr = f.field(8);
                entries(f, nr);
            }
            20 => {
                let len = f.field(8);
                f.skip(len as usize);
            }
            _ => f.fields(&[8]),
        }
    }
}

fn branches(layout: &Layout, f: &mut Flip<'_>) {
    let nr = f.field(8);
    f.words(layout.branch >> 17 & 1);
    for _ in 0..nr {
        f.words(2);
        f.bits(&[1, 1, 1, 1, 16, 4, 2, 4, 3, 31]);
    }
    f.words(if layout.branch >> 19 & 1 == 1 { nr } else { 0 });
}

fn cpu_map(f: &mut Flip<'_>) {
    match f.field(2) {
        0 => {
            let nr = f.field(2) as usize;
            f.fields(&vec![2; nr]);
        }
        1 => {
            let nr = f.field(2);
            if f.field(2) == 4 {
                f.fields(&vec![4; nr as usize]);
            } else {
                f.skip(4);
                f.words(nr);
            }
        }
        _ => {
            f.skip(2);
            f.fields(&[2, 2]);
        }
    }
}

/// The features whose layout the reader has to know.
fn feature(bit: u64, f: &mut Flip<'_>) {
    match bit {
        2 => {
            while f.left() > 0 {
                let size = usize::from(u16_at(f.bytes, f.at + 6));
                f.fields(&[4, 2, 2, 4]);
                f.skip(size - 12);
            }
        }
        3..=6 | 8 | 9 => f.string(),
        7 => f.fields(&[4, 4]),
        10 | 23 => f.fields(&[8]),
        11 => (0..f.field(4)).for_each(|_| f.string()),
        12 => {
            let (nr, attr_size) = (f.field(4), f.field(4) as usize);
            for _ in 0..nr {
                attr(&mut f.bytes[f.at..f.at + attr_size]);
                f.skip(attr_size);
                let ids = f.field(4);
                f.string();
                f.words(ids);
            }
        }
        16 => {
            for _ in 0..f.field(4) {
                f.field(4);
                f.string();
            }
        }
        17 => {
            for _ in 0..f.field(4) {
                f.string();
                f.fields(&[4, 4]);
            }
        }
        21 => f.fields(&[8, 8]),
        27 => f.fields(&[4; 5]),
        29 => f.fields(&[4, 4, 8, 8]),
        255 => (0..f.field(4)).for_each(|_| f.string()),
        _ => {}
    }
}

/// Records one after the other, with what follows some of them.
fn records(layout: &Layout, bytes: &mut [u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let (type_, size) = (u32_at(bytes, at), usize::from(u16_at(bytes, at + 6)));
        let payload = match type_ {
            66 => u64::from(u32_at(bytes, at + 8)),
            71 => u64_at(bytes, at + 8),
            _ => 0,
        };
        record(layout, &mut bytes[at..at + size]);
        at += size + payload as usize;
    }
}

/// A whole recording. `long`: size of the recorder's `unsigned long`.
pub fn file(native: &[u8], long: usize) -> Vec<u8> {
    let mut out = native.to_vec();
    if u64_at(native, 8) == 16 {
        let at = 16;
        assert_eq!(u32_at(native, at), 64, "a pipe begins with an attr");
        let layout = Layout::of(&native[at + 8..]);
        Flip { bytes: &mut out, at: 0 }.fields(&[8, 8]);
        records(&layout, &mut out[16..]);
        return out;
    }
    let [attr_size, attrs_at, attrs_len, data_at, data_len] =
        [16, 24, 32, 40, 48].map(|at| u64_at(native, at) as usize);
    Flip { bytes: &mut out, at: 0 }.fields(&[8; 9]);
    out[72..104].chunks_exact_mut(long).for_each(<[u8]>::reverse);
    for at in (attrs_at..attrs_at + attrs_len).step_by(attr_size) {
        attr(&mut out[at..at + attr_size - 16]);
        Flip { bytes: &mut out, at: at + attr_size - 16 }.fields(&[8, 8]);
        let ids = [16, 8].map(|back| u64_at(native, at + attr_size - back) as usize);
        Flip { bytes: &mut out, at: ids[0] }.words(ids[1] as u64 / 8);
    }
    records(&Layout::of(&native[attrs_at..]), &mut out[data_at..data_at + data_len]);
    let mut table = data_at + data_len;
    for bit in (0..256).filter(|bit| native[72 + bit / 8] >> (bit % 8) & 1 == 1) {
        let (at, len) = (u64_at(native, table) as usize, u64_at(native, table + 8) as usize);
        Flip { bytes: &mut out, at: table }.fields(&[8, 8]);
        feature(bit as u64, &mut Flip { bytes: &mut out[at..at + len], at: 0 });
        table += 16;
    }
    out
}
