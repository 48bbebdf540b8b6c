//! Lines on stderr: text for people at a terminal, JSON for machines.

use std::io::IsTerminal as _;

use tracing_subscriber::{EnvFilter, filter::ParseError, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Starts logging for the whole process; a second call in one process changes nothing. No format: text on
/// a terminal, JSON otherwise.
pub(crate) fn start(format: Option<Format>, filter: &str) -> Result<(), ParseError> {
    let filter = EnvFilter::try_new(filter)?;
    let format = format.unwrap_or(if std::io::stderr().is_terminal() { Format::Text } else { Format::Json });
    let lines = fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    let _ = match format {
        Format::Json => registry.with(lines.json().flatten_event(true).with_current_span(false)).try_init(),
        Format::Text => registry.with(lines).try_init(),
    };
    Ok(())
}
