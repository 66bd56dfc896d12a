// SPDX-License-Identifier: GPL-2.0
//! Numbers and layouts of `include/uapi/linux/perf_event.h` that this crate uses,
//! and the ones that `CONFIG_PERF_BUILD_ID_OFFSET` adds.
//!
//! The new unit is the 32-byte [`Entry`], `struct perf_sample_build_id_offset`:
//!
//! | bytes | field        | meaning                                            |
//! | ----- | ------------ | -------------------------------------------------- |
//! | 0     | `size`       | length of the build ID, 1 to 20; 0: not resolved   |
//! | 1     | `status`     | [`Status`]                                         |
//! | 2..4  | reserved     | 0                                                  |
//! | 4..24 | `data`       | the build ID, zero padded                          |
//! | 24..32| `offset`     | byte offset in the file, or what `status` says     |
//!
//! Multi-byte fields have the byte order of the recording machine.

use std::fmt;

use zerocopy::FromBytes;
use zerocopy::Immutable;
use zerocopy::IntoBytes;
use zerocopy::KnownLayout;
use zerocopy::Unaligned;
use zerocopy::native_endian::U64;

/// `PERF_SAMPLE_*`: which fields a sample carries, in `perf_event_attr.sample_type`.
pub mod sample {
    #![allow(missing_docs)]
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const TRANSACTION: u64 = 1 << 17;
    pub const REGS_INTR: u64 = 1 << 18;
    pub const PHYS_ADDR: u64 = 1 << 19;
    pub const AUX: u64 = 1 << 20;
    pub const CGROUP: u64 = 1 << 21;
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
    pub const CODE_PAGE_SIZE: u64 = 1 << 23;
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
    /// The instruction pointer as build ID + offset.
    pub const BUILD_ID_OFFSET: u64 = 1 << 25;
    /// The callchain as build IDs + offsets.
    pub const CALLCHAIN_BUILD_ID_OFFSET: u64 = 1 << 26;
    /// The first bit without a meaning.
    pub const MAX: u64 = 1 << 27;
    /// The two bits that need `CONFIG_PERF_BUILD_ID_OFFSET`.
    pub const NEW: u64 = BUILD_ID_OFFSET | CALLCHAIN_BUILD_ID_OFFSET;
}

/// `PERF_FORMAT_*`: what a `read(2)` of an event returns, in `perf_event_attr.read_format`.
pub mod read_format {
    #![allow(missing_docs)]
    pub const TOTAL_TIME_ENABLED: u64 = 1 << 0;
    pub const TOTAL_TIME_RUNNING: u64 = 1 << 1;
    pub const ID: u64 = 1 << 2;
    pub const GROUP: u64 = 1 << 3;
    pub const LOST: u64 = 1 << 4;
    /// The first bit without a meaning.
    pub const MAX: u64 = 1 << 5;
}

/// The single-bit flags of `perf_event_attr`, as bits of the u64 at byte 40.
pub mod flag {
    #![allow(missing_docs)]
    pub const DISABLED: u64 = 1 << 0;
    pub const INHERIT: u64 = 1 << 1;
    pub const PINNED: u64 = 1 << 2;
    pub const EXCLUSIVE: u64 = 1 << 3;
    pub const EXCLUDE_USER: u64 = 1 << 4;
    pub const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub const EXCLUDE_HV: u64 = 1 << 6;
    pub const EXCLUDE_IDLE: u64 = 1 << 7;
    pub const MMAP: u64 = 1 << 8;
    pub const COMM: u64 = 1 << 9;
    pub const FREQ: u64 = 1 << 10;
    pub const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub const TASK: u64 = 1 << 13;
    pub const WATERMARK: u64 = 1 << 14;
    /// The lower of the two bits of `precise_ip`.
    pub const PRECISE_IP: u64 = 1 << 15;
    pub const MMAP_DATA: u64 = 1 << 17;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const EXCLUDE_HOST: u64 = 1 << 19;
    pub const EXCLUDE_GUEST: u64 = 1 << 20;
    pub const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
    pub const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    pub const MMAP2: u64 = 1 << 23;
    pub const COMM_EXEC: u64 = 1 << 24;
    pub const USE_CLOCKID: u64 = 1 << 25;
    pub const BUILD_ID: u64 = 1 << 34;
    /// Ask for the user callchain on return to user mode.
    pub const DEFER_CALLCHAIN: u64 = 1 << 38;
    /// Receive `PERF_RECORD_CALLCHAIN_DEFERRED`.
    pub const DEFER_OUTPUT: u64 = 1 << 39;
}

/// `PERF_RECORD_*`: the type of a record, and perf.data's own types from 64 up.
pub mod record_type {
    #![allow(missing_docs)]
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const THROTTLE: u32 = 5;
    pub const UNTHROTTLE: u32 = 6;
    pub const FORK: u32 = 7;
    pub const READ: u32 = 8;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const AUX: u32 = 11;
    pub const ITRACE_START: u32 = 12;
    pub const LOST_SAMPLES: u32 = 13;
    pub const SWITCH: u32 = 14;
    pub const SWITCH_CPU_WIDE: u32 = 15;
    pub const NAMESPACES: u32 = 16;
    pub const KSYMBOL: u32 = 17;
    pub const BPF_EVENT: u32 = 18;
    pub const CGROUP: u32 = 19;
    pub const TEXT_POKE: u32 = 20;
    pub const AUX_OUTPUT_HW_ID: u32 = 21;
    pub const CALLCHAIN_DEFERRED: u32 = 22;
    /// The first type that perf.data defines and the kernel never writes.
    pub const USER_TYPE_START: u32 = 64;
    pub const HEADER_ATTR: u32 = 64;
    pub const HEADER_EVENT_TYPE: u32 = 65;
    /// Its payload comes after the record; its size is the record's first word.
    pub const HEADER_TRACING_DATA: u32 = 66;
    pub const HEADER_BUILD_ID: u32 = 67;
    pub const FINISHED_ROUND: u32 = 68;
    pub const ID_INDEX: u32 = 69;
    pub const AUXTRACE_INFO: u32 = 70;
    /// Its payload comes after the record; its size is the record's first double word.
    pub const AUXTRACE: u32 = 71;
    pub const AUXTRACE_ERROR: u32 = 72;
    pub const THREAD_MAP: u32 = 73;
    pub const CPU_MAP: u32 = 74;
    pub const STAT_CONFIG: u32 = 75;
    pub const STAT: u32 = 76;
    pub const STAT_ROUND: u32 = 77;
    pub const EVENT_UPDATE: u32 = 78;
    pub const TIME_CONV: u32 = 79;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const FINISHED_INIT: u32 = 82;
    pub const COMPRESSED2: u32 = 83;
    pub const BPF_METADATA: u32 = 84;
}

/// `PERF_RECORD_MISC_*`: the `misc` half word of a record header.
pub mod misc {
    #![allow(missing_docs)]
    pub const CPUMODE_MASK: u16 = 7;
    pub const KERNEL: u16 = 1;
    pub const USER: u16 = 2;
    pub const HYPERVISOR: u16 = 3;
    pub const GUEST_KERNEL: u16 = 4;
    pub const GUEST_USER: u16 = 5;
    pub const MMAP_DATA: u16 = 1 << 13;
    pub const COMM_EXEC: u16 = 1 << 13;
    pub const SWITCH_OUT: u16 = 1 << 13;
    /// The task that was switched out could have gone on.
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    pub const FORK_EXEC: u16 = 1 << 13;
    /// An MMAP2 record that carries a build ID in place of device and inode.
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    /// A `CALLCHAIN_DEFERRED` record whose entries are [`Entry`](super::Entry).
    pub const CALLCHAIN_BUILD_ID: u16 = 1 << 14;
    /// A build ID table entry whose `size` byte is valid.
    pub const BUILD_ID_SIZE: u16 = 1 << 15;
}

/// `PERF_CONTEXT_*`: markers within a callchain.
pub mod context {
    #![allow(missing_docs)]
    pub const HV: u64 = (-32i64) as u64;
    pub const KERNEL: u64 = (-128i64) as u64;
    pub const USER: u64 = (-512i64) as u64;
    pub const USER_DEFERRED: u64 = (-640i64) as u64;
    pub const GUEST: u64 = (-2048i64) as u64;
    pub const GUEST_KERNEL: u64 = (-2176i64) as u64;
    pub const GUEST_USER: u64 = (-2560i64) as u64;

    /// Whether `value` is one of the markers. Other values near the top of the address space
    /// are addresses, if bad ones: a broken stack can hold -1.
    pub fn is_marker(value: u64) -> bool {
        matches!(value, HV | KERNEL | USER | USER_DEFERRED | GUEST | GUEST_KERNEL | GUEST_USER)
    }
}

/// Longest build ID the kernel hands out, in bytes.
pub const BUILD_ID_MAX: usize = 20;

/// Most entries that one callchain in build-ID form can hold.
pub const ENTRIES_MAX: u64 = 2046;

/// `enum perf_build_id_offset_status`: what became of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Build ID and file offset are valid.
    Resolved,
    /// A `PERF_CONTEXT_*` marker.
    Context,
    /// A kernel, hypervisor or guest address.
    Kernel,
    /// The rest follows in `PERF_RECORD_CALLCHAIN_DEFERRED`; the offset is its cookie.
    Deferred,
    /// No file behind the address, or no mapping at all.
    Anon,
    /// The file has no readable build ID note.
    NoBuildId,
    /// The note was not resident and the context must not fault.
    Fault,
    /// The address space could not be read safely at that moment.
    Busy,
    /// No user address space.
    NoMm,
    /// Out of memory while resolving.
    NoMemory,
    /// A status this version does not know: not resolved, the offset is an address.
    Unknown(u8),
}

impl Status {
    /// Decodes the status byte.
    pub fn from_byte(byte: u8) -> Self {
        match byte {
            0 => Self::Resolved,
            1 => Self::Context,
            2 => Self::Kernel,
            3 => Self::Deferred,
            4 => Self::Anon,
            5 => Self::NoBuildId,
            6 => Self::Fault,
            7 => Self::Busy,
            8 => Self::NoMm,
            9 => Self::NoMemory,
            other => Self::Unknown(other),
        }
    }

    /// The status byte.
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Resolved => 0,
            Self::Context => 1,
            Self::Kernel => 2,
            Self::Deferred => 3,
            Self::Anon => 4,
            Self::NoBuildId => 5,
            Self::Fault => 6,
            Self::Busy => 7,
            Self::NoMm => 8,
            Self::NoMemory => 9,
            Self::Unknown(other) => other,
        }
    }

    /// A few words for tables, e.g. `no build ID`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::Context => "context",
            Self::Kernel => "kernel",
            Self::Deferred => "deferred",
            Self::Anon => "anon",
            Self::NoBuildId => "no build ID",
            Self::Fault => "fault",
            Self::Busy => "busy",
            Self::NoMm => "no mm",
            Self::NoMemory => "no memory",
            Self::Unknown(_) => "unknown status",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(byte) => write!(f, "status {byte}"),
            known => f.write_str(known.label()),
        }
    }
}

/// One address as the kernel resolved it: `struct perf_sample_build_id_offset`.
///
/// Any 32 bytes are a valid `Entry`; [`Entry::violation`] tells whether they keep the
/// promises of the ABI.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Entry {
    size: u8,
    status: u8,
    reserved: [u8; 2],
    data: [u8; BUILD_ID_MAX],
    offset: U64,
}

impl Entry {
    /// Size of an entry in a record, in bytes.
    pub const SIZE: usize = size_of::<Entry>();

    /// An entry that names a place in a file.
    pub fn resolved(build_id: BuildId, offset: u64) -> Self {
        Self {
            size: build_id.len,
            status: Status::Resolved.to_byte(),
            reserved: [0; 2],
            data: build_id.data,
            offset: U64::new(offset),
        }
    }

    /// An entry without a build ID; `value` is an address, a marker or a cookie.
    pub fn unresolved(status: Status, value: u64) -> Self {
        Self {
            size: 0,
            status: status.to_byte(),
            reserved: [0; 2],
            data: [0; BUILD_ID_MAX],
            offset: U64::new(value),
        }
    }

    /// What became of the address.
    pub fn status(&self) -> Status {
        Status::from_byte(self.status)
    }

    /// File offset, address, marker or cookie, as [`Entry::status`] says.
    pub fn offset(&self) -> u64 {
        self.offset.get()
    }

    /// The build ID, if the entry is resolved and its size is one the ABI allows.
    pub fn build_id(&self) -> Option<BuildId> {
        if self.status != 0 {
            return None;
        }
        BuildId::new(self.data.get(..usize::from(self.size))?)
    }

    /// The first promise of the ABI that these bytes break, if any.
    pub fn violation(&self) -> Option<&'static str> {
        let size = usize::from(self.size);
        if self.reserved != [0; 2] {
            Some("reserved bytes are not zero")
        } else if size > BUILD_ID_MAX {
            Some("build ID size is above 20")
        } else if self.status == 0 && size == 0 {
            Some("resolved, yet the build ID size is 0")
        } else if self.status != 0 && size != 0 {
            Some("not resolved, yet the build ID size is not 0")
        } else if self.data.iter().skip(size).any(|&byte| byte != 0) {
            Some("build ID is not zero padded")
        } else if matches!(self.status(), Status::Unknown(_)) {
            Some("status is not one the ABI defines")
        } else {
            None
        }
    }
}

/// A build ID of 1 to 20 bytes, with its true length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId {
    // Invariant: 1 <= len <= BUILD_ID_MAX, and `data` is zero from `len` on.
    len: u8,
    data: [u8; BUILD_ID_MAX],
}

impl BuildId {
    /// `None` if `bytes` is empty or longer than [`BUILD_ID_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() {
            return None;
        }
        let mut data = [0; BUILD_ID_MAX];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { len: u8::try_from(bytes.len()).ok()?, data })
    }

    /// Parses hexadecimal digits; `None` unless they are 1 to 20 whole bytes.
    pub fn from_hex(hex: &str) -> Option<Self> {
        if !hex.is_ascii() || !hex.len().is_multiple_of(2) {
            return None;
        }
        let mut bytes = Vec::with_capacity(hex.len() / 2);
        for at in (0..hex.len()).step_by(2) {
            bytes.push(u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()?);
        }
        Self::new(&bytes)
    }

    /// The bytes, without padding.
    pub fn as_bytes(&self) -> &[u8] {
        self.data.get(..usize::from(self.len)).unwrap_or(&self.data)
    }

    /// The first 12 hex digits, for tables.
    pub fn short(&self) -> String {
        let mut hex = self.to_string();
        hex.truncate(12);
        hex
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_32_bytes_with_the_offset_at_24() {
        let id = BuildId::new(&[0xaa, 0xbb, 0xcc]).unwrap();
        let entry = Entry::resolved(id, 0x1122_3344_5566_7788);
        let bytes = entry.as_bytes();
        assert_eq!(bytes.len(), 32);
        assert_eq!(&bytes[..8], &[3, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0]);
        assert_eq!(&bytes[24..], &0x1122_3344_5566_7788u64.to_ne_bytes());
    }

    #[test]
    fn build_id_keeps_its_length() {
        for len in 1..=BUILD_ID_MAX {
            let id = BuildId::new(&vec![7; len]).unwrap();
            assert_eq!(id.as_bytes().len(), len);
            assert_eq!(id.to_string().len(), 2 * len);
            assert_eq!(BuildId::from_hex(&id.to_string()), Some(id));
        }
        assert_eq!(BuildId::new(&[]), None);
        assert_eq!(BuildId::new(&[0; 21]), None);
        assert_eq!(BuildId::from_hex("abc"), None);
        assert_eq!(BuildId::from_hex("zz"), None);
    }

    #[test]
    fn padded_and_unpadded_ids_differ() {
        assert_ne!(BuildId::new(&[1, 2]), BuildId::new(&[1, 2, 0]));
    }

    #[test]
    fn status_survives_a_round_trip() {
        for byte in 0..=u8::MAX {
            assert_eq!(Status::from_byte(byte).to_byte(), byte);
        }
    }

    #[test]
    fn violations_are_named() {
        let good = Entry::resolved(BuildId::new(&[1; 8]).unwrap(), 0x10);
        assert_eq!(good.violation(), None);
        assert_eq!(Entry::unresolved(Status::Anon, 1).violation(), None);
        assert!(Entry { size: 21, ..good }.violation().is_some());
        assert!(Entry { size: 4, ..good }.violation().is_some());
        assert!(Entry { reserved: [0, 1], ..good }.violation().is_some());
        assert!(Entry { status: 4, ..good }.violation().is_some());
        assert!(Entry::unresolved(Status::Resolved, 0).violation().is_some());
        assert!(Entry::unresolved(Status::Unknown(77), 0).violation().is_some());
        assert_eq!(Entry { size: 21, ..good }.build_id(), None);
    }
}
