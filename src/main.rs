//! A stand-in until the real one: the playground's two subcommands without a proxy.

use clap::Parser;
use client_proxy::dev::{Addresses, Options, Playground, agent, demo};

#[derive(Parser)]
enum Command {
    /// The playground
    Dev(Box<Options>),
    #[command(hide = true)]
    SandboxAgent(agent::Args),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::SandboxAgent(args) => agent::run(&args),
        Command::Dev(options) => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(async {
                let playground = Playground::start(&options).await?;
                let at = Addresses {
                    api: playground.api_addr(),
                    proxy: options.proxy,
                    health: options.health,
                    admin: options.admin,
                };
                playground.set_proxy_addr(at.proxy);
                let outcome = if options.demo {
                    demo::play(&at, playground.api_key()).await
                } else {
                    println!("{}", playground.banner(&at));
                    tokio::signal::ctrl_c().await.map_err(Into::into)
                };
                playground.shutdown().await;
                outcome
            })
        }
    }
}
