//! Lines on stderr: text for people at a terminal, JSON for machines.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::config::{Log, LogFormat};

/// Starts logging for the whole process; a second call in one process changes nothing.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&log.filter).context("log.filter")?;
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    };
    let lines = fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    let _ = if json {
        registry.with(lines.json().flatten_event(true).with_current_span(false)).try_init()
    } else {
        registry.with(lines).try_init()
    };
    Ok(())
}
