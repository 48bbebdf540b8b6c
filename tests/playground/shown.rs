//! A folder of the machine's that programs are shown where the sandbox has its own. Needs a machine that gives user
//! namespaces.

use std::process::Command;

use crate::playground_support::PROGRAM;

/// File systems in the folder `$0`, one of them under a later one, and then the program that shows it.
const MOUNTS: &str = "set -e; cd \"$0\"; mkdir -p plain under/hidden
mount -t tmpfs none plain; mount -t tmpfs none under/hidden; mount -t tmpfs none under
touch there plain/there under/there; exec \"$@\"";

const LOOK: &str = "cd \"$0\"; for folder in . plain under; do
ls $folder/there; touch $folder/new 2> /dev/null && echo changed; done; exit 0";

#[test]
fn a_folder_that_is_shown_is_read_only_with_all_that_is_mounted_in_it() {
    let place = tempfile::tempdir_in("/tmp").expect("a folder");
    let [root, shown] = ["root", "shown"].map(|name| place.path().join(name));
    for folder in [root.clone(), root.join("home/user"), shown.clone()] {
        std::fs::create_dir_all(folder).expect("made");
    }
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", MOUNTS]).arg(&shown).arg(PROGRAM);
    command.args(["sandbox-agent", "enter", "--uid", "1000", "--cwd", "/", "--or-nothing", "--root"]).arg(root);
    command.arg("--show").arg(&shown).args(["--", "sh", "-c", LOOK]).arg(&shown);
    let told = command.output().expect("it runs");
    let [out, errors] = [told.stdout, told.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!((&*out, &*errors), ("./there\nplain/there\nunder/there\n", ""));
}
