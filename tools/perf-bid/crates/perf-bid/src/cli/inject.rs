// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid inject`.

use std::path::PathBuf;

use clap::ArgGroup;
use clap::Args;

/// `perf-bid inject`
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("direction").required(true),
    after_help = "\
Examples:
  perf-bid inject --sample-buildids -i perf.data -o bid.data
                                     what perf recorded, as a build-ID profile
  perf-bid inject --to-mmaps -i bid.data -o perf.data
                                     a build-ID profile, for tools that need maps and addresses

A build-ID profile says where code is by build ID and file offset. Addresses, which differ from
run to run and tell something about the process, are gone from it, except where there is no
build ID to name the code by."
)]
pub struct Inject {
    /// Turn the addresses of an ordinary recording into build IDs and file offsets
    #[arg(long, group = "direction")]
    pub sample_buildids: bool,

    /// Turn build IDs and file offsets into addresses in mappings made up for them
    #[arg(long, group = "direction")]
    pub to_mmaps: bool,

    /// File to read
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,

    /// File to write; an older one is kept as FILE.old
    #[arg(short, long, value_name = "FILE", value_parser = super::output())]
    pub output: PathBuf,

    /// Keep the map records of processes
    #[arg(long, requires = "sample_buildids")]
    pub keep_mmaps: bool,

    /// Keep the fields of samples that hold data addresses, registers, stacks and branches
    #[arg(long, requires = "sample_buildids")]
    pub keep_addresses: bool,

    /// Write map records without build IDs, for perf before 5.12
    #[arg(long, requires = "to_mmaps")]
    pub no_buildid_mmap: bool,

    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
}
