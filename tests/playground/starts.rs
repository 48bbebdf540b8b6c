//! A template's application that does not come up is told to whoever creates the sandbox.

use serde_json::json;

use crate::playground_support::{Ground, processes_with};

#[tokio::test(flavor = "multi_thread")]
async fn a_template_whose_application_fails_at_once_makes_no_sandbox() {
    let commands =
        ["bad=echo oh >&2; exit 3", "unknown=no-such-program-4361", "killed=kill -9 $$", "half=(sleep 4362 &); false"];
    let arguments: Vec<&str> = commands.iter().flat_map(|command| ["--template", *command]).collect();
    // Each ends by itself, and is waited for, however long a shell takes on a busy machine.
    let patient = ["--command-wait", "1m", "--team-limit", "1"];
    let ground = Ground::start(&[&arguments[..], &patient].concat()).await;
    for (template, how) in
        [("bad", "exit code 3"), ("unknown", "exit code 127"), ("killed", "signal 9"), ("half", "exit code 1")]
    {
        let answer = ground.api.call("POST", "/v2/sandboxes", json!({ "templateID": template })).await;
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(answer.status, 500, "{template}: {}", answer.body);
        assert!(message.contains(&format!("application ended: {how}")) && message.contains("log"), "{message}");
    }
    assert_eq!(ground.api.get("/v2/sandboxes").await.body, json!([]), "and its place is free");
    assert!(processes_with("sleep\u{0}4362").is_empty(), "nothing of it is left");
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_whose_command_is_done_or_leaves_a_server_makes_one() {
    let server = "server=(exec python3 -m http.server 8000 --bind $SANDBOX_IP >/dev/null 2>&1 &)";
    let patient = ["--command-wait", "1m"];
    let ground =
        Ground::start(&[&["--template", "done=echo done > done.txt", "--template", server], &patient[..]].concat())
            .await;
    for (template, processes) in [("done", 1), ("server", 2)] {
        let sandbox = ground.api.create(json!({ "templateID": template })).await;
        assert_eq!(sandbox.processes().await.len(), processes, "{template}");
        if template == "server" {
            let answer = ground.api.client.get(format!("http://{}:8000/", sandbox.ip)).send().await;
            assert_eq!(answer.expect("it serves").status(), 200);
        }
    }
    ground.playground.shutdown().await;
}
