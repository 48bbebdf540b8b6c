//! Code that harms its own interpreter: it has the key of its kernel, and the files of the sandbox.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::stage::{Execution, Interpreter, Stage};

/// Sends what no kernel does by the sockets that are heard.
const GARBAGE: &str = r#"
import json
kernel = get_ipython().kernel
session, parent = kernel.session, kernel.get_parent()
to = [parent["header"]["session"].encode()]

def publish(frames):
    kernel.iopub_socket.send_multipart(frames)

def reply(frames):
    # The socket belongs to a thread of its own.
    kernel.shell_channel_thread.io_loop.add_callback(kernel.shell_stream.send_multipart, to + frames)

def signed(*parts):
    return [b"<IDS|MSG>", session.sign(list(parts)), *parts]

def message(kind, content, about=parent["header"]):
    header = json.dumps(session.msg(kind)["header"], default=str).encode()
    return signed(header, json.dumps(about, default=str).encode(), b"{}", json.dumps(content).encode())

deep = b"[" * 200_000 + b"]" * 200_000
values = [None, 1, "x", [], {}, [1], {"a": 1}, "y" * 100_000]
contents = values + [
    dict(execution_state=value, execution_count=value, name=value, text=value, data=value, ename=value, evalue=value,
         traceback=value) for value in values
] + [dict(name="stdout", text=value) for value in values if type(value) is not str] + [
    dict(data={"text/plain": value, "extra": value}) for value in values
]
for send in (publish, reply):
    for frames in [[b""], [b"<IDS|MSG>"], [b"x"] * 9, [b"<IDS|MSG>", b"wrong", b"{}", b"{}", b"{}", b"{}"],
                   [b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"{}"], signed(), signed(b"{}"), [b"<IDS|MSG>"] * 9]:
        send(frames)
    for part in [b"", b"\xff\xfe", b"{", b"null", b"1", b'"x"', b"[]", b"{}", b'{"msg_id": 1, "msg_type": []}', deep]:
        send(signed(part, part, part, part))
        send(message("status", {})[:2] + [part] * 4)
        for place in (2, 3, 4):
            parts = message("stream", dict(name="stdout", text="forged"))[2:]
            parts[place - 1] = part
            send(signed(*parts))
    for kind in ("status", "execute_input", "stream", "execute_result", "display_data", "error", "execute_reply", "x"):
        for content in contents:
            send(message(kind, content))
        for about in values:
            send(message(kind, {}, about))
print("last")
"#;

/// All that comes of it, in time.
async fn in_time(interpreter: &Interpreter, body: Value) -> Execution {
    timeout(Duration::from_mins(1), interpreter.execute(body)).await.expect("an end in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_kernel_sends_its_calls_end_and_others_go_on() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let other = interpreter.context(json!({})).await;
    for code in [GARBAGE.to_owned(), format!("1\n{GARBAGE}")] {
        let told = in_time(&interpreter, json!({ "code": code, "env_vars": { "A": "a" } })).await;
        let end = format!("{:.2000}", format!("{:?}", told.0.iter().rev().collect::<Vec<_>>()));
        assert!(told.printed("stdout").contains("last\n"), "{end}");
        for context in [Value::Null, json!(other)] {
            assert_eq!(in_time(&interpreter, json!({ "code": "1", "context_id": context })).await.text(), "1");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_may_remove_the_interpreters_folder_and_there_are_new_contexts() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    interpreter.run("x = 1").await;
    let end_driver = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)";
    for harm in ["None", "open('/.interpreter', 'w').close()", "os.symlink('/nowhere', '/.interpreter')"] {
        for next in ["context", "restart", "driver"] {
            let code = format!("import os, shutil; shutil.rmtree('/.interpreter'); {harm}");
            let done = interpreter.run(&code).await;
            assert!(done.all("error").is_empty(), "{done:?}");
            match next {
                "driver" => assert_eq!(interpreter.run(end_driver).await.error(), "KernelError"),
                "restart" => {
                    let id = interpreter.call("GET", "/contexts", Value::Null).await.1[0]["id"].take();
                    let path = format!("/contexts/{}/restart", id.as_str().expect("an id"));
                    assert_eq!(interpreter.call("POST", &path, Value::Null).await.0, 204, "{harm}");
                }
                _ => assert_eq!(interpreter.run("x").await.text(), "1", "it lives: {harm}"),
            }
            let id = interpreter.context(json!({})).await;
            assert_eq!(interpreter.execute(json!({ "code": "1", "context_id": id })).await.text(), "1");
            interpreter.run("x = 1").await;
        }
    }
    let closed = interpreter.run("import os; os.chmod('/.interpreter', 0)").await;
    assert!(closed.all("error").is_empty(), "{closed:?}");
    interpreter.context(json!({})).await;
}
