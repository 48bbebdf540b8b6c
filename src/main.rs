//! The command line: arguments in, exit code out.

mod cli;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::cli::{Arguments, Command};

/// Many small, short-lived allocations on many threads: what jemalloc is made for.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match (arguments.command, arguments.config) {
        (Some(Command::Run { config }), _) | (None, Some(config)) => cli::run(config),
        (Some(Command::Check { config }), _) => cli::check(&config),
        (Some(Command::Health { url }), _) => cli::health(url),
        #[cfg(feature = "dev")]
        (Some(Command::Dev(options)), _) => cli::play(&options),
        #[cfg(feature = "dev")]
        (Some(Command::SandboxAgent(arguments)), _) => cli::sandbox_agent(&arguments),
        (None, None) => {
            eprint!("{}", Arguments::command().render_help());
            ExitCode::from(cli::MISUSED)
        }
    }
}
