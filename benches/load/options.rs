//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::builder::PossibleValuesParser;

use crate::{
    generator::Work,
    scenarios::{self, Scenario},
};

/// Measures client-proxy beside nginx and HAProxy, where they are installed, on this machine's loopback.
#[derive(Debug, clap::Parser)]
#[command(name = "load", bin_name = "cargo bench --bench load --", after_help = scenarios::help())]
pub(crate) struct Options {
    /// Less than three minutes on two cores: fewer and shorter rounds, figures less sure
    #[arg(long)]
    quick: bool,
    /// Only this scenario; may be repeated
    #[arg(long = "scenario", value_name = "NAME", value_parser = PossibleValuesParser::new(scenarios::names()),
          hide_possible_values = true)]
    names: Vec<String>,
    /// Rounds of load; each measures every peer once, in an order that turns round [default: 8, quick: 2]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Seconds of load on one peer in one round [default: 2, quick: 1]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: Option<u16>,
    /// Writes every figure to this file, too
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Serves as the upstream of another process of this program
    #[arg(long, hide = true)]
    pub(crate) upstream: bool,
    /// Puts load on `address` for another process of this program
    #[arg(long, hide = true, value_name = "WORK", requires = "address")]
    pub(crate) generate: Option<Work>,
    /// What it is put on
    #[arg(long, hide = true)]
    pub(crate) address: Option<SocketAddr>,
    /// So many at once
    #[arg(long, hide = true, default_value_t = 1)]
    pub(crate) connections: usize,
    /// What cargo passes to benchmarks
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// The scenarios to run.
    pub(crate) fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        scenarios::ALL
            .iter()
            .filter(|scenario| self.names.is_empty() || self.names.iter().any(|name| name == scenario.name))
    }

    /// Rounds of load.
    pub(crate) fn rounds(&self) -> u16 {
        self.rounds.unwrap_or(if self.quick { 2 } else { 8 })
    }

    /// Rounds of what is measured in memory: repeatable enough that few will do.
    pub(crate) fn memory_rounds(&self) -> u16 {
        self.rounds().div_ceil(3).min(3)
    }

    /// Seconds of load on one peer in one round.
    pub(crate) fn seconds(&self) -> u16 {
        self.seconds.unwrap_or(if self.quick { 1 } else { 2 })
    }
}
