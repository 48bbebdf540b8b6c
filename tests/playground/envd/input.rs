//! What goes into programs: standard input and terminals.

use std::{net::Ipv4Addr, time::Duration};

use futures_util::future::select_all;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::{base64, bash, lines, of, sandbox};
use crate::playground_support::until;

fn with_stdin(script: &str) -> Value {
    let mut wanted = bash(script);
    wanted["stdin"] = true.into();
    wanted
}

fn stdin(text: &str) -> Value {
    json!({ "input": { "stdin": base64(text) } })
}

fn pty(text: &str) -> Value {
    json!({ "input": { "pty": base64(text) } })
}

#[tokio::test(flavor = "multi_thread")]
async fn input_reaches_a_program_in_order_until_it_is_closed() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let (mut frames, pid) = rpc.start(with_stdin("cat; echo over")).await;
    assert_eq!(rpc.done("SendInput", &of(pid, &stdin("one\n"))).await, json!({}));
    let mut many = vec![json!({ "start": { "process": { "pid": pid } } })];
    many.extend((2..200).map(|number| json!({ "data": stdin(&format!("{number}\n")) })));
    many.push(json!({ "keepalive": {} }));
    let mut answer = rpc.stream("StreamInput", &many).await;
    assert_eq!(answer.next().await.expect("whole"), Some((0, json!({}))));
    assert_eq!(answer.next().await.expect("whole"), Some((2, json!({}))));
    assert_eq!(rpc.done("CloseStdin", &of(pid, &json!({}))).await, json!({}));
    assert_eq!(frames.ended().await.stdout, format!("one\n{}over\n", lines(2..200)));
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_nobody_takes_is_refused() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let (_frames, pid) = rpc.start(bash("sleep 4361")).await;
    for (method, message, want) in [
        ("SendInput", of(pid, &stdin("x")), (500, "internal")),
        ("SendInput", of(pid, &pty("x")), (500, "internal")),
        ("Update", of(pid, &json!({ "pty": { "size": { "cols": 1, "rows": 1 } } })), (500, "internal")),
        ("SendInput", of(1, &stdin("x")), (404, "not_found")),
        ("CloseStdin", of(1, &json!({})), (404, "not_found")),
        ("SendSignal", of(1, &json!({ "signal": 9 })), (404, "not_found")),
        ("SendSignal", of(pid, &json!({})), (501, "unimplemented")),
        ("SendSignal", of(pid, &json!({ "signal": 2 })), (501, "unimplemented")),
        ("SendInput", json!({ "process": { "tag": "none" }, "input": {} }), (400, "invalid_argument")),
        ("SendInput", json!({ "process": {}, "input": { "stdin": "" } }), (400, "invalid_argument")),
    ] {
        let (status, body) = rpc.unary(method, &message).await;
        assert_eq!((status, body["code"].as_str().expect("a code")), want, "{method} {message}: {body}");
    }
    let mut answer = rpc.stream("StreamInput", &[json!({ "data": stdin("x") })]).await;
    let (flags, last) = answer.next().await.expect("whole").expect("a frame");
    assert_eq!((flags, &last["error"]["code"]), (2, &json!("invalid_argument")));
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_is_not_read_is_waited_for_no_longer_than_the_caller_wants() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let (_frames, pid) = rpc.start(with_stdin("sleep 4362")).await;
    let much = stdin(&"x".repeat(1 << 20));
    let (status, body) = rpc.with("connect-timeout-ms", "500").unary("SendInput", &of(pid, &much)).await;
    assert_eq!((status, &body["code"]), (504, &json!("deadline_exceeded")));
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_and_the_end_of_a_program_do_not_wait_for_input_that_is_not_read() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    for (method, rest) in [("CloseStdin", json!({})), ("SendSignal", json!({ "signal": 9 }))] {
        // Who holds the pipe's other end besides does not count.
        let script = "exec 3<&0; sleep 4366 <&3 & head -c 1 > /dev/null; echo taken; wait";
        let (mut frames, pid) = rpc.start(with_stdin(script)).await;
        let feeding = tokio::spawn({
            let (rpc, much) = (rpc.clone(), of(pid, &stdin(&"x".repeat(1 << 20))));
            async move { rpc.unary("SendInput", &much).await }
        });
        // Some of it is in the pipe, which does not hold the rest.
        assert_eq!(frames.said("stdout").await, "taken\n");
        let done = timeout(Duration::from_secs(10), rpc.done(method, &of(pid, &rest))).await;
        assert_eq!(done.expect("in time"), json!({}), "{method}");
        let (status, body) = timeout(Duration::from_secs(10), feeding).await.expect("in time").expect("an answer");
        assert_eq!((status, &body["code"]), (500, &json!("internal")), "{method}");
    }
    ground.playground.shutdown().await;
}

/// The first line of an answer to a request of which the last bytes do not come.
async fn unfinished(ip: Ipv4Addr, token: &str, method: &str, bytes: usize) -> String {
    let mut stream = TcpStream::connect((ip, 49983)).await.expect("connected");
    let head = format!(
        "POST /process.Process/{method} HTTP/1.1\r\nhost: x\r\nx-access-token: {token}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        bytes + 1
    );
    let (read, mut write) = stream.split();
    let send = async {
        // Refused in the middle, it is not read to its end.
        let _ = write.write_all(head.as_bytes()).await;
        let _ = write.write_all(&vec![b' '; bytes]).await;
        std::future::pending::<()>().await;
    };
    let mut line = String::new();
    tokio::select! {
        () = send => {}
        read = async { BufReader::new(read).read_line(&mut line).await } => { let _ = read; }
    }
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_do_not_end_are_bounded_one_by_one_and_together() {
    let (ground, sandbox, rpc) = sandbox(json!({})).await;
    for method in ["List", "CloseStdin", "SendSignal"] {
        let refused = timeout(Duration::from_secs(10), unfinished(sandbox.ip, &sandbox.token, method, 1 << 20)).await;
        assert!(refused.expect("refused").starts_with("HTTP/1.1 429 "), "{method}");
    }
    let many = (0..8).map(|_| Box::pin(unfinished(sandbox.ip, &sandbox.token, "SendInput", 15 << 20)));
    let (first, _, rest) = timeout(Duration::from_secs(20), select_all(many)).await.expect("one is refused");
    assert!(first.starts_with("HTTP/1.1 429 "), "{first}");
    let program = json!({ "process": { "cmd": "echo", "args": ["still here"] } });
    assert_eq!(rpc.run(program).await.stdout, "still here\n", "what is short goes on");
    drop(rest);
    let (_frames, pid) = rpc.start(with_stdin("cat > /dev/null")).await;
    let much = of(pid, &stdin(&"x".repeat(10 << 20)));
    until("their room is free", async || rpc.unary("SendInput", &much).await.0 == 200).await;
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_callers_type_at_once_is_not_mixed() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let script = "stty raw -echo; echo ready; head -c 400000 | tr -s ab; echo over";
    let mut wanted = json!({ "process": { "cmd": "sh", "args": ["-c", script] } });
    wanted["pty"] = json!({ "size": { "cols": 80, "rows": 24 } });
    let (mut frames, pid) = rpc.start(wanted).await;
    frames.until_said("pty", "ready").await;
    let type_in = async |letter: &str| rpc.done("SendInput", &of(pid, &pty(&letter.repeat(200_000)))).await;
    tokio::join!(type_in("a"), type_in("b"));
    let said = frames.ended().await.pty;
    let said = said.trim_start().trim_end();
    assert!(said.starts_with("abover") || said.starts_with("baover"), "{said:.80}");
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_one() {
    let (ground, _, rpc) = sandbox(json!({})).await;
    let size = |cols, rows| json!({ "pty": { "size": { "cols": cols, "rows": rows } } });
    let mut wanted = json!({ "process": { "cmd": "/bin/bash", "args": ["--norc", "-i"], "envs": { "TERM": "dumb" } } });
    wanted["pty"] = size(100, 30)["pty"].clone();
    let (mut frames, pid) = rpc.start(wanted).await;
    let say = async |text: &str| assert_eq!(rpc.done("SendInput", &of(pid, &pty(text))).await, json!({}));
    say("tty; stty size\n").await;
    let said = frames.until_said("pty", "30 100\r\n").await;
    assert!(said.contains("/dev/pts/"), "{said}");
    assert_eq!(rpc.done("Update", &of(pid, &size(120, 50))).await, json!({}));
    say("stty size\n").await;
    frames.until_said("pty", "50 120\r\n").await;
    // Job control: Ctrl-C ends what is in the foreground, and nothing else; also where whoever runs the tests
    // ignores it.
    say("sh -c 'echo $((40 + 1)); exec sleep 4363'\n").await;
    // Said by what is in the foreground, not echoed by the terminal.
    frames.until_said("pty", "\n41\r\n").await;
    say("\u{3}").await;
    say("echo $((6 * 7))\n").await;
    frames.until_said("pty", "42\r\n").await;
    let (status, body) = rpc.unary("SendInput", &of(pid, &stdin("x"))).await;
    assert_eq!((status, &body["code"]), (500, &json!("internal")));
    // What it leaves in its terminal does not keep the stream open.
    say("nohup sleep 4364 &\n").await;
    frames.until_said("pty", "4364").await;
    say("exit 4\n").await;
    let ended = frames.ended().await;
    assert_eq!((ended.end["exitCode"].as_i64(), ended.last), (Some(4), json!({})));
    // Whoever asks for the terminal by name gets this one, not only a shell that knows how to take one.
    let mut wanted = json!({ "process": { "cmd": "sh", "args": ["-c", "echo mine > /dev/tty"] } });
    wanted["pty"] = size(80, 24)["pty"].clone();
    assert_eq!(rpc.run(wanted).await.pty, "mine\r\n");
    ground.playground.shutdown().await;
}
