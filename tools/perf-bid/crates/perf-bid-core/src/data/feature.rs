// SPDX-License-Identifier: GPL-2.0
//! The feature sections at the end of a perf.data file (`HEADER_*` in the format document).
//!
//! A string is `u32 len` and `len` bytes, NUL-padded to 64; a list is `u32 nr` and `nr`
//! strings. The build ID table is a run of records of type 67:
//! `header, i32 pid, u8 id[20], u8 size, u8 pad[3], path`, where `size` is valid if `misc` has
//! [`misc::BUILD_ID_SIZE`].

use crate::abi::BUILD_ID_MAX;
use crate::abi::BuildId;
use crate::abi::misc;
use crate::abi::record_type;
use crate::abi::sample;
use crate::cursor::Cursor;
use crate::cursor::Malformed;
use crate::record::RawRecord;

/// The feature bits this crate reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
#[repr(u8)]
pub enum Feature {
    TracingData = 1,
    BuildId = 2,
    Hostname = 3,
    OsRelease = 4,
    Version = 5,
    Arch = 6,
    NrCpus = 7,
    CpuDesc = 8,
    CpuId = 9,
    TotalMem = 10,
    Cmdline = 11,
    EventDesc = 12,
    PmuMappings = 16,
    GroupDesc = 17,
    SampleTime = 21,
    ClockId = 23,
    Compressed = 27,
    ClockData = 29,
    /// [`Info`]: the last bit there is, which stock perf passes over.
    PerfBid = 255,
}

/// What perf-bid itself wants to know at report time and perf has no feature for.
///
/// Stored as a list of `key=value` strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// `/proc/sys/kernel/random/boot_id`: kernel addresses mean something only to this boot.
    pub boot_id: Option<String>,
    /// Samples the kernel dropped, from `PERF_FORMAT_LOST`.
    pub lost_samples: u64,
}

/// One row of the build ID table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BuildIdRow {
    pub build_id: BuildId,
    /// [`misc::USER`] or [`misc::KERNEL`].
    pub cpumode: u16,
    /// Empty if the path is not known.
    pub path: String,
}

/// A group of events that were counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Group {
    pub name: String,
    /// Index of its first event.
    pub leader: u32,
    /// Events in it, which follow one another.
    pub members: u32,
}

/// How the records were compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Compression {
    pub version: u32,
    /// 1: zstd.
    pub kind: u32,
    pub level: u32,
    pub ratio: u32,
    pub mmap_len: u32,
}

/// The same moment on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ClockData {
    pub version: u32,
    /// The clock of the samples, `CLOCK_*`.
    pub clockid: u32,
    /// Nanoseconds since the Epoch.
    pub wall: u64,
    /// Nanoseconds of the samples' clock.
    pub clock: u64,
}

/// Everything known from the feature sections. [`Features::writes`] tells what of it a
/// [`Writer`](super::Writer) puts into a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Features {
    pub build_ids: Vec<BuildIdRow>,
    pub hostname: Option<String>,
    pub os_release: Option<String>,
    pub version: Option<String>,
    pub arch: Option<String>,
    /// CPUs that could be online, and that are.
    pub nr_cpus: Option<(u32, u32)>,
    pub cpu_desc: Option<String>,
    pub cpu_id: Option<String>,
    /// In KiB.
    pub total_mem: Option<u64>,
    pub cmdline: Vec<String>,
    /// Names of the events, in the order of the attrs, with their IDs.
    pub events: Vec<(String, Vec<u64>)>,
    /// Times of the first and the last sample.
    pub sample_time: Option<(u64, u64)>,
    /// Name of the PMU for each `attr.type` that is not built in.
    pub pmus: Vec<(u32, String)>,
    pub groups: Vec<Group>,
    /// Resolution of the samples' clock in nanoseconds, if `attr.clockid` chose it.
    pub clock_resolution: Option<u64>,
    pub clock_data: Option<ClockData>,
    pub compression: Option<Compression>,
    pub info: Info,
}

/// Size of a build ID record before its path, in bytes.
const BUILD_ID_ROW: usize = 36;

/// Offset of `sample_type` in an attr.
const SAMPLE_TYPE_AT: usize = 24;

/// Appends a perf string.
pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    let len = (text.len() + 1).next_multiple_of(64);
    out.extend_from_slice(&(len as u32).to_ne_bytes());
    out.extend_from_slice(text.as_bytes());
    out.resize(out.len() + len - text.len(), 0);
}

fn put_list(out: &mut Vec<u8>, texts: &[String]) {
    out.extend_from_slice(&(texts.len() as u32).to_ne_bytes());
    texts.iter().for_each(|text| put_string(out, text));
}

fn string(c: &mut Cursor<'_>, field: &str) -> Result<String, Malformed> {
    let len = c.u32(field)?;
    Ok(String::from_utf8_lossy(c.string(len.into(), field)?).into_owned())
}

fn list(c: &mut Cursor<'_>, field: &str) -> Result<Vec<String>, Malformed> {
    let nr = c.u32(field)?;
    // No capacity from a number in the file: a wrong one ends at the first missing string.
    (0..nr).map(|_| string(c, field)).collect()
}

impl BuildIdRow {
    fn put(&self, out: &mut Vec<u8>) {
        // The header's size is a u16; paths are at most PATH_MAX long, so this cuts nothing.
        let path = self.path.as_bytes();
        let path = path.get(..4095).unwrap_or(path);
        let size = (BUILD_ID_ROW + path.len() + 1).next_multiple_of(8);
        let id = self.build_id.as_bytes();
        out.extend_from_slice(&record_type::HEADER_BUILD_ID.to_ne_bytes());
        out.extend_from_slice(&(self.cpumode | misc::BUILD_ID_SIZE).to_ne_bytes());
        out.extend_from_slice(&(size as u16).to_ne_bytes());
        out.extend_from_slice(&(-1i32).to_ne_bytes());
        out.extend_from_slice(id);
        out.resize(out.len() + BUILD_ID_MAX - id.len(), 0);
        out.extend_from_slice(&[id.len() as u8, 0, 0, 0]);
        out.extend_from_slice(path);
        out.resize(out.len() + size - BUILD_ID_ROW - path.len(), 0);
    }

    /// Reads a row. Old ones do not say how long the ID is: 20 bytes, if not padded by as much
    /// as a shorter usual one would be.
    pub(super) fn take(raw: &RawRecord<'_>) -> Result<Self, Malformed> {
        let mut c = raw.cursor();
        c.skip(4, "build ID table pid")?;
        let at = c.offset();
        let bytes = c.bytes(24, "build ID table ID")?;
        let len = if raw.misc & misc::BUILD_ID_SIZE != 0 {
            bytes.get(BUILD_ID_MAX).copied().map_or(0, usize::from)
        } else {
            let id = bytes.get(..BUILD_ID_MAX).unwrap_or(bytes);
            let padded = |len: usize| id.iter().skip(len).all(|&byte| byte == 0);
            [8, 16].into_iter().find(|&len| padded(len)).unwrap_or(BUILD_ID_MAX)
        };
        let build_id = bytes
            .get(..len.min(BUILD_ID_MAX + 1))
            .and_then(BuildId::new)
            .ok_or_else(|| Malformed::new(at, format!("build ID of {len} bytes")))?;
        let path = c.string(c.rest().len() as u64, "build ID table path")?;
        let path = String::from_utf8_lossy(path).into_owned();
        Ok(Self { build_id, cpumode: raw.cpumode(), path })
    }
}

impl Info {
    fn to_list(&self) -> Vec<String> {
        let mut rows = vec![format!("lost_samples={}", self.lost_samples)];
        rows.extend(self.boot_id.iter().map(|id| format!("boot_id={id}")));
        rows
    }

    fn from_list(rows: &[String]) -> Self {
        let value = |key: &str| {
            rows.iter().find_map(|row| row.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
        };
        Self {
            boot_id: value("boot_id"),
            lost_samples: value("lost_samples").and_then(|n| n.parse().ok()).unwrap_or(0),
        }
    }
}

impl Features {
    /// The sections to write, ordered by feature bit. `attrs` are the attrs in their file form.
    pub(super) fn sections(&self, attrs: &[Vec<u8>]) -> Vec<(Feature, Vec<u8>)> {
        let mut out = Vec::new();
        let mut table = Vec::new();
        self.build_ids.iter().for_each(|row| row.put(&mut table));
        if !table.is_empty() {
            out.push((Feature::BuildId, table));
        }
        let strings = [
            (Feature::Hostname, &self.hostname),
            (Feature::OsRelease, &self.os_release),
            (Feature::Version, &self.version),
            (Feature::Arch, &self.arch),
            (Feature::CpuDesc, &self.cpu_desc),
        ];
        for (feature, text) in strings {
            if let Some(text) = text {
                let mut bytes = Vec::new();
                put_string(&mut bytes, text);
                out.push((feature, bytes));
            }
        }
        if let Some((available, online)) = self.nr_cpus {
            out.push((Feature::NrCpus, [available.to_ne_bytes(), online.to_ne_bytes()].concat()));
        }
        if let Some(kib) = self.total_mem {
            out.push((Feature::TotalMem, kib.to_ne_bytes().to_vec()));
        }
        if !self.cmdline.is_empty() {
            let mut bytes = Vec::new();
            put_list(&mut bytes, &self.cmdline);
            out.push((Feature::Cmdline, bytes));
        }
        if !self.events.is_empty() {
            out.push((Feature::EventDesc, self.event_desc(attrs)));
        }
        if let Some((first, last)) = self.sample_time {
            out.push((Feature::SampleTime, [first.to_ne_bytes(), last.to_ne_bytes()].concat()));
        }
        let mut info = Vec::new();
        put_list(&mut info, &self.info.to_list());
        out.push((Feature::PerfBid, info));
        out.sort_by_key(|(feature, _)| *feature);
        out
    }

    fn event_desc(&self, attrs: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        let attr_size = attrs.first().map_or(0, Vec::len);
        out.extend_from_slice(&(self.events.len() as u32).to_ne_bytes());
        out.extend_from_slice(&(attr_size as u32).to_ne_bytes());
        for ((name, ids), attr) in self.events.iter().zip(attrs) {
            // This section is a description for people and for stock perf, which drops it
            // whole if it sees sample bits it does not know. The attrs section has them all.
            let mut attr = attr.clone();
            let new = sample::NEW.to_ne_bytes();
            attr.iter_mut().skip(SAMPLE_TYPE_AT).zip(new).for_each(|(byte, new)| *byte &= !new);
            out.extend_from_slice(&attr);
            out.extend_from_slice(&(ids.len() as u32).to_ne_bytes());
            put_string(&mut out, name);
            ids.iter().for_each(|id| out.extend_from_slice(&id.to_ne_bytes()));
        }
        out
    }

    /// Whether addresses of the recording machine's kernel have 64 bits, by its architecture as
    /// `uname -m` names it.
    pub fn is_64_bit(&self) -> Option<bool> {
        let arch = self.arch.as_deref()?;
        Some(arch.contains("64") || matches!(arch, "s390x" | "alpha"))
    }

    /// Whether a file that is written with these features has one with this number. Others
    /// have to be copied, if they are to be kept.
    pub fn writes(bit: u32) -> bool {
        use Feature as F;
        let written = [
            F::BuildId,
            F::Hostname,
            F::OsRelease,
            F::Version,
            F::Arch,
            F::NrCpus,
            F::CpuDesc,
            F::TotalMem,
            F::Cmdline,
            F::EventDesc,
            F::SampleTime,
            F::PerfBid,
        ];
        written.iter().any(|&feature| feature as u32 == bit)
    }

    /// Takes in the section of feature bit `bit`, which lies at `offset`. `foreign`: it is of
    /// the other byte order.
    pub(super) fn take(
        &mut self,
        bit: u32,
        bytes: &[u8],
        offset: u64,
        foreign: bool,
    ) -> Result<(), Malformed> {
        let mut c = Cursor::new(bytes, offset).foreign(foreign);
        match bit {
            b if b == Feature::BuildId as u32 => {
                while let Some(raw) = RawRecord::take(&mut c)? {
                    self.build_ids.push(BuildIdRow::take(&raw)?);
                }
            }
            b if b == Feature::Hostname as u32 => self.hostname = Some(string(&mut c, "hostname")?),
            b if b == Feature::OsRelease as u32 => {
                self.os_release = Some(string(&mut c, "osrelease")?);
            }
            b if b == Feature::Version as u32 => self.version = Some(string(&mut c, "version")?),
            b if b == Feature::Arch as u32 => self.arch = Some(string(&mut c, "arch")?),
            b if b == Feature::CpuDesc as u32 => self.cpu_desc = Some(string(&mut c, "cpudesc")?),
            b if b == Feature::CpuId as u32 => self.cpu_id = Some(string(&mut c, "cpuid")?),
            b if b == Feature::NrCpus as u32 => {
                self.nr_cpus = Some((c.u32("nrcpus")?, c.u32("nrcpus")?));
            }
            b if b == Feature::TotalMem as u32 => self.total_mem = Some(c.u64("total memory")?),
            b if b == Feature::Cmdline as u32 => self.cmdline = list(&mut c, "cmdline")?,
            b if b == Feature::EventDesc as u32 => self.events = events(&mut c)?,
            b if b == Feature::PmuMappings as u32 => {
                let nr = c.u32("PMU count")?;
                let pmu = |_| Ok((c.u32("PMU type")?, string(&mut c, "PMU name")?));
                self.pmus = (0..nr).map(pmu).collect::<Result<_, _>>()?;
            }
            b if b == Feature::GroupDesc as u32 => {
                let nr = c.u32("group count")?;
                self.groups = (0..nr).map(|_| group(&mut c)).collect::<Result<_, _>>()?;
            }
            b if b == Feature::SampleTime as u32 => {
                self.sample_time = Some((c.u64("sample time")?, c.u64("sample time")?));
            }
            b if b == Feature::ClockId as u32 => {
                self.clock_resolution = Some(c.u64("clock resolution")?);
            }
            b if b == Feature::ClockData as u32 => self.clock_data = Some(clock_data(&mut c)?),
            b if b == Feature::Compressed as u32 => self.compression = Some(compression(&mut c)?),
            b if b == Feature::PerfBid as u32 => {
                self.info = Info::from_list(&list(&mut c, "perf-bid info")?);
            }
            _ => {}
        }
        Ok(())
    }
}

fn events(c: &mut Cursor<'_>) -> Result<Vec<(String, Vec<u64>)>, Malformed> {
    let nr = c.u32("event count")?;
    let attr_size = c.u32("event attr size")?;
    let event = |_| {
        c.skip(attr_size.into(), "event attr")?;
        let nr_ids = c.u32("event ID count")?;
        let name = string(c, "event name")?;
        let ids = (0..nr_ids).map(|_| c.u64("event IDs")).collect::<Result<_, _>>()?;
        Ok((name, ids))
    };
    (0..nr).map(event).collect()
}

fn group(c: &mut Cursor<'_>) -> Result<Group, Malformed> {
    Ok(Group {
        name: string(c, "group name")?,
        leader: c.u32("group leader")?,
        members: c.u32("group members")?,
    })
}

fn clock_data(c: &mut Cursor<'_>) -> Result<ClockData, Malformed> {
    Ok(ClockData {
        version: c.u32("clock data version")?,
        clockid: c.u32("clock data clock")?,
        wall: c.u64("clock data wall time")?,
        clock: c.u64("clock data clock time")?,
    })
}

fn compression(c: &mut Cursor<'_>) -> Result<Compression, Malformed> {
    Ok(Compression {
        version: c.u32("compression version")?,
        kind: c.u32("compression type")?,
        level: c.u32("compression level")?,
        ratio: c.u32("compression ratio")?,
        mmap_len: c.u32("compression mmap_len")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_sizes() {
        let of = |arch: &str| Features { arch: Some(arch.into()), ..Features::default() };
        for arch in ["x86_64", "aarch64", "ppc64le", "riscv64", "s390x", "loongarch64"] {
            assert_eq!(of(arch).is_64_bit(), Some(true), "{arch}");
        }
        for arch in ["i686", "armv7l", "ppc", "mips"] {
            assert_eq!(of(arch).is_64_bit(), Some(false), "{arch}");
        }
        assert_eq!(Features::default().is_64_bit(), None);
    }

    /// Old versions say nothing about the length of a build ID.
    #[test]
    fn build_ids_without_a_size() {
        let row = |id: &[u8]| {
            let mut body = (-1i32).to_ne_bytes().to_vec();
            body.extend_from_slice(id);
            body.resize(28, 0);
            body.extend_from_slice(b"/bin/x\0\0");
            let raw = RawRecord { offset: 0, type_: 0, misc: misc::USER, body: &body };
            BuildIdRow::take(&raw).unwrap()
        };
        for len in [8, 16, 20] {
            let row = row(&vec![7; len]);
            assert_eq!(row.build_id.as_bytes(), vec![7; len]);
            assert_eq!((row.cpumode, row.path.as_str()), (misc::USER, "/bin/x"));
        }
    }

    #[test]
    fn sections_survive_a_round_trip() {
        let features = Features {
            build_ids: vec![
                BuildIdRow {
                    build_id: BuildId::new(&[1; 20]).unwrap(),
                    cpumode: misc::USER,
                    path: "/bin/x".into(),
                },
                BuildIdRow {
                    build_id: BuildId::new(&[2; 8]).unwrap(),
                    cpumode: misc::KERNEL,
                    path: String::new(),
                },
            ],
            hostname: Some("h".into()),
            os_release: Some("7.3".into()),
            version: Some("1".into()),
            arch: Some("x86_64".into()),
            nr_cpus: Some((4, 2)),
            cpu_desc: Some("c".into()),
            total_mem: Some(123),
            cmdline: vec!["a".into(), "b c".into()],
            events: vec![("cpu-clock".into(), vec![7, 8])],
            sample_time: Some((1, 2)),
            info: Info { boot_id: Some("b".into()), lost_samples: 3 },
            ..Features::default()
        };
        let attrs = [crate::attr::Attr::default().to_bytes()];
        let mut read = Features::default();
        for (feature, bytes) in features.sections(&attrs) {
            assert!(Features::writes(feature as u32));
            read.take(feature as u32, &bytes, 0, false).unwrap();
            // No prefix of a section may do worse than an error.
            for len in 0..bytes.len() {
                let _ = Features::default().take(feature as u32, &bytes[..len], 0, false);
            }
        }
        assert_eq!(read, features);
    }
}
