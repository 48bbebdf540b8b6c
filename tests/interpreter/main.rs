//! The template `code-interpreter-v1`: code runs in a kernel that remembers, through the proxy. Needs the program
//! `python3` with venv, and at first its registry.
#![cfg(feature = "dev")]

mod callers;
mod contexts;
mod hostile;
#[path = "../support/installed.rs"]
mod installed;
mod place;
#[path = "../playground_support/mod.rs"]
mod playground_support;
mod sdk;
mod sleep;
mod stage;
mod turns;

use serde_json::{Value, json};
use stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn output_comes_as_it_is_made_in_the_kinds_that_sdks_know() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let code = "import sys; print('out'); print('err', file=sys.stderr); 'done'";
    let execution = interpreter.run(code).await;
    assert_eq!(execution.printed("stdout"), "out\n");
    assert_eq!(execution.printed("stderr"), "err\n");
    assert_eq!(execution.text(), "done", "without its quotes");
    assert!(execution.all("stdout")[0]["timestamp"].as_u64().expect("nanoseconds") > 1_700_000_000_000_000_000);
    let count = json!({ "type": "number_of_executions", "execution_count": 1 });
    assert_eq!(execution.all("number_of_executions"), [&count]);

    let code = r"from IPython.display import *
kinds = ['text/plain', 'text/html', 'text/markdown', 'image/svg+xml', 'image/png', 'image/jpeg', 'application/pdf',
         'text/latex', 'application/javascript', 'e2b/data', 'e2b/chart', 'application/x-mine']
display({kind: kind for kind in kinds}, raw=True)
display({'application/json': {'a': [1, None, True]}}, raw=True)
1 + 1";
    let execution = interpreter.run(code).await;
    let results = execution.all("result");
    let known = json!({
        "type": "result", "is_main_result": false, "text": "text/plain", "html": "text/html",
        "markdown": "text/markdown", "svg": "image/svg+xml", "png": "image/png", "jpeg": "image/jpeg",
        "pdf": "application/pdf", "latex": "text/latex", "javascript": "application/javascript",
        "data": "e2b/data", "chart": "e2b/chart", "extra": { "application/x-mine": "application/x-mine" },
    });
    assert_eq!(results[0], &known);
    assert_eq!(results[1]["json"], json!({ "a": [1, null, true] }));
    assert_eq!((results.len(), execution.text()), (3, "2"));

    let execution = interpreter.run("def f(): raise ValueError('no ☃')\nf()").await;
    let error = execution.all("error")[0];
    assert_eq!((&error["name"], &error["value"]), (&json!("ValueError"), &json!("no ☃")));
    assert!(error["traceback"].as_str().expect("text").contains("raise"), "{error}");
    assert_eq!(interpreter.run("input()").await.error(), "StdinNotImplementedError");
    let id = interpreter.sandbox.id.clone();
    stage.end(&[&id]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_does_not_wait_for_the_next_one() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let code = "import os, time; print('first')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('second')";
    let mut events = interpreter.start(&json!({ "code": code })).await;
    assert_eq!(events.until("stdout").await["text"], "first\n");
    interpreter.put("go", "").await;
    assert_eq!(events.until("stdout").await["text"], "second\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_processes_of_the_code_say_comes_while_it_runs() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    // A thread of the kernel passes it on, which may be too late where the code ends at once.
    let code =
        "import os, time; os.system('echo child; echo wrong >&2')\nwhile not os.path.exists('go'): time.sleep(0.01)";
    let mut events = interpreter.start(&json!({ "code": code })).await;
    let mut said =
        [events.next().await, events.next().await, events.next().await].map(|event| event.expect("an event"));
    said.sort_by_key(|event| event["type"].to_string());
    let said = said.map(|event| event["text"].as_str().unwrap_or_default().to_owned());
    assert_eq!(said, ["", "wrong\n", "child\n"]);
    interpreter.put("go", "").await;
    assert_eq!(events.next().await.expect("the end")["type"], "end_of_execution");
}

#[tokio::test(flavor = "multi_thread")]
async fn code_runs_only_for_those_who_know_the_token() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let code = json!({ "code": "1" });
    for (path, body) in [("/execute", &code), ("/contexts", &json!({}))] {
        let wrong = interpreter.bare("POST", path).header("X-Access-Token", "wrong").json(body).send().await;
        assert_eq!(wrong.expect("an answer").status(), 401, "{path}");
    }
    assert_eq!(interpreter.bare("POST", "/execute").json(&code).send().await.expect("an answer").status(), 401);
    let listed = interpreter.bare("GET", "/contexts").send().await.expect("an answer");
    assert_eq!(listed.status(), 200, "SDKs show no token here");
    let page = interpreter.bare("POST", "/contexts").header("Content-Type", "text/plain").body("{}").send().await;
    assert_eq!(page.expect("an answer").status(), 415, "what a web page may send without asking");
    assert_eq!(interpreter.bare("GET", "/health").send().await.expect("an answer").status(), 200);
    assert_eq!(interpreter.run("40 + 2").await.text(), "42");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run_is_answered_in_words() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let speaks = "the playground's code interpreter speaks no other language than python";
    let unknown = "the context was not found";
    for (method, path, body, status, words) in [
        ("POST", "/execute", json!({ "code": "1", "language": "r" }), 404, speaks),
        ("POST", "/contexts", json!({ "language": "javascript" }), 404, speaks),
        ("POST", "/execute", json!({ "code": "1", "context_id": "nope" }), 404, unknown),
        ("POST", "/contexts/nope/restart", Value::Null, 404, unknown),
        ("DELETE", "/contexts/nope", Value::Null, 404, unknown),
        ("POST", "/contexts", json!({ "cwd": "/nope" }), 404, "cwd is no folder of the sandbox's file system"),
        ("POST", "/execute", json!({ "code": "1", "language": "python", "context_id": "x" }), 400, "only one"),
        ("POST", "/execute", json!({ "code": "1", "env_vars": { "a=b": "c" } }), 400, "env_vars holds"),
        ("POST", "/execute", json!({ "code": 1 }), 400, "the body is not as it should be"),
        ("POST", "/execute", json!({ "code": " ".repeat(5 << 20) }), 413, "the body cannot be read"),
        ("GET", "/execute", Value::Null, 405, "method"),
        ("GET", "/nope", Value::Null, 404, "no such route"),
    ] {
        let (told, answer) = interpreter.call(method, path, body).await;
        let text = answer.as_str().unwrap_or_default();
        assert!(told == status && text.starts_with(words), "{method} {path}: {told} {answer}");
    }
    let python = interpreter.execute(json!({ "code": "1", "language": "Python" })).await;
    assert_eq!(python.text(), "1");
}
