//! The command line: arguments in, exit code out.

mod cli;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::cli::{Arguments, Command, Source};

/// Many small, short-lived allocations on many threads: what jemalloc is made for.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match (arguments.command, arguments.config) {
        (Some(Command::Run(source)), _) => cli::run(source),
        (None, Some(config)) => cli::run(Source::file(config)),
        (Some(Command::Check(source)), _) => cli::check(&source),
        (Some(Command::Health { url }), _) => cli::health(url),
        #[cfg(feature = "dev")]
        (Some(Command::Dev(options)), _) => cli::play(&options),
        #[cfg(feature = "dev")]
        (Some(Command::SandboxAgent(arguments)), _) => cli::sandbox_agent(&arguments),
        (None, None) => Source::environment().map_or_else(
            || {
                eprint!("{}", Arguments::command().render_help());
                ExitCode::from(cli::MISUSED)
            },
            cli::run,
        ),
    }
}
