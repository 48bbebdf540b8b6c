//! A stand-in until the real one: the playground's two subcommands without a proxy.

use clap::Parser;
use client_proxy::dev::{Options, Playground, agent};

#[derive(Parser)]
enum Command {
    /// The playground
    Dev(Options),
    #[command(hide = true)]
    SandboxAgent(agent::Args),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::SandboxAgent(args) => agent::run(args),
        Command::Dev(options) => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(async {
                let playground = Playground::start(&options).await?;
                println!("api {} key {}", playground.api_addr(), playground.api_key());
                tokio::signal::ctrl_c().await?;
                playground.shutdown().await;
                Ok(())
            })
        }
    }
}
