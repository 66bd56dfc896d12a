// SPDX-License-Identifier: GPL-2.0
//! perf.data files, in the form described by `tools/perf/Documentation/perf.data-file-format.txt`
//! of the kernel source (version 2, `PERFILE2`, with a seekable header).
//!
//! | part            | contents                                                           |
//! | --------------- | ------------------------------------------------------------------ |
//! | header, 104 B   | magic, sizes, sections of attrs and data, 256 feature bits         |
//! | attrs           | one `perf_event_attr` + section of IDs for each event              |
//! | data            | records, back to back                                              |
//! | feature table   | one section (`u64 offset, size`) for each feature bit, right after |
//! | features        | build IDs, host name, command line and so on                       |

mod compose;
mod compress;
mod feature;
mod pipe;
mod reader;
mod writer;

pub use compose::Mapping;
pub use compose::Stamp;
pub use compose::comm_record;
pub use compose::finished_round;
pub use compose::fork_record;
pub use compose::lost_samples_record;
pub use compose::mmap2_record;
pub use feature::BuildIdRow;
pub use feature::Feature;
pub use feature::Features;
pub use feature::Info;
pub use pipe::PipeWriter;
pub use reader::DataError;
pub use reader::EventDesc;
pub use reader::PerfData;
pub use reader::Records;
pub use writer::Writer;

/// `PERFILE2` as a native u64 reads it on a little-endian machine.
const MAGIC: [u8; 8] = *b"PERFILE2";
/// Size of the file header, in bytes.
const HEADER_SIZE: u64 = 104;
/// Offset of the feature bitmap within the header.
const FEATURES_AT: usize = 72;
