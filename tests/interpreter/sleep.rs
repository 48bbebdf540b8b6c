//! Kernels belong to their sandbox: they sleep with it, and end with it.

use serde_json::{Value, json};

use crate::{
    playground_support::{processes_with, state_of},
    stage::Stage,
};

#[tokio::test(flavor = "multi_thread")]
async fn variables_survive_a_pause() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let other = interpreter.context(json!({})).await;
    interpreter.run("x = 1").await;
    interpreter.execute(json!({ "code": "y = 10", "context_id": other })).await;
    for round in 1..=3 {
        assert_eq!(interpreter.sandbox.post("pause").await.status, 204);
        let processes = interpreter.sandbox.processes().await;
        // The agent, the interpreter, the driver and two kernels.
        assert_eq!(processes.len(), 5, "{processes:?}");
        assert!(processes.iter().all(|(_, _, state)| state == "T"), "{processes:?}");
        assert_eq!(interpreter.run("x += 1; x").await.text(), (1 + round).to_string());
        let y = interpreter.execute(json!({ "code": "y += 1; y", "context_id": other })).await;
        assert_eq!(y.text(), (10 + round).to_string());
        assert_eq!(interpreter.sandbox.inside().await["wakes"], round);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_while_a_kernel_starts_is_no_fault() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    for _ in 0..3 {
        assert_eq!(interpreter.sandbox.post("pause").await.status, 204);
        assert_eq!(interpreter.sandbox.wake().await.status, 201);
    }
    assert_eq!(interpreter.run("1").await.text(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_without_memory_keeps_the_files_only() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    interpreter.run("x = 1; open('kept', 'w').write('kept')").await;
    let lost = interpreter.context(json!({})).await;
    assert_eq!(interpreter.sandbox.post_with("pause", json!({ "memory": false })).await.status, 204);
    assert_eq!(interpreter.sandbox.post_with("connect", json!({ "timeout": 60 })).await.status, 201);
    assert_eq!(interpreter.run("x").await.error(), "NameError");
    assert_eq!(interpreter.run("open('kept').read()").await.text(), "kept");
    let gone = interpreter.call("POST", "/execute", json!({ "code": "1", "context_id": lost })).await;
    assert_eq!(gone, (reqwest::StatusCode::NOT_FOUND, Value::from("the context was not found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_leaves_nothing_of_kernels_and_what_they_started() {
    let stage = Stage::set().await;
    let (running, paused) = (stage.interpreter().await, stage.interpreter().await);
    let code =
        "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '4571'])\nsubprocess.Popen(['sleep', '4572'])\n1";
    let mut all = Vec::new();
    for interpreter in [&running, &paused] {
        interpreter.context(json!({})).await;
        assert_eq!(interpreter.run(code).await.text(), "1");
        all.extend(interpreter.sandbox.processes().await);
    }
    assert!(all.len() >= 14, "{all:?}");
    assert_eq!(paused.sandbox.post("pause").await.status, 204);
    for interpreter in [&running, &paused] {
        assert_eq!(interpreter.sandbox.kill().await.status, 204);
        assert!(processes_with(&interpreter.sandbox.id).is_empty());
    }
    for (pid, name, _) in all {
        assert!(matches!(state_of(pid), None | Some('Z')), "{name} survived");
    }
    stage.end(&[&running.sandbox.id, &paused.sandbox.id]).await;
}
