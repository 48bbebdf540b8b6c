//! Programs as they were asked for, and who may ask. Needs a machine that gives user namespaces.

use serde_json::{Value, json};

use super::{bash, sandbox};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_says_what_it_says_and_how_it_ended() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let ended = rpc.run(bash("echo out; echo err >&2")).await;
    assert_eq!((&*ended.stdout, &*ended.stderr), ("out\n", "err\n"));
    assert_eq!(ended.end, json!({ "exitCode": 0, "exited": true, "status": "exit status 0" }));
    assert_eq!(ended.last, json!({}));
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_folder_and_environment_are_as_asked_for() {
    let (ground, sandbox, rpc) = sandbox(json!({ "envVars": { "ALL": "of it", "BOTH": "sandbox" } })).await;
    let run = async |script: &str, more: Value| {
        let mut wanted = bash(script);
        wanted["process"].as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        rpc.run(wanted).await.stdout
    };
    assert_eq!(run("pwd", json!({ "cwd": "/tmp" })).await, "/tmp\n", "though it is the first of all programs");
    let own = json!({ "BOTH": "own", "E2B_SANDBOX_ID": "other", "CLIENT_PROXY_SANDBOX": "other" });
    let said = run("echo $HOME $USER $ALL $BOTH $E2B_SANDBOX_ID; pwd", json!({ "envs": own })).await;
    assert_eq!(said, format!("/home/user user of it own {}\n/home/user\n", sandbox.id));
    assert_eq!(run("pwd", json!({ "cwd": "/usr/bin" })).await, "/usr/bin\n");
    assert_eq!(run("mkdir -p deep/er; cd deep; pwd", json!({})).await, "/home/user/deep\n");
    for cwd in ["deep/er", "~/deep/er", "/home/user/deep/er"] {
        assert_eq!(run("pwd", json!({ "cwd": cwd })).await, "/home/user/deep/er\n");
    }
    run("ln -s /home/user/deep current; ln -s ../../usr/bin tools", json!({})).await;
    assert_eq!(run("pwd", json!({ "cwd": "tools" })).await, "/usr/bin\n");
    for (cwd, want) in [("current/er", "deep/er"), ("a/../deep", "deep"), ("../user/deep", "deep")] {
        assert_eq!(run("pwd", json!({ "cwd": cwd })).await, format!("/home/user/{want}\n"));
    }
    let all = run("cat /proc/self/environ", json!({ "envs": own })).await;
    assert!(all.split('\0').any(|one| one == format!("CLIENT_PROXY_SANDBOX={}", sandbox.id)), "{all:?}");
    // The playground's key is a shell for whoever has it.
    assert!(!all.contains("API_KEY") && !all.contains(&sandbox.token), "{all}");
    let root = rpc.with("authorization", "Basic cm9vdDo=");
    assert_eq!(root.run(bash("id -u; echo $HOME $USER")).await.stdout, "0\n/root root\n");
    assert_eq!(run("id -u; id -un; id -gn", json!({})).await, "1000\nuser\nuser\n");
    for (rpc, wanted, code) in [
        (&rpc, json!({ "process": { "cmd": "true", "cwd": "/nowhere" } }), "invalid_argument"),
        (&rpc, json!({ "process": { "cmd": "" } }), "invalid_argument"),
        (&rpc, json!({ "process": { "cmd": "true", "envs": { "A=B": "" } } }), "invalid_argument"),
        (&rpc, json!({ "process": { "cmd": "true", "args": ["\0"] } }), "invalid_argument"),
        (&rpc.with("authorization", "Basic c3RyYW5nZXI6"), bash("true"), "unauthenticated"),
    ] {
        let (flags, last) = rpc.stream("Start", &[wanted]).await.next().await.expect("whole").expect("a frame");
        assert_eq!((flags, last["error"]["code"].as_str().expect("a code")), (2, code), "{last}");
    }
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_health_works_without_the_token() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let get = async |path: &str, token: Option<&String>| {
        let mut request = rpc.client.get(format!("{}{path}", rpc.base));
        if let Some(token) = token {
            request = request.header("x-access-token", token);
        }
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.bytes().await.expect("a body"))
    };
    assert_eq!(get("/health", None).await.0, 204);
    let token = rpc.headers.iter().find(|(name, _)| *name == "x-access-token").map(|(_, token)| token);
    for path in ["/metrics", "/envs"] {
        assert_eq!(get(path, None).await.0, 401, "{path}");
        assert_eq!(get(path, Some(&"wrong".to_owned())).await.0, 401, "{path}");
        let (status, body) = get(path, token).await;
        assert_eq!(status, 200, "{path}");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        if path == "/metrics" {
            assert!(body["mem_used"].as_u64() > Some(0) && body["mem_total"].as_u64() > body["mem_used"].as_u64());
        } else {
            assert_eq!(body["E2B_SANDBOX"], "true");
        }
    }
    for token in ["", "wrong"] {
        let (status, body) = rpc.with("x-access-token", token).unary("List", &json!({})).await;
        assert_eq!((status, &body["code"]), (401, &json!(401)));
    }
    ground.playground.shutdown().await;
}
