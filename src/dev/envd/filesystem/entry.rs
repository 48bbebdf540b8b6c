//! What is told of a file: `filesystem.EntryInfo` in protobuf's JSON, as envd fills it.

use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};
use serde::Serialize;

use super::owners::Owners;
use crate::dev::envd::{
    files::{Fault, Metadata, Place, Root, kind_of, read_metadata},
    rpc::Int64,
};

/// The last second of the year 9999: RFC 3339 ends there.
const LAST_SECOND: u64 = 253_402_300_799;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryInfo {
    name: String,
    /// Of a link: its target's.
    r#type: &'static str,
    path: String,
    size: Int64,
    /// Permission bits; of a link: its target's.
    mode: u32,
    permissions: String,
    owner: String,
    group: String,
    modified_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    symlink_target: Option<String>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: Metadata,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_symlink: bool,
}

impl EntryInfo {
    /// What is at the place; a link is told of itself.
    pub(super) fn read(root: &Root, place: &Place, owners: &Owners) -> Result<Self, Fault> {
        let (handle, stat) = root.handle(place, false).map_err(|error| Fault::looking(&error, &place.to_string()))?;
        let is_symlink = kind_of(&stat) == FileType::Symlink;
        let behind = if is_symlink { root.handle(place, true).ok() } else { Some((handle, stat)) };
        Ok(Self {
            name: place.name(),
            r#type: match behind.as_ref().map(|(_, stat)| kind_of(stat)) {
                Some(FileType::RegularFile) => "FILE_TYPE_FILE",
                Some(FileType::Directory) => "FILE_TYPE_DIRECTORY",
                _ => "FILE_TYPE_UNSPECIFIED",
            },
            path: place.to_string(),
            size: Int64(stat.st_size),
            mode: behind.as_ref().map_or(0, |(_, stat)| stat.st_mode & 0o777),
            permissions: permissions(&stat),
            owner: owners.user(stat.st_uid),
            group: owners.group(stat.st_gid),
            modified_time: modified(&stat),
            symlink_target: is_symlink.then(|| root.target(place).to_string()),
            metadata: behind.map(|(handle, _)| read_metadata(&root.path_of(&handle))).unwrap_or_default(),
            is_symlink,
        })
    }

    /// In bytes, roughly.
    pub(super) fn size_in_memory(&self) -> usize {
        let noted: usize = self.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        let target = self.symlink_target.as_ref().map_or(0, String::len);
        size_of::<Self>() + self.name.len() + self.path.len() + target + noted
    }

    pub(super) fn is_directory_itself(&self) -> bool {
        self.r#type == "FILE_TYPE_DIRECTORY" && !self.is_symlink
    }
}

/// As Go writes a file's mode (`io/fs.FileMode.String`), since envd does.
fn permissions(stat: &Stat) -> String {
    let kind = match kind_of(stat) {
        FileType::Directory => "d",
        FileType::Symlink => "L",
        FileType::BlockDevice | FileType::CharacterDevice => "D",
        FileType::Fifo => "p",
        FileType::Socket => "S",
        _ => "",
    };
    let mut text = kind.to_owned();
    for (bit, letter) in [(0o4000, 'u'), (0o2000, 'g')] {
        if stat.st_mode & bit != 0 {
            text.push(letter);
        }
    }
    if kind_of(stat) == FileType::CharacterDevice {
        text.push('c');
    }
    if stat.st_mode & 0o1000 != 0 {
        text.push('t');
    }
    if text.is_empty() {
        text.push('-');
    }
    for (place, letter) in "rwxrwxrwx".chars().enumerate() {
        text.push(if stat.st_mode & (0o400 >> place) == 0 { '-' } else { letter });
    }
    text
}

/// RFC 3339; times it has no form for become the nearest.
fn modified(stat: &Stat) -> String {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0).min(LAST_SECOND);
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0).min(999_999_999);
    humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::new(seconds, nanos)).to_string()
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, Permissions},
        os::unix::fs::{PermissionsExt as _, symlink},
        time::SystemTime,
    };

    use serde_json::{Value, json};

    use super::*;

    fn read(root: &Root, path: &str) -> Value {
        let place = root.place(path, None).expect("a place");
        let entry = EntryInfo::read(root, &place, &Owners::read()).expect(path);
        serde_json::to_value(entry).expect("JSON")
    }

    #[test]
    fn entries_are_told_as_envd_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::new(folder.path()).expect("a root");
        let file = File::create(folder.path().join("a")).expect("a file");
        file.set_len(5).expect("a length");
        file.set_permissions(Permissions::from_mode(0o640)).expect("a mode");
        file.set_modified(UNIX_EPOCH + Duration::new(1_700_000_000, 5)).expect("a time");
        fs::create_dir(folder.path().join("d")).expect("a directory");
        fs::set_permissions(folder.path().join("d"), Permissions::from_mode(0o1777)).expect("a mode");
        let told = read(&root, "/a");
        assert_eq!(
            told,
            json!({
                "name": "a", "type": "FILE_TYPE_FILE", "path": "/a", "size": "5", "mode": 0o640,
                "permissions": "-rw-r-----", "owner": "user", "group": "user",
                "modifiedTime": "2023-11-14T22:13:20.000000005Z",
            })
        );
        let told = read(&root, "/d");
        assert_eq!((&told["type"], &told["permissions"]), (&json!("FILE_TYPE_DIRECTORY"), &json!("dtrwxrwxrwx")));
        assert_eq!(read(&root, "/")["name"], "/");
    }

    #[test]
    fn links_are_told_of_themselves_with_their_targets_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::new(folder.path()).expect("a root");
        fs::create_dir(folder.path().join("d")).expect("a directory");
        symlink("/d", folder.path().join("l")).expect("a link");
        symlink("/nowhere", folder.path().join("lost")).expect("a link");
        let told = read(&root, "/l");
        assert_eq!(told["type"], "FILE_TYPE_DIRECTORY");
        assert_eq!((&told["symlinkTarget"], &told["isSymlink"]), (&json!("/d"), &json!(true)));
        assert_eq!(told["permissions"], "Lrwxrwxrwx");
        let told = read(&root, "/lost");
        assert_eq!((&told["type"], &told["symlinkTarget"]), (&json!("FILE_TYPE_UNSPECIFIED"), &json!("/lost")));
    }

    #[test]
    fn odd_times_have_a_form() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::new(folder.path()).expect("a root");
        let file = File::create(folder.path().join("a")).expect("a file");
        let far = UNIX_EPOCH + Duration::from_secs(LAST_SECOND + 10);
        for time in [SystemTime::UNIX_EPOCH - Duration::from_secs(5), far] {
            // Some file systems cannot keep such a time.
            let _ = file.set_modified(time);
            let told = read(&root, "/a")["modifiedTime"].as_str().map(humantime::parse_rfc3339);
            told.expect("text").expect("RFC 3339");
        }
    }
}
