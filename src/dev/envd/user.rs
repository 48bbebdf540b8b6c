//! As whom programs run and calls are made. All are the same user of the machine.

use super::{files::Fault, rpc::Code};

/// Differs from the other in its number, as programs see it, and in where relative paths begin.
pub(crate) struct User {
    pub(crate) name: &'static str,
    pub(crate) uid: u32,
    /// From the sandbox's root on.
    pub(crate) home: &'static str,
}

/// Whoever names none.
pub(crate) const USER: User = User { name: "user", uid: 1000, home: "home/user" };
const ROOT: User = User { name: "root", uid: 0, home: "root" };

impl User {
    /// Fails for a user that no sandbox has.
    pub(crate) fn of(name: Option<&str>) -> Result<&'static Self, Fault> {
        match name {
            None | Some("" | "user") => Ok(&USER),
            Some("root") => Ok(&ROOT),
            Some(name) => Err(Fault::new(Code::Unauthenticated, format!("invalid username: '{name}'"))),
        }
    }
}
