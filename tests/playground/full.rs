//! A sandbox whose disk is full. Needs a machine that gives user namespaces.

use std::process::Command;

use serde_json::Value;

use crate::playground_support::{
    Api, PROGRAM, client,
    program::{Program, command_by},
};

const MIB: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_for_which_there_is_no_room_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=8m none \"$0\" && TMPDIR=\"$0\" exec \"$@\"";
    command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(folder.path()).arg(PROGRAM);
    let program = Program::run(command_by(command, &[])).await;
    let api = Api { client: client(), base: program.variable("E2B_API_URL"), key: program.variable("E2B_API_KEY") };
    let sandbox = api.sleeper("base").await;
    let put = async |path: &str, letter: &str, length: usize| {
        let sent = api.client.post(sandbox.files(path)).header("X-Access-Token", &sandbox.token);
        let sent = sent.header("Content-Type", "application/octet-stream").body(letter.repeat(length)).send().await;
        let answer = sent.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let get = async |path: &str| {
        let got = api.client.get(sandbox.files(path)).header("X-Access-Token", &sandbox.token).send().await;
        let answer = got.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    };
    assert_eq!(put("a.txt", "a", 2 * MIB).await.0, 200);
    assert_eq!(put("filler", "f", 5 * MIB / 2).await.0, 200);
    // Room for it once, not twice; of the old one there is some to be had.
    for path in ["a.txt", "new.txt", "x/y/new.txt"] {
        let (status, answer) = put(path, "n", 3 * MIB).await;
        assert_eq!((status, &answer["code"]), (507, &507.into()), "{path}: {answer}");
    }
    let (status, text) = get("a.txt").await;
    assert!(status == 200 && text == "a".repeat(2 * MIB), "{status}: {} bytes", text.len());
    assert_eq!(get("new.txt").await.0, 404);
    assert_eq!(put("x", "b", 10).await.0, 200, "no directory was made");
    // What fits is written, longer or shorter than what was there.
    for length in [MIB, 10, 0, 2 * MIB] {
        assert_eq!(put("a.txt", "b", length).await.0, 200, "{length}");
        assert_eq!(get("a.txt").await, (200, "b".repeat(length)));
    }
    program.end().await;
}
