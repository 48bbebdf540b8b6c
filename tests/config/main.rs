//! What an operator says: the command line, the configuration, and what is wrong with it.

mod cli;
mod e2b;
mod edge;
mod faults;
mod image;
mod otlp;
mod values;
