//! Names for the numbers of users and groups. What belongs to whoever runs the playground belongs to `user`
//! inside; the rest is named by the machine's own lists (passwd(5), group(5)).

use std::{collections::HashMap, fs::File, io::Read as _};

use rustix::process::{getegid, geteuid};

/// The user and the group of every sandbox.
const USER: &str = "user";
/// Lists longer than this are read in part.
const LONGEST: u64 = 1 << 20;

pub(super) struct Owners {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Owners {
    pub(super) fn read() -> Self {
        let list = |path, own: u32| {
            let mut bytes = Vec::new();
            if let Ok(file) = File::open(path) {
                let _ = file.take(LONGEST).read_to_end(&mut bytes);
            }
            let mut names = names(&String::from_utf8_lossy(&bytes));
            names.insert(own, USER.to_owned());
            names
        };
        let (users, groups) = (list("/etc/passwd", geteuid().as_raw()), list("/etc/group", getegid().as_raw()));
        Self { users, groups }
    }

    /// The number itself where it has no name.
    pub(super) fn user(&self, id: u32) -> String {
        self.users.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    pub(super) fn group(&self, id: u32) -> String {
        self.groups.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// `name:password:number:...`, one a line; the first of several names for a number counts.
fn names(text: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(id)) = (fields.next(), fields.nth(1).and_then(|id| id.parse().ok())) {
            names.entry(id).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_names_of_the_list() {
        let users =
            names("root:x:0:0:root:/root:/bin/bash\ntoor:x:0:0::/:\n\n#x\na:x:b\nuser:x:1000:1000::/home/user:\n");
        let owners = Owners { users, groups: HashMap::new() };
        assert_eq!([owners.user(0), owners.user(1000), owners.user(7)], ["root", "user", "7"]);
        assert_eq!(owners.group(0), "0");
    }
}
