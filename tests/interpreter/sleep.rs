//! Kernels belong to their sandbox: they sleep with it, and end with it.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    playground_support::{processes_with, state_of, until},
    stage::{Interpreter, Stage},
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
    interpreter.run("1").await;
    // Kernels run this before they hear anybody (ipython.readthedocs.io, "Startup Files").
    let waits = "import os, time\nopen('/home/user/starts', 'w').close()\nwhile not os.path.exists('/home/user/go'): \
                 time.sleep(0.01)\n";
    interpreter.put("/.interpreter/ipythondir/profile_default/startup/wait.py", waits).await;
    let (_, all) = interpreter.call("GET", "/contexts", Value::Null).await;
    let path = format!("/contexts/{}", all[0]["id"].as_str().expect("an id"));
    assert_eq!(interpreter.call("DELETE", &path, Value::Null).await.0, 204);
    let cut = interpreter.start(&json!({ "code": "x = 'run for nobody'" })).await;
    until("a kernel starts", async || interpreter.get("starts").await.is_some()).await;
    for _ in 0..3 {
        assert_eq!(interpreter.sandbox.post("pause").await.status, 204);
        assert_eq!(interpreter.sandbox.processes().await.len(), 4);
        assert_eq!(interpreter.sandbox.wake().await.status, 201);
    }
    drop(cut);
    interpreter.put("go", "").await;
    assert_eq!(interpreter.run("'x' in globals()").await.text(), "False");
    let (_, all) = interpreter.call("GET", "/contexts", Value::Null).await;
    assert_eq!(all.as_array().expect("a list").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_runs_at_a_pause_goes_on_after_the_wake() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let code = "import os, time\nprint('on')\nwhile not os.path.exists('go'): time.sleep(0.01)\n\
                print('x' * 3_000_000); os.remove('go'); ran = 'to its end'";
    for rounds in 1..=2 {
        let mut running = interpreter.start(&json!({ "code": code })).await;
        running.until("stdout").await;
        for _ in 0..rounds {
            assert_eq!(interpreter.sandbox.post("pause").await.status, 204);
            assert_eq!(interpreter.sandbox.wake().await.status, 201);
        }
        interpreter.put("go", "").await;
        assert_eq!(interpreter.run("ran").await.text(), "to its end");
        interpreter.run("del ran").await;
        // Who leaves after the wake has left.
        let mut left = interpreter.start(&json!({ "code": code })).await;
        left.until("stdout").await;
        drop(left);
        assert_eq!(interpreter.run("'ran' in globals()").await.text(), "False");
    }
}

/// A client whose code runs, for ever.
async fn endless(interpreter: &Interpreter) -> TcpStream {
    let code = json!({ "code": "print('on')\nwhile True: pass" }).to_string();
    let (ip, token) = (interpreter.sandbox.ip, &interpreter.sandbox.token);
    let mut socket = TcpStream::connect((ip, 49999)).await.expect("connected");
    let head = format!(
        "POST /execute HTTP/1.1\r\nHost: {ip}\r\nX-Access-Token: {token}\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{code}",
        code.len()
    );
    socket.write_all(head.as_bytes()).await.expect("sent");
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("on\\n") {
        assert_ne!(socket.read_buf(&mut said).await.expect("some of an answer"), 0);
    }
    socket
}

#[tokio::test(flavor = "multi_thread")]
async fn code_whose_client_left_just_before_a_pause_does_not_go_on() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let mut socket = endless(&interpreter).await;
    socket.shutdown().await.expect("left");
    // It has noticed.
    let _ = socket.read_to_end(&mut Vec::new()).await;
    assert_eq!(interpreter.sandbox.post("pause").await.status, 204);
    assert_eq!(interpreter.sandbox.wake().await.status, 201);
    assert_eq!(interpreter.run("1").await.text(), "1");

    // It has no time to notice.
    let mut socket = endless(&interpreter).await;
    let pid = Pid::from_raw(interpreter.sandbox.processes().await[1].0).expect("the interpreter, after the agent");
    kill_process(pid, Signal::STOP).expect("it lives");
    socket.shutdown().await.expect("left");
    assert_eq!(interpreter.sandbox.post("pause").await.status, 204);
    socket.read_to_end(&mut Vec::new()).await.expect_err("a reset: it may have waited for an answer");
    assert_eq!(interpreter.sandbox.wake().await.status, 201);
    kill_process(pid, Signal::CONT).expect("it lives");
    assert_eq!(interpreter.run("1").await.text(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_inside_the_sandbox_is_not_cut_by_a_pause_and_may_leave_after_it() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let inside = "import http.client, os, time
client = http.client.HTTPConnection(os.environ['SANDBOX_IP'], 49999)
code = '{\"code\": \"print(1)\\\\nwhile True: pass\"}'
client.request('POST', '/execute', code, {'X-Access-Token': os.environ['TOKEN'], 'Content-Type': 'application/json'})
answer = client.getresponse()
while b'stdout' not in answer.readline(): pass
open('runs', 'w').close()
while not os.path.exists('leave'): time.sleep(0.01)
client.close(), answer.close()";
    let id = interpreter.context(json!({})).await;
    let token = json!({ "TOKEN": interpreter.sandbox.token });
    let cut = interpreter.start(&json!({ "code": inside, "context_id": id, "env_vars": token })).await;
    until("it runs", async || interpreter.get("runs").await.is_some()).await;
    assert_eq!(interpreter.sandbox.post("pause").await.status, 204);
    assert_eq!(interpreter.sandbox.wake().await.status, 201);
    drop(cut);
    interpreter.put("leave", "").await;
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
