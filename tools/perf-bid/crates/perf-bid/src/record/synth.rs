// SPDX-License-Identifier: GPL-2.0
//! What the kernel would have said of processes that are older than the recording: FORK and
//! COMM for each thread, MMAP2 for each executable mapping, and for the kernel and its modules.
//! As perf does, they have time 0 and no event's ID.

use std::collections::HashMap;
use std::collections::HashSet;
use std::io::BufRead;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::Result;
use perf_bid_core::abi::BuildId;
use perf_bid_core::abi::misc;
use perf_bid_core::attr::Attr;
use perf_bid_core::data::Mapping;
use perf_bid_core::data::Stamp;
use perf_bid_core::data::comm_record;
use perf_bid_core::data::fork_record;
use perf_bid_core::data::mmap2_record;
use perf_bid_core::store;

use super::target;
use super::target::Target;

const PROT_READ: u32 = 1;
const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;
const MAP_SHARED: u32 = 1;
const MAP_PRIVATE: u32 = 2;

/// Build IDs of files that were looked at, by device and inode.
type Known = HashMap<(u32, u32, u64), Option<BuildId>>;

/// Makes up records for everything `target` watches. Each process's go to `put` in one piece;
/// one that ends meanwhile is left out, or ends early. Returns how many are of mappings.
pub fn all(target: &Target, attr: &Attr, mut put: impl FnMut(&[u8]) -> Result<()>) -> Result<u64> {
    let stamp = Stamp { attr, time: 0, id: 0 };
    let mut kernel = Vec::new();
    let mut maps = kernel_maps(stamp, &mut kernel);
    put(&kernel)?;
    let mut known = Known::new();
    for pid in watched(target) {
        let mut records = Vec::new();
        threads(stamp, pid, &mut records);
        maps += mappings(stamp, pid, &mut known, &mut records);
        put(&records)?;
    }
    Ok(maps)
}

/// The processes that are watched, with all their descendants.
fn watched(target: &Target) -> Vec<u32> {
    if target.is_to_come() {
        return Vec::new();
    }
    let all: Vec<u32> = target::processes().filter_map(|pid| u32::try_from(pid).ok()).collect();
    if !target.is_tasks() {
        return all;
    }
    let tasks = target.tasks.iter().filter_map(|&tid| u32::try_from(tid).ok());
    let mut found: HashSet<u32> = tasks.filter_map(|tid| status(tid, "Tgid:")).collect();
    let parents: Vec<_> =
        all.iter().filter_map(|&pid| Some((pid, status(pid, "PPid:")?))).collect();
    // A child can have a lower number than its parent: until nothing is added.
    loop {
        let more: Vec<_> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable();
    found
}

/// A number in `/proc/PID/status`.
fn status(pid: u32, key: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
}

fn threads(stamp: Stamp<'_>, pid: u32, records: &mut Vec<u8>) {
    let parent = status(pid, "PPid:").unwrap_or(0);
    let dir = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut tids: Vec<u32> =
        dir.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    // The process first.
    tids.sort_unstable_by_key(|&tid| (tid != pid, tid));
    for tid in tids {
        let from = if tid == pid { parent } else { pid };
        records.extend(fork_record(stamp, pid, from, tid, from));
        if let Ok(comm) = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")) {
            let comm = comm.strip_suffix(b"\n").unwrap_or(&comm);
            records.extend(comm_record(stamp.attr, pid, tid, comm, stamp.time, stamp.id));
        }
    }
}

/// Appends the executable mappings of a process; returns how many there are.
fn mappings(stamp: Stamp<'_>, pid: u32, known: &mut Known, records: &mut Vec<u8>) -> u64 {
    // Paths need not be UTF-8.
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = maps.split(|&byte| byte == b'\n').filter_map(|line| parse_maps_line(pid, line));
    let executable = lines.filter(|map| map.prot & PROT_EXEC != 0);
    let mut count = 0;
    for mut map in executable {
        map.build_id = build_id(&map, known);
        records.extend(mmap2_record(stamp, &map));
        count += 1;
    }
    count
}

/// One line: `start-end perms offset maj:min inode   path`.
fn parse_maps_line(pid: u32, line: &[u8]) -> Option<Mapping<'_>> {
    let mut rest = line;
    let mut field = || {
        let at = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (field, after) = rest.split_at_checked(at)?;
        rest = after.strip_prefix(b" ").unwrap_or(after);
        std::str::from_utf8(field).ok()
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let perms = field()?.as_bytes();
    let pgoff = hex(field()?)?;
    let (maj, min) = field()?.split_once(':')?;
    let (maj, min) = (u32::try_from(hex(maj)?).ok()?, u32::try_from(hex(min)?).ok()?);
    let ino = field()?.parse().ok()?;
    let path = rest.trim_ascii_start();
    let bits = [(b'r', PROT_READ), (b'w', PROT_WRITE), (b'x', PROT_EXEC)];
    let prot = bits.iter().filter(|(letter, _)| perms.contains(letter)).map(|(_, bit)| bit).sum();
    Some(Mapping {
        pid,
        start,
        len: end.checked_sub(start)?,
        pgoff,
        build_id: None,
        maj,
        min,
        ino,
        prot,
        flags: if perms.contains(&b's') { MAP_SHARED } else { MAP_PRIVATE },
        cpumode: misc::USER,
        // What the kernel's own records say of memory without a file.
        path: if path.is_empty() { b"//anon" } else { path },
    })
}

/// The build ID of what is mapped, if it can be read.
fn build_id(map: &Mapping<'_>, known: &mut Known) -> Option<BuildId> {
    if map.path == b"[vdso]" {
        return store::vdso_build_id();
    }
    if map.ino == 0 {
        return None;
    }
    let file = (map.maj, map.min, map.ino);
    *known.entry(file).or_insert_with(|| {
        let (pid, end) = (map.pid, map.start + map.len);
        // The file itself, also if it was deleted or its path is of another mount namespace;
        // but only root may go that way.
        let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{end:x}", map.start));
        let path = String::from_utf8_lossy(map.path);
        let named = PathBuf::from(format!("/proc/{pid}/root{path}"));
        let info = store::read_elf(&mapped).or_else(|_| store::read_elf(&named));
        info.ok()?.build_id
    })
}

/// Appends the kernel's text and its modules, if their addresses may be known; returns how
/// many there are.
fn kernel_maps(stamp: Stamp<'_>, records: &mut Vec<u8>) -> u64 {
    // It stays where it is, and takes a while to find.
    static TEXT: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    let text = *TEXT.get_or_init(|| {
        let symbols = std::fs::File::open("/proc/kallsyms").ok()?;
        text_range(BufReader::new(symbols).lines().map_while(Result::ok))
    });
    let modules = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    let kernel = text.map(|(start, end)| Mapping {
        // perf has the kernel's first symbol in the name, and its address as the offset.
        pgoff: start,
        build_id: store::running_kernel_build_id(),
        path: b"[kernel.kallsyms]_text",
        ..kernel_mapping(start, end.saturating_sub(start))
    });
    let names: Vec<_> = modules.lines().filter_map(parse_module).collect();
    let modules = names.iter().map(|(name, start, len)| {
        let plain = name.trim_matches(['[', ']']);
        let notes = std::fs::read(format!("/sys/module/{plain}/notes/.note.gnu.build-id"));
        Mapping {
            build_id: notes.ok().and_then(|notes| store::build_id_in_notes(&notes)),
            path: name.as_bytes(),
            ..kernel_mapping(*start, *len)
        }
    });
    let maps: Vec<_> = kernel.into_iter().chain(modules).collect();
    maps.iter().for_each(|map| records.extend(mmap2_record(stamp, map)));
    maps.len() as u64
}

fn kernel_mapping(start: u64, len: u64) -> Mapping<'static> {
    Mapping {
        pid: u32::MAX,
        start,
        len,
        pgoff: 0,
        build_id: None,
        maj: 0,
        min: 0,
        ino: 0,
        prot: PROT_READ | PROT_EXEC,
        flags: MAP_PRIVATE,
        cpumode: misc::KERNEL,
        path: b"",
    }
}

/// From `_text` to `_etext`, unless they read as 0 because of `kernel.kptr_restrict`.
fn text_range(symbols: impl Iterator<Item = String>) -> Option<(u64, u64)> {
    let mut start = None;
    for line in symbols {
        let mut fields = line.split_ascii_whitespace();
        let (address, name) = (fields.next()?, fields.nth(1)?);
        let address = || u64::from_str_radix(address, 16).ok().filter(|&address| address != 0);
        match name {
            "_text" => start = address(),
            "_etext" => return start.zip(address()).filter(|(start, end)| start < end),
            _ => {}
        }
    }
    None
}

/// `name size users dependencies state 0xaddress`
fn parse_module(line: &str) -> Option<(String, u64, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (name, len) = (fields.next()?, fields.next()?.parse().ok()?);
    let start = u64::from_str_radix(fields.nth(3)?.strip_prefix("0x")?, 16).ok()?;
    (start != 0).then(|| (format!("[{name}]"), start, len))
}

#[cfg(test)]
mod tests {
    use perf_bid_core::record::FileKey;
    use perf_bid_core::record::Format;
    use perf_bid_core::record::RawRecord;
    use perf_bid_core::record::Record;

    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = b"7f00-8000 r-xp 00002000 fe:01 123    /a b (deleted)";
        let map = parse_maps_line(7, line).unwrap();
        assert_eq!((map.start, map.len, map.pgoff), (0x7f00, 0x100, 0x2000));
        assert_eq!((map.maj, map.min, map.ino, map.prot, map.flags), (0xfe, 1, 123, 5, 2));
        assert_eq!(map.path, b"/a b (deleted)");
        let anon = parse_maps_line(7, b"1000-2000 rw-s 00000000 00:00 0 ").unwrap();
        assert_eq!((anon.path, anon.flags), (&b"//anon"[..], MAP_SHARED));
        for bad in [&b""[..], b"x", b"2000-1000 r-xp 0 00:00 0", b"1-2 r 0 0 0", b"\xff-1 r"] {
            assert!(parse_maps_line(7, bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn kernel_addresses_that_are_hidden_are_left_out() {
        let range = |text: &str| text_range(text.lines().map(str::to_owned));
        assert_eq!(range("1000 T _text\n1800 t x\n2000 T _etext\n"), Some((0x1000, 0x2000)));
        assert_eq!(range("0 T _text\n0 T _etext\n"), None);
        assert_eq!(range(""), None);
        let module = parse_module("zram 4096 1 zsmalloc, Live 0xffff0000");
        assert_eq!(module, Some(("[zram]".to_owned(), 0xffff_0000, 4096)));
        assert_eq!(parse_module("zram 4096 1 zsmalloc, Live 0x0000"), None);
    }

    #[test]
    fn this_process_has_its_program_among_its_mappings() {
        let attr = Attr::default();
        let stamp = Stamp { attr: &attr, time: 0, id: 0 };
        let (mut known, mut records) = (Known::new(), Vec::new());
        let me = std::process::id();
        threads(stamp, me, &mut records);
        let count = mappings(stamp, me, &mut known, &mut records);
        let program = std::env::current_exe().unwrap();
        let format = Format::from(&attr);
        let (mut rest, mut maps, mut comms, mut found) = (records.as_slice(), 0, 0, false);
        while let Some((raw, after)) = RawRecord::split(rest, 0).unwrap() {
            rest = after;
            match format.decode(&raw).unwrap() {
                Record::Mmap(map) => {
                    maps += 1;
                    found |= map.path == program.as_os_str().as_encoded_bytes()
                        && matches!(map.file, FileKey::BuildId(_));
                }
                Record::Comm(comm) if comm.pid == me => comms += 1,
                _ => {}
            }
        }
        assert!(found && maps == count && comms > 0, "{maps} maps, {comms} names");
    }
}
