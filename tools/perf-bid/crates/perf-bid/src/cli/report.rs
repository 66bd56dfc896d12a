// SPDX-License-Identifier: GPL-2.0
//! Options of `perf-bid report`.

use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use super::Naming;

/// `perf-bid report`
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "\
Examples:
  perf-bid report                              browse perf.data in the terminal
  perf-bid report --stdio --no-children        a table of the hottest symbols
  perf-bid report --sort dso,buildid -g none   which files
  perf-bid report -g callee --symbols malloc   who calls malloc
  perf-bid report --flamegraph out.svg         callchains as a flame graph
  perf-bid report --diff old.data new.data     what became slower or faster
  zcat old.gz | perf-bid report -i -           from a pipe

A row in [brackets] is an address the kernel could not resolve, with the reason it gave.")]
pub struct Report {
    /// File to read, `-` for standard input
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    pub input: PathBuf,

    /// Compare two recordings: shares in NEW less those in OLD
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["tui", "totals"])]
    pub diff: Vec<PathBuf>,

    /// Plain text on standard output (the default unless it is a terminal)
    #[arg(long, conflicts_with = "tui")]
    pub stdio: bool,

    /// Browse in the terminal (the default on a terminal)
    #[arg(long)]
    pub tui: bool,

    /// Columns to group by [default: comm,dso,symbol, and buildid where recorded, without --diff]
    #[arg(short, long, value_name = "KEYS", value_delimiter = ',', value_enum)]
    pub sort: Vec<SortKey>,

    /// All columns, numbers included: overhead, overhead_children, sample, period, and sort keys
    #[arg(short = 'F', long, value_name = "FIELDS", value_delimiter = ',', value_parser = field,
          conflicts_with = "sort")]
    pub fields: Vec<Field>,

    /// Count samples in what a function calls to the function, too (the default with callchains)
    #[arg(long, overrides_with = "no_children")]
    pub children: bool,

    /// Count samples only where they fell
    #[arg(long)]
    pub no_children: bool,

    /// Call trees: none, or caller (what is called, the default with --children) or callee (who
    /// calls), graph or fractal (shares of the whole or of the branch), smallest share in percent
    #[arg(short = 'g', long, value_name = "WORDS", value_delimiter = ',', value_parser = graph_word,
          num_args = 0..=1, default_missing_value = "graph")]
    pub call_graph: Vec<GraphWord>,

    /// Leave out rows and branches below this share [default: rows 0, branches 0.5]
    #[arg(long, value_name = "PERCENT")]
    pub percent_limit: Option<f64>,

    /// Show at most this many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,

    /// Show a column with the number of samples
    #[arg(short = 'n', long)]
    pub show_nr_samples: bool,

    /// Show a column with the sum of the periods
    #[arg(long)]
    pub show_total_period: bool,

    /// Whole paths of files
    #[arg(short, long)]
    pub verbose: bool,

    /// Columns apart by this and nothing else
    #[arg(short = 't', long, value_name = "TEXT")]
    pub field_separator: Option<String>,

    /// Begin with what is known about the recording
    #[arg(long)]
    pub header: bool,

    /// Print only what is known about the recording
    #[arg(long)]
    pub header_only: bool,

    /// Print one line of totals and no table
    #[arg(long)]
    pub totals: bool,

    /// Write a flame graph of the callchains
    #[arg(long, value_name = "SVG")]
    pub flamegraph: Option<PathBuf>,

    /// Write totals and rows as JSON, `-` for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Which samples
    #[command(flatten)]
    pub filter: Filter,

    /// Where names come from.
    #[command(flatten)]
    pub naming: Naming,
}

/// Which samples are shown.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filters")]
pub struct Filter {
    /// Only samples of threads with these names
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    pub comms: Vec<String>,

    /// Only samples in these files
    #[arg(short, long, value_name = "FILES", value_delimiter = ',')]
    pub dsos: Vec<String>,

    /// Only samples in these functions
    #[arg(short = 'S', long, value_name = "NAMES", value_delimiter = ',')]
    pub symbols: Vec<String>,

    /// Only samples of these processes
    #[arg(long, value_name = "PIDS", value_delimiter = ',')]
    pub pid: Vec<u32>,

    /// Only samples of these threads
    #[arg(long, value_name = "TIDS", value_delimiter = ',')]
    pub tid: Vec<u32>,

    /// Shares of all samples, or of those that are shown
    #[arg(long, value_enum, default_value_t)]
    pub percentage: Percentage,

    /// Look at this many innermost frames of each callchain
    #[arg(long, value_name = "FRAMES")]
    pub max_stack: Option<u32>,
}

/// What shares are shares of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Percentage {
    /// All samples
    #[default]
    Absolute,
    /// The samples that are shown
    Relative,
}

/// A column to group by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum SortKey {
    /// Name of the thread
    Comm,
    /// Name of the file, or what there is instead of one
    Dso,
    /// Function
    #[value(alias = "sym")]
    Symbol,
    /// First 12 digits of the build ID
    #[value(alias = "build-id")]
    Buildid,
    /// Source file and line
    Srcline,
    /// Process and its name
    #[value(alias = "tgid")]
    Pid,
    /// Thread and its name
    Tid,
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Share of samples that fell here.
    Overhead,
    /// Share of samples that fell here or in what was called from here.
    Children,
    /// Number of samples that fell here.
    Samples,
    /// Sum of their periods.
    Period,
    /// What is grouped by.
    Key(SortKey),
}

fn field(word: &str) -> Result<Field, String> {
    match word {
        "overhead" => Ok(Field::Overhead),
        "overhead_children" => Ok(Field::Children),
        "sample" => Ok(Field::Samples),
        "period" => Ok(Field::Period),
        key => SortKey::from_str(key, false).map(Field::Key).map_err(|_| {
            let keys = SortKey::value_variants().iter().filter_map(SortKey::to_possible_value);
            let keys: Vec<_> = keys.map(|key| key.get_name().to_owned()).collect();
            format!(
                "no such field; there are overhead, overhead_children, sample, period, {}",
                keys.join(", ")
            )
        }),
    }
}

/// Part of the value of `-g`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GraphWord {
    /// No trees.
    None,
    /// Shares of the whole.
    Graph,
    /// Shares of the branch.
    Fractal,
    /// From callers to callees.
    Caller,
    /// From callees to callers.
    Callee,
    /// Smallest share, in percent.
    Percent(f64),
    /// What perf would do anyway.
    Default,
}

fn graph_word(word: &str) -> Result<GraphWord, String> {
    match word {
        "none" => Ok(GraphWord::None),
        "graph" => Ok(GraphWord::Graph),
        "fractal" => Ok(GraphWord::Fractal),
        "caller" => Ok(GraphWord::Caller),
        "callee" => Ok(GraphWord::Callee),
        "function" | "percent" => Ok(GraphWord::Default),
        number => match number.parse() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(GraphWord::Percent(percent)),
            _ => Err("give none, graph, fractal, caller, callee or a percentage".to_owned()),
        },
    }
}
