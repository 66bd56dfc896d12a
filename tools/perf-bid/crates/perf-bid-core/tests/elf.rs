// SPDX-License-Identifier: GPL-2.0
//! ELF files that the test makes byte by byte: the cases that turn a file offset into the
//! wrong symbol if one is careless.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use perf_bid_core::abi::BuildId;
use perf_bid_core::elf::ElfInfo;
use perf_bid_core::functions::Functions;
use perf_bid_core::place::Dso;
use perf_bid_core::place::DsoKind;
use perf_bid_core::place::Dsos;
use perf_bid_core::place::Frame;
use perf_bid_core::place::Place;
use perf_bid_core::store::Store;
use perf_bid_core::symbols::Options;
use perf_bid_core::symbols::Symbolizer;
use perf_bid_core::symtab::SymbolTable;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const R: u32 = 4;
const RX: u32 = 5;

/// `Elf64_Phdr` without the physical address.
struct Segment {
    type_: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
}

fn load(flags: u32, offset: u64, address: u64, file_size: u64, memory_size: u64) -> Segment {
    Segment { type_: PT_LOAD, flags, offset, address, file_size, memory_size }
}

fn note(id: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [4u32, id.len() as u32, 3] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(b"GNU\0");
    out.extend_from_slice(id);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A little-endian 64-bit ET_DYN: header, segments, the note at 0x400 (covered by a PT_NOTE
/// if `note_segment`), contents up to `len`, and a symbol table with `symbols` if any.
fn elf(
    segments: &[Segment],
    id: &[u8],
    note_segment: bool,
    len: usize,
    symbols: &[(&str, u64, u64)],
) -> Vec<u8> {
    let note = note(id);
    let mut phdrs = Vec::new();
    let mut put = |s: &Segment| {
        phdrs.extend_from_slice(&s.type_.to_le_bytes());
        phdrs.extend_from_slice(&s.flags.to_le_bytes());
        for word in [s.offset, s.address, s.address, s.file_size, s.memory_size, 4] {
            phdrs.extend_from_slice(&word.to_le_bytes());
        }
    };
    segments.iter().for_each(&mut put);
    if note_segment {
        let size = note.len() as u64;
        let (type_, flags) = (PT_NOTE, R);
        put(&Segment {
            type_,
            flags,
            offset: 0x400,
            address: 0x400,
            file_size: size,
            memory_size: size,
        });
    }
    let mut out = vec![0u8; len.max(0x400 + note.len()).next_multiple_of(8)];
    out[0x40..0x40 + phdrs.len()].copy_from_slice(&phdrs);
    out[0x400..0x400 + note.len()].copy_from_slice(&note);
    // Sections: null, .text (NOBITS, as in a debug file), .symtab, .strtab
    let (mut symtab, mut strtab) = (vec![0u8; 24], vec![0u8]);
    for (name, address, size) in symbols {
        symtab.extend_from_slice(&(strtab.len() as u32).to_le_bytes());
        symtab.extend_from_slice(&[0x12, 0, 1, 0]);
        symtab.extend_from_slice(&address.to_le_bytes());
        symtab.extend_from_slice(&size.to_le_bytes());
        strtab.extend_from_slice(name.as_bytes());
        strtab.push(0);
    }
    let names = b"\0.text\0.symtab\0.strtab\0";
    let (symtab_at, strtab_at) = (out.len() as u64, (out.len() + symtab.len()) as u64);
    let names_at = strtab_at + strtab.len() as u64;
    out.extend([&symtab[..], &strtab[..], &names[..]].concat());
    out.resize(out.len().next_multiple_of(8), 0);
    let (mut shoff, mut shnum) = (0, 0u16);
    if !symbols.is_empty() {
        (shoff, shnum) = (out.len() as u64, 5);
        let section =
            |name: u32, type_: u32, rest: [u64; 4], link: u32, info: u32, align: u64, each: u64| {
                let mut s = Vec::new();
                s.extend_from_slice(&name.to_le_bytes());
                s.extend_from_slice(&type_.to_le_bytes());
                rest.iter().for_each(|word| s.extend_from_slice(&word.to_le_bytes()));
                s.extend_from_slice(&link.to_le_bytes());
                s.extend_from_slice(&info.to_le_bytes());
                s.extend_from_slice(&align.to_le_bytes());
                s.extend_from_slice(&each.to_le_bytes());
                s
            };
        let text = segments.iter().find(|s| s.flags == RX).unwrap();
        out.extend([0; 64]);
        out.extend(section(1, 8, [6, text.address, 0x1000, text.memory_size], 0, 0, 16, 0));
        out.extend(section(7, 2, [0, 0, symtab_at, symtab.len() as u64], 3, 1, 8, 24));
        out.extend(section(15, 3, [0, 0, strtab_at, strtab.len() as u64], 0, 0, 1, 0));
        out.extend(section(15, 3, [0, 0, names_at, names.len() as u64], 0, 0, 1, 0));
    }
    out[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    out[16..20].copy_from_slice(&[3, 0, 62, 0]);
    out[20..24].copy_from_slice(&1u32.to_le_bytes());
    out[32..40].copy_from_slice(&0x40u64.to_le_bytes());
    out[40..48].copy_from_slice(&shoff.to_le_bytes());
    let phnum = (segments.len() + usize::from(note_segment)) as u16;
    for (at, half) in
        [(52, 64), (54, 56), (56, phnum), (58, 64), (60, shnum), (62, shnum.saturating_sub(1))]
    {
        out[at..at + 2].copy_from_slice(&u16::to_le_bytes(half));
    }
    out
}

fn original() -> [Segment; 3] {
    // Two executable segments whose distances to their addresses differ, as lld lays them out.
    [
        load(R, 0, 0, 0x1000, 0x1000),
        load(RX, 0x1000, 0x3000, 0x800, 0x900),
        load(RX, 0x1800, 0x7800, 0x800, 0x800),
    ]
}

#[test]
fn build_ids_of_every_size() {
    for len in 1..=20 {
        let id: Vec<_> = (1..=len).collect();
        let info = ElfInfo::parse(&elf(&original(), &id, true, 0x2000, &[])).unwrap();
        assert_eq!(info.build_id.unwrap().as_bytes(), id, "{len}");
    }
    for len in [0, 21, 32] {
        let info = ElfInfo::parse(&elf(&original(), &vec![1; len], true, 0x2000, &[])).unwrap();
        assert_eq!(info.build_id, None, "{len}");
    }
    // In the file, but not where the kernel looks.
    let info = ElfInfo::parse(&elf(&original(), &[1; 20], false, 0x2000, &[])).unwrap();
    assert_eq!(info.build_id, None);
}

#[test]
fn offsets_become_addresses_by_segment() {
    let info = ElfInfo::parse(&elf(&original(), &[1; 20], true, 0x2000, &[])).unwrap();
    assert_eq!(info.address_of(0x10), Some(0x10));
    assert_eq!(info.address_of(0x1000), Some(0x3000));
    assert_eq!(info.address_of(0x17ff), Some(0x37ff));
    assert_eq!(info.address_of(0x1800), Some(0x7800));
    // Memory beyond the file's part of a segment has no offset.
    assert_eq!(info.address_of(0x2000), None);
    assert_eq!(info.address_of(u64::MAX), None);
    // Code wins where a data segment covers the same bytes.
    let both = [load(R, 0x1000, 0x9000, 0x100, 0x100), load(RX, 0x1000, 0x3000, 0x100, 0x100)];
    let info = ElfInfo::parse(&elf(&both, &[1; 20], true, 0x2000, &[])).unwrap();
    assert_eq!(info.address_of(0x1010), Some(0x3010));
}

#[test]
fn broken_files_are_errors_or_less_than_whole() {
    let whole = elf(&original(), &[1; 20], true, 0x2000, &[("f", 0x3000, 0x10)]);
    for len in (0..whole.len()).step_by(5) {
        // No panic; what remains of a file may still have its segments.
        let _ = ElfInfo::parse(&whole[..len]);
    }
    assert!(ElfInfo::parse(b"MZ, not ELF").is_err());
    let mut wild = whole.clone();
    for at in 0..0x400 {
        let kept = wild[at];
        for byte in [0, 0x7f, 0xff] {
            wild[at] = byte;
            let _ = ElfInfo::parse(&wild).map(|info| info.address_of(0x1010));
        }
        wild[at] = kept;
    }
    let huge = [load(RX, u64::MAX - 8, u64::MAX, u64::MAX, u64::MAX)];
    let info = ElfInfo::parse(&elf(&huge, &[1; 20], true, 0x2000, &[])).unwrap();
    assert_eq!(info.address_of(u64::MAX), None);
}

const ID: [u8; 20] = [0xab; 20];

fn put(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// What `objcopy --only-keep-debug` leaves: addresses and symbols, no contents, and offsets
/// that are not the original's.
fn only_keep_debug() -> Vec<u8> {
    let segments = [
        load(R, 0, 0, 0x1000, 0x1000),
        load(RX, 0x1000, 0x3000, 0, 0x900),
        load(RX, 0x1000, 0x7800, 0, 0x800),
    ];
    elf(&segments, &ID, true, 0x1000, &[("first", 0x3000, 0x800), ("second", 0x7800, 0x800)])
}

/// What `eu-strip -f` leaves: the original's program headers as they were.
fn kept_headers() -> Vec<u8> {
    elf(&original(), &ID, true, 0x1000, &[("first", 0x3000, 0x800), ("second", 0x7800, 0x800)])
}

fn names(store: Store, offsets: &[u64]) -> Vec<Option<String>> {
    let mut dsos = Dsos::default();
    let build_id = BuildId::new(&ID);
    let dso = dsos.intern(Dso { kind: DsoKind::File, path: "".into(), build_id });
    let mut symbolizer = Symbolizer::new(store, Options::default());
    let mut name = |&offset: &u64| {
        let frame = Frame { place: Place::File { dso, offset }, caller: false };
        let resolved = symbolizer.resolve(&dsos, frame);
        resolved.functions.first().map(|function| function.name.to_string())
    };
    offsets.iter().map(&mut name).collect()
}

#[test]
fn debug_files_are_read_by_the_originals_headers() {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin/prog");
    let hex = BuildId::new(&ID).unwrap().to_string();
    let debug = dir.path().join(format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..]));
    put(&bin, &elf(&original(), &ID, true, 0x2000, &[]));
    put(&debug, &only_keep_debug());
    let offsets = [0x1010, 0x1810, 0x17ff, 0x20];
    let mut store = Store::with_roots(vec![dir.path().to_owned()]);
    store.hint(BuildId::new(&ID).unwrap(), &bin);
    let (first, second) = (Some("first".to_owned()), Some("second".to_owned()));
    assert_eq!(names(store, &offsets), [first.clone(), second.clone(), first.clone(), None]);
    // Without the original nothing says where the bytes were.
    let store = Store::with_roots(vec![dir.path().to_owned()]);
    assert_eq!(names(store, &offsets), [None, None, None, None]);
    // Unless the debug file kept the original's headers.
    put(&debug, &kept_headers());
    let store = Store::with_roots(vec![dir.path().to_owned()]);
    assert_eq!(names(store, &offsets), [first, second, Some("first".to_owned()), None]);
}

/// The same ID stripped and unstripped: the one with symbols names the functions.
#[test]
fn the_file_with_symbols_wins() {
    let dir = tempfile::tempdir().unwrap();
    let id = BuildId::new(&ID).unwrap();
    let bin = dir.path().join("prog");
    put(&bin, &elf(&original(), &ID, true, 0x2000, &[("own", 0x3000, 0x100)]));
    let mut store = Store::with_roots(Vec::new());
    store.hint(id, &bin);
    assert_eq!(names(store, &[0x1010, 0x1810]), [Some("own".to_owned()), None]);
    let hex = id.to_string();
    put(
        &dir.path().join(format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..])),
        &only_keep_debug(),
    );
    let mut store = Store::with_roots(vec![dir.path().to_owned()]);
    store.hint(id, &bin);
    // What the first table does not name the second may.
    assert_eq!(
        names(store, &[0x1010, 0x1810]),
        [Some("own".to_owned()), Some("second".to_owned())]
    );
}

#[test]
fn a_debug_file_with_another_id_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let hex = BuildId::new(&ID).unwrap().to_string();
    let debug = dir.path().join(format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..]));
    let segments = original();
    put(&debug, &elf(&segments, &[1; 20], true, 0x2000, &[("first", 0x3000, 0x800)]));
    let store = Store::with_roots(vec![dir.path().to_owned()]);
    assert_eq!(names(store, &[0x1010]), [None]);
}

/// What makes a name readable takes longer, the longer it is; and each of these would be compared
/// with all the others.
#[test]
fn many_long_names_at_one_address() {
    let names: Vec<_> = (0..250).map(|n| format!("_ZN{}1f{n:03}Ev", "1a".repeat(16_000))).collect();
    let symbols: Vec<_> = names.iter().map(|name| (name.as_str(), 0x1000, 16)).collect();
    let data = elf(&original(), &[1; 20], true, 0x2000, &symbols);
    let table = SymbolTable::parse_elf(&data);
    let started = Instant::now();
    let found = table.at(&data, 0x1008).unwrap();
    assert_eq!((found.start, found.name), (0x1000, names[0].as_bytes()));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

/// Found by fuzzing: an unwind table with entries before the beginning of what it is a table of.
#[test]
fn unwind_entries_out_of_place() {
    let data = include_bytes!("data/unwind.elf");
    let info = ElfInfo::parse(data).unwrap();
    let functions = Functions::parse(data, &info).unwrap();
    let found = (0..0x4000).filter_map(|address| functions.start_of(address)).count();
    assert!(found < 0x4000);
}
