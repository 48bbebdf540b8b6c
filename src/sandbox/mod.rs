//! Floor 2: who is where, and waking.
//!
//! `entry` decides (pure), `history` writes down what came of it, `table` keeps the entries, `resolver` waits,
//! `flight` asks the control plane through `ports`.

mod bell;
#[doc(hidden)]
pub mod bench;
mod denials;
mod entry;
mod flight;
mod held;
mod history;
mod hold;
mod lease;
mod leave;
pub mod ports;
mod promises;
mod resolver;
mod slot;
mod table;
mod turns;
mod unresolved;
mod usual;
mod view;

pub(crate) use self::{
    entry::{Finding, Phase, Policy},
    hold::Hold,
    resolver::{Ask, Limits, Resolver, Trigger},
    table::By,
    unresolved::Unresolved,
};
