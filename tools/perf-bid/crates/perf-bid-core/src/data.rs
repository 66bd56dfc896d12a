// SPDX-License-Identifier: GPL-2.0
//! perf.data files, in the form described by `tools/perf/Documentation/perf.data-file-format.txt`
//! of the kernel source.
//!
//! | part            | contents                                                           |
//! | --------------- | ------------------------------------------------------------------ |
//! | header, 104 B   | magic, sizes, sections of attrs and data, 256 feature bits         |
//! | attrs           | one `perf_event_attr` + section of IDs for each event              |
//! | data            | records, back to back                                              |
//! | feature table   | one section (`u64 offset, size`) for each feature bit, right after |
//! | features        | build IDs, host name, command line and so on                       |
//!
//! In pipe mode, the header has 16 bytes, and records say all the rest. Reading takes both, of
//! either byte order, compressed or not ([`normal`]); the magic is a u64 and tells the byte order.
//! Writing is always plain and in this machine's order.

mod compose;
mod compress;
mod events;
mod feature;
mod head;
mod normal;
mod pipe;
mod reader;
mod records;
mod spool;
mod writer;

pub use compose::Mapping;
pub use compose::Stamp;
pub use compose::comm_record;
pub use compose::finished_round;
pub use compose::fork_record;
pub use compose::lost_samples_record;
pub use compose::mmap2_record;
pub use events::EventDesc;
pub use feature::BuildIdRow;
pub use feature::ClockData;
pub use feature::Compression;
pub use feature::Feature;
pub use feature::Features;
pub use feature::Group;
pub use feature::Info;
pub use head::ByteOrder;
pub use pipe::PipeWriter;
pub use reader::DataError;
pub use reader::PerfData;
pub(crate) use records::Behind;
pub use records::Records;
pub use writer::Writer;

/// `PERFILE2` as a native u64 reads it on a little-endian machine.
const MAGIC: [u8; 8] = *b"PERFILE2";
/// Size of the file header, in bytes.
const HEADER_SIZE: u64 = 104;
/// Offset of the feature bitmap within the header.
const FEATURES_AT: usize = 72;
