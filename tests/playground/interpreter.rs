//! Where no Python can run kernels, the template `code-interpreter-v1` is refused with what to install.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use crate::playground_support::Ground;

#[tokio::test(flavor = "multi_thread")]
async fn without_a_kernel_an_interpreter_is_refused_and_the_cure_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (bare, missing) = (folder.path().join("python"), folder.path().join("nowhere"));
    let script =
        "#!/bin/sh\necho 'Traceback ...' >&2\necho \"ModuleNotFoundError: No module named 'ipykernel'\" >&2\nexit 1\n";
    fs::write(&bare, script).expect("written");
    fs::set_permissions(&bare, fs::Permissions::from_mode(0o755)).expect("made executable");
    for (python, why) in [(&bare, "No module named 'ipykernel'"), (&missing, "No such file")] {
        let python = python.to_str().expect("a path");
        let ground = Ground::start(&["--python", python]).await;
        let answer = ground.api.call("POST", "/v2/sandboxes", json!({ "templateID": "code-interpreter-v1" })).await;
        let message = answer.body["message"].as_str().expect("a message");
        assert_eq!(answer.status, 500, "{message}");
        for part in [why, &format!("{python} -m pip install ipykernel jupyter_client"), "--python PATH"] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(ground.api.get("/v2/sandboxes").await.body, json!([]));
        // Others need no Python.
        ground.api.sleeper("base").await;
        ground.playground.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_template_is_told_which_there_are() {
    let ground = Ground::start(&["--template", "own=true"]).await;
    let answer = ground.api.call("POST", "/v2/sandboxes", json!({ "templateID": "nope" })).await;
    assert_eq!(answer.told(), (404, "template_not_found"));
    let message = answer.body["message"].as_str().expect("a message");
    assert!(message.contains("base, counter, code-interpreter-v1, own"), "{message}");
    ground.playground.shutdown().await;
}
