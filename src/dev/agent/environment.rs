//! What programs of a sandbox find in their environment: what the playground was started with is no business of
//! theirs.

use std::{collections::BTreeMap, ffi::OsString};

use super::Order;
use crate::dev::{envd::user::User, freeze};

pub(crate) type Environment = BTreeMap<String, String>;

/// By these it is known whose a program is; nobody gives them other values.
const MARKS: [&str; 4] = [freeze::MARK, "E2B_SANDBOX", "E2B_SANDBOX_ID", "SANDBOX_IP"];
/// All that is the machine's: where programs are, and what time it is.
const OF_MACHINE: [&str; 2] = ["PATH", "TZ"];

/// The same for all programs of the sandbox: what its creator wanted, and its marks.
pub(crate) fn of_sandbox(order: &Order) -> Environment {
    let values = [order.id.clone(), "true".to_owned(), order.id.clone(), order.ip.to_string()];
    let mut all = order.environment.clone();
    all.extend(MARKS.map(str::to_owned).into_iter().zip(values));
    all
}

pub(crate) fn of_machine() -> impl Iterator<Item = (&'static str, OsString)> {
    OF_MACHINE.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// The whole of a program, to be set in an empty one. `own` is what it was started with.
pub(crate) fn of_program(user: &User, sandbox: &Environment, own: &Environment) -> Vec<(String, OsString)> {
    let home = format!("/{}", user.home);
    let of_user = [("HOME", home.as_str()), ("USER", user.name), ("LOGNAME", user.name)];
    let wanted = sandbox.iter().chain(own.iter().filter(|(name, _)| !is_mark(name)));
    let mut all: Vec<_> = of_user.map(|(name, value)| (name.to_owned(), value.into())).into();
    all.extend(of_machine().map(|(name, value)| (name.to_owned(), value)));
    all.extend(wanted.map(|(name, value)| (name.clone(), value.into())));
    all
}

pub(crate) fn is_mark(name: &str) -> bool {
    MARKS.contains(&name)
}
