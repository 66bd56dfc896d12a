// SPDX-License-Identifier: GPL-2.0
//! The command line. Option names are those of perf's own commands where perf has the option.

mod buildids;
mod check;
mod export;
mod inject;
mod naming;
mod pages;
mod record;
mod report;
mod script;

use std::path::PathBuf;

use clap::Parser;
use clap::Subcommand;
use clap::builder::PathBufValueParser;
use clap::builder::TypedValueParser;

pub use self::buildids::Buildids;
pub use self::check::Check;
pub use self::export::Export;
pub use self::export::Format;
pub use self::export::Weights;
pub use self::inject::Inject;
pub use self::naming::Naming;
pub use self::pages::Completions;
pub use self::pages::ManPages;
pub use self::record::CallGraph;
pub use self::record::Frequency;
pub use self::record::Record;
pub use self::record::SwitchOutput;
pub use self::record::Synth;
pub use self::report::Field;
pub use self::report::Filter;
pub use self::report::GraphWord;
pub use self::report::Percentage;
pub use self::report::Report;
pub use self::report::SortKey;
pub use self::script::Script;

/// A file to write. Standard output goes by its name in /dev, too: that is a link, which must not
/// be moved out of the way of a new file.
fn output() -> impl TypedValueParser<Value = PathBuf> {
    const STDOUT: [&str; 3] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    PathBufValueParser::new().map(|path| {
        let is_stdout = STDOUT.iter().any(|name| path.as_os_str() == *name);
        if is_stdout { PathBuf::from("-") } else { path }
    })
}

/// Profiles that name code by build ID and file offset, without memory maps.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command, or watch tasks or CPUs, and write samples to a file
    Record(Record),
    /// Print the samples of a recording, one by one
    Script(Script),
    /// Show where the samples of a recording fell
    Report(Report),
    /// Convert ordinary recordings to build-ID profiles, and back
    Inject(Inject),
    /// Hand a profile to other tools: pprof, Firefox Profiler, flame graphs
    Export(Export),
    /// List the build IDs that were hit, and where their files are
    Buildids(Buildids),
    /// Say what this machine can do, and what to do about the rest
    Check(Check),
    /// Write manual pages
    #[command(hide = true)]
    Man(ManPages),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions(Completions),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::Parser;

    use super::Command;

    #[test]
    fn definition_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn standard_output_has_several_names() {
        for (name, what) in [
            ("/dev/stdout", "-"),
            ("/proc/self/fd/1", "-"),
            ("-", "-"),
            ("/dev/stdout.old", "/dev/stdout.old"),
        ] {
            let line = ["perf-bid", "record", "-o", name, "true"];
            let Ok(super::Cli { command: Command::Record(record) }) =
                super::Cli::try_parse_from(line)
            else {
                panic!("{line:?}");
            };
            assert_eq!(record.output.as_os_str(), what);
        }
    }
}
