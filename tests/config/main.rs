//! What an operator says: the command line, the configuration, and what is wrong with it.

mod cli;
mod faults;
mod otlp;
mod values;
