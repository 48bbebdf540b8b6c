//! Who runs when, and what becomes of code whose client has left or does not read.

use std::fs;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    playground_support::until,
    stage::{Interpreter, Stage},
};

#[tokio::test(flavor = "multi_thread")]
async fn code_whose_client_leaves_is_interrupted() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let code =
        "import time\nprint('on')\ntry:\n while True: time.sleep(0.01)\nexcept KeyboardInterrupt: seen = 'seen'\n";
    for code in [code, "import os; print('on', flush=True); os.system('sleep 4567')", "print('on'); time.sleep(4568)"] {
        let mut events = interpreter.start(&json!({ "code": code })).await;
        events.until("stdout").await;
        drop(events);
        // It waits for its turn: the other has ended.
        assert_eq!(interpreter.run("seen").await.text(), "seen");
    }
    // One that has caught the interrupt and goes on is interrupted again.
    let stubborn = "print('on')\ntry:\n while True: time.sleep(0.01)\nexcept KeyboardInterrupt: pass\nwhile True: pass";
    let mut events = interpreter.start(&json!({ "code": stubborn })).await;
    events.until("stdout").await;
    drop(events);
    assert_eq!(interpreter.run("1").await.text(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_of_a_context_wait_for_their_turn() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    interpreter.run("import os, time; ran = []").await;
    let first = "print('on')\nwhile not os.path.exists('go'): time.sleep(0.01)\nran.append(1)";
    let mut events = interpreter.start(&json!({ "code": first })).await;
    events.until("stdout").await;
    let mut second = interpreter.start(&json!({ "code": "ran.append(2)" })).await;
    let left = interpreter.start(&json!({ "code": "ran.append('never')" })).await;
    let mut third = interpreter.start(&json!({ "code": "ran.append(3); ran" })).await;
    drop(left);
    // Another context does not wait, and knows when the client that left was noticed: it makes the file.
    let other = interpreter.context(json!({})).await;
    let go = json!({ "code": "open('go', 'w').close()", "context_id": other });
    assert!(interpreter.execute(go).await.all("error").is_empty());
    events.until("end_of_execution").await;
    second.until("end_of_execution").await;
    assert_eq!(third.until("result").await["text"], "[1, 2, 3]");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_bound_on_executions_that_wait() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let mut first = interpreter.start(&json!({ "code": "import time; print('on')\ntime.sleep(4569)" })).await;
    first.until("stdout").await;
    let mut waiting = Vec::new();
    for number in 1..64 {
        waiting.push(interpreter.start(&json!({ "code": format!("n = {number}; n") })).await);
    }
    assert_eq!(interpreter.call("POST", "/execute", json!({ "code": "1" })).await.0, 429);
    drop(first);
    // Whoever waited runs, and there is room again.
    let mut last = waiting.pop().expect("one");
    assert_eq!(last.until("result").await["text"], "63");
    last.until("end_of_execution").await;
    drop(waiting);
    until("there is room", async || interpreter.call("POST", "/execute", json!({ "code": "1" })).await.0 == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_bound_on_results_that_nobody_has_read() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let mut deaf = Vec::new();
    for _ in 0..4 {
        deaf.push(unread(&stage, &interpreter, "n = globals().get('n', 0) + 1; 'x' * 30_000_000").await);
    }
    until("they have run", async || interpreter.run("globals().get('n')").await.0.len() == 2).await;
    until("all of them have run", async || interpreter.run("n").await.text() == "4").await;
    let out = interpreter.run("y = 'y' * 30_000_000; y").await;
    let said = out.printed("stderr");
    assert!(said.ends_with("was left out: too many wait for clients to read them.\n"), "{said}");
    assert_eq!(out.all("result").len(), 0);
    assert_eq!(interpreter.run("'small'").await.text(), "small");
    drop(deaf);
    until("there is room", async || interpreter.run("y").await.all("result").len() == 1).await;
    // An error is shortened.
    let error = interpreter.run("raise ValueError('x' * 30_000_000)").await;
    assert_eq!(error.all("error")[0]["value"].as_str().expect("text").len(), 1 << 16);
    assert_eq!(interpreter.run("1").await.text(), "1");
}

/// Prints far more than all buffers between it and its client hold together.
const FLOOD: &str = "for _ in range(1500): print('x' * 99_999, flush=True)";
const FLOOD_BYTES: usize = 150_000_000;

/// Sends the code and reads nothing.
async fn unread(stage: &Stage, interpreter: &Interpreter, code: &str) -> TcpStream {
    let mut socket = TcpStream::connect(stage.proxy).await.expect("connected");
    let (id, token, body) = (&interpreter.sandbox.id, &interpreter.sandbox.token, json!({ "code": code }).to_string());
    let head = format!(
        "POST /execute HTTP/1.1\r\nHost: {}\r\nE2b-Sandbox-Id: {id}\r\nE2b-Sandbox-Port: 49999\r\nX-Access-Token: \
         {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        stage.proxy,
        body.len()
    );
    socket.write_all(head.as_bytes()).await.expect("sent");
    socket
}

async fn kernel_is_stopped(interpreter: &Interpreter) {
    until("the kernel is stopped", async || {
        let processes = interpreter.sandbox.processes().await;
        processes.iter().filter(|(_, _, state)| state == "T").count() == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_its_own_kernel_back_and_loses_nothing() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    interpreter.run("x = 1").await;
    let mut socket = unread(&stage, &interpreter, FLOOD).await;
    kernel_is_stopped(&interpreter).await;
    let other = interpreter.context(json!({})).await;
    assert_eq!(interpreter.execute(json!({ "code": "1", "context_id": other })).await.text(), "1");
    // The agent, the interpreter, the driver; what a kernel holds is its code's affair.
    for (pid, name, _) in interpreter.sandbox.processes().await.into_iter().take(3) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        let kib: usize = peak.trim().trim_end_matches(" kB").parse().expect("a number");
        assert!(kib < 100_000, "{name}: {kib} KiB");
    }
    let mut all = Vec::new();
    socket.read_to_end(&mut all).await.expect("all of it");
    let printed = String::from_utf8_lossy(&all).matches('x').count();
    assert!(printed >= FLOOD_BYTES - 1500, "{printed}");
    assert_eq!(interpreter.run("x").await.text(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_is_held_back_goes_on_when_its_client_leaves_also_across_a_pause() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    for pause in [false, true] {
        interpreter.run("x = 1").await;
        let socket = unread(&stage, &interpreter, FLOOD).await;
        kernel_is_stopped(&interpreter).await;
        if pause {
            // Which resets the connection.
            assert_eq!(interpreter.sandbox.post("pause").await.status, 204);
        } else {
            drop(socket);
        }
        assert_eq!(interpreter.run("x").await.text(), "1");
    }
}
