//! What the command can be asked.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, value_parser};
use marcato_papers::{Registry, RunOptions, World};

/// Marcato delivers what matters first.
#[derive(Debug, Parser)]
#[command(name = "marcato", version)]
struct Marcato {
    #[command(subcommand)]
    command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a paper's experiments and compares what it measures with what the paper prints
    ///
    /// The exit status is 0 when every row lies in its band, 1 when one lies outside, and 2 when the experiments
    /// could not be run.
    Papers(Papers),
}

/// What `marcato papers` is asked.
#[derive(Debug, Args)]
pub(crate) struct Papers {
    /// The paper, or all of them
    pub(crate) paper: String,

    /// Where to run
    #[arg(long, value_enum, default_value_t = WorldName::Virtual)]
    pub(crate) world: WorldName,

    /// Shorten the runs
    #[arg(long)]
    pub(crate) quick: bool,

    /// The seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Run with so many seeds, and give means with 95 % confidence intervals
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = value_parser!(u32).range(1..=i64::from(RunOptions::MOST_RUNS))
    )]
    pub(crate) repeat: u32,

    /// Write report.html, rows.json, rows.csv and the figures into this directory
    ///
    /// With `all`, each paper has a directory of its own in it.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// How to print the rows on standard output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned tables
    Text,
    /// One JSON document
    Json,
    /// One line per row
    Csv,
}

/// The names of the worlds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorldName {
    /// Virtual time: the simulator
    Virtual,
    /// Real time: real sockets through the link emulator
    Lab,
}

impl From<WorldName> for World {
    fn from(name: WorldName) -> Self {
        match name {
            WorldName::Virtual => Self::Virtual,
            WorldName::Lab => Self::Lab,
        }
    }
}

/// Reads the command line. Which papers there are is the registry's to say.
pub(crate) fn parse<I>(registry: &Registry, arguments: I) -> Result<Command, clap::Error>
where
    I: IntoIterator<Item = OsString>,
{
    // Listed in the help, but judged by the registry, whose refusal says more than clap's would.
    let mut listed: Vec<String> =
        registry.iter().map(|one| format!("\n{:<6}{}", one.name(), one.about())).collect();
    let about = if listed.is_empty() {
        "The paper; no experiment is built into this program yet".to_owned()
    } else {
        listed.push(format!("\n{:<6}Every one of them, in order", Registry::ALL));
        format!("The paper:{}", listed.concat())
    };
    let command = Marcato::command()
        .mut_subcommand("papers", |papers| papers.mut_arg("paper", |argument| argument.help(about)));
    let matches = command.try_get_matches_from(arguments)?;
    Ok(Marcato::from_arg_matches(&matches)?.command)
}
