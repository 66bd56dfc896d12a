// SPDX-License-Identifier: GPL-2.0
//! Symbols of code that has no file, as just-in-time compilers write them to
//! `/tmp/perf-PID.map`: lines of `START SIZE NAME`, both numbers in hexadecimal, the name with
//! whatever blanks it has.
//!
//! A compiler writes a line when it emits a function and none when it frees it, so that later
//! lines hide what they overlap of earlier ones. The last line may still be being written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;

/// A map is not read beyond this, in bytes.
const LARGEST: u64 = 1 << 30;

/// Functions by address.
#[derive(Debug, Default)]
pub struct JitMap {
    /// By the start of the part that is not hidden.
    parts: BTreeMap<u64, Part>,
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    /// Exclusive.
    end: u64,
    /// Where the function began.
    start: u64,
    /// The name in the text.
    name: (usize, usize),
}

impl JitMap {
    /// Reads what a compiler wrote. Lines that are not so are passed over.
    pub fn parse(text: Vec<u8>) -> Self {
        let mut map = Self::default();
        let mut at = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            if let Some((start, end, name, len)) = parse_line(line) {
                map.insert(Part { end, start, name: (at + name, len) });
            }
            at += line.len();
        }
        map.text = text;
        map
    }

    /// Cuts what `new` hides out of what is there, and adds it.
    fn insert(&mut self, new: Part) {
        if let Some((&at, &part)) = self.parts.range(..new.start).next_back()
            && part.end > new.start
        {
            self.parts.insert(at, Part { end: new.start, ..part });
            if part.end > new.end {
                self.parts.insert(new.end, part);
            }
        }
        while let Some((&at, &part)) = self.parts.range(new.start..new.end).next() {
            self.parts.remove(&at);
            if part.end > new.end {
                self.parts.insert(new.end, part);
            }
        }
        self.parts.insert(new.start, new);
    }

    /// The function at `address`: its name and where it begins.
    pub fn at(&self, address: u64) -> Option<(&[u8], u64)> {
        let (_, part) = self.parts.range(..=address).next_back()?;
        let (at, len) = part.name;
        (address < part.end).then_some((self.text.get(at..at.checked_add(len)?)?, part.start))
    }

    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Start, end, and where in the line the name is.
fn parse_line(line: &[u8]) -> Option<(u64, u64, usize, usize)> {
    let trimmed = line.trim_ascii_end();
    let mut fields = trimmed.splitn(3, |&byte| byte == b' ');
    let (start, size, name) = (hex(fields.next()?)?, hex(fields.next()?)?, fields.next()?);
    if size == 0 || name.is_empty() {
        return None;
    }
    Some((start, start.checked_add(size)?, trimmed.len() - name.len(), name.len()))
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    u64::from_str_radix(digits, 16).ok()
}

/// Where the map of process `pid` may be: in `dir`, and, while the process lives, in `/tmp` as
/// it sees it, under the number it has there.
pub fn candidates(dir: &Path, pid: u32) -> Vec<PathBuf> {
    let mut paths = vec![dir.join(format!("perf-{pid}.map"))];
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let inner = inner.and_then(|pids| pids.split_ascii_whitespace().next_back());
    if let Some(inner) = inner {
        paths.push(PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{inner}.map")));
    }
    paths
}

/// Reads the first of `paths` that is a regular file.
pub fn read(paths: &[PathBuf]) -> io::Result<(PathBuf, JitMap)> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for path in paths {
        match read_one(path) {
            Ok(text) => return Ok((path.clone(), JitMap::parse(text))),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn read_one(path: &Path) -> io::Result<Vec<u8>> {
    // Anyone may put a pipe there: metadata first, so that opening cannot wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> JitMap {
        JitMap::parse(text.as_bytes().to_vec())
    }

    #[test]
    fn lines_are_hexadecimal_and_names_have_blanks() {
        let map = map("1000 10 LazyCompile:~f a.js:1:2\n0x2000 0x20 g\n3000 8 last");
        assert_eq!(map.at(0x100f), Some((&b"LazyCompile:~f a.js:1:2"[..], 0x1000)));
        assert_eq!(map.at(0x1010), None);
        assert_eq!(map.at(0x201f), Some((&b"g"[..], 0x2000)));
        assert_eq!(map.at(0x3000), Some((&b"last"[..], 0x3000)));
        assert_eq!(map.at(0xfff), None);
    }

    #[test]
    fn later_lines_hide_earlier_ones() {
        let map = map("1000 100 old\n1040 20 new\n10f0 20 tail\n900 800 gone\n1000 10 again\n");
        assert_eq!(map.at(0x1008).unwrap().0, b"again");
        assert_eq!(map.at(0x1010), Some((&b"gone"[..], 0x900)));
        assert_eq!(map.at(0x1104).unwrap().0, b"tail");
        let map = super::JitMap::parse(b"1000 100 old\n1040 20 new\n".to_vec());
        assert_eq!(map.at(0x103f), Some((&b"old"[..], 0x1000)));
        assert_eq!(map.at(0x1040), Some((&b"new"[..], 0x1040)));
        assert_eq!(map.at(0x1060), Some((&b"old"[..], 0x1000)));
    }

    #[test]
    fn garbage_is_passed_over() {
        let map = map("\n \nzz 10 x\n1000\n1000 10\n1000 0 empty\nffffffffffffffff 2 beyond\n\
             2000 10 good\n1000 -1 minus\n\u{0}\u{ff}\n");
        assert_eq!(map.parts.len(), 1);
        assert_eq!(map.at(0x2000).unwrap().0, b"good");
        assert!(super::JitMap::parse(vec![0xff; 4096]).is_empty());
    }

    #[test]
    fn a_living_process_has_its_own_tmp() {
        let pid = std::process::id();
        let paths = candidates(Path::new("/x"), pid);
        assert_eq!(paths[0], PathBuf::from(format!("/x/perf-{pid}.map")));
        let inside = paths[1].to_str().unwrap();
        assert!(inside.starts_with(&format!("/proc/{pid}/root/tmp/perf-")), "{inside}");
        assert_eq!(candidates(Path::new("/x"), u32::MAX).len(), 1);
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf-1.map");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert!(read(&[path]).is_err());
    }
}
