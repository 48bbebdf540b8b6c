//! Contexts: each with variables and a folder of its own.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    playground_support::{state_of, until},
    stage::{Execution, Stage},
};

#[tokio::test(flavor = "multi_thread")]
async fn contexts_share_nothing_but_the_sandbox() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let made = interpreter.run("import os; os.makedirs('data'); x = 1; os.getcwd()").await;
    assert_eq!(made.text(), "/home/user");
    let (status, context) = interpreter.call("POST", "/contexts", json!({ "cwd": "/home/user/data" })).await;
    assert_eq!(
        (status.as_u16(), &context["language"], &context["cwd"]),
        (200, &json!("python"), &json!("/home/user/data"))
    );
    let id = context["id"].as_str().expect("an id");
    let within = |code: &str| json!({ "code": code, "context_id": id });
    assert_eq!(interpreter.execute(within("x")).await.error(), "NameError");
    let folder = interpreter.execute(within("import os; x = 2; os.getcwd()")).await;
    assert_eq!(folder.text(), "/home/user/data");
    assert_eq!(interpreter.run("x").await.text(), "1");

    let (_, all) = interpreter.call("GET", "/contexts", Value::Null).await;
    assert_eq!(all.as_array().expect("a list").len(), 2, "the default one, too: {all}");
    assert_eq!(all[1], context);

    let (status, _) = interpreter.call("POST", &format!("/contexts/{id}/restart"), Value::Null).await;
    assert_eq!(status, 204);
    let after = interpreter.execute(within("import os; f\"{os.getcwd()} {'x' in globals()}\"")).await;
    assert_eq!(after.text(), "/home/user/data False");
    assert_eq!(interpreter.run("x").await.text(), "1", "another's restart");

    // The default context can be removed, too: there is another one when it is asked for.
    for context in all.as_array().expect("a list") {
        let path = format!("/contexts/{}", context["id"].as_str().expect("an id"));
        assert_eq!(interpreter.call("DELETE", &path, Value::Null).await.0, 204);
        assert_eq!(interpreter.call("DELETE", &path, Value::Null).await.0, 404);
    }
    assert_eq!(interpreter.call("GET", "/contexts", Value::Null).await.1, json!([]));
    assert_eq!(interpreter.run("x").await.error(), "NameError");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_ends_is_told_and_another_takes_its_place() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    assert_eq!(interpreter.run("x = 1; x").await.text(), "1");
    for end in ["import os; print('last'); os._exit(3)", "import os, signal; print('last'); os.kill(os.getpid(), 9)"] {
        let execution = interpreter.run(end).await;
        assert_eq!(execution.error(), "KernelError", "{execution:?}");
        let text = execution.all("error")[0]["value"].as_str().expect("text");
        assert!(text.contains("exit code 3") || text.contains("signal 9"), "{text}");
        let own = json!({ "code": end, "env_vars": { "A": "a" } });
        assert_eq!(interpreter.execute(own).await.error(), "KernelError");
        assert_eq!(interpreter.run("x").await.error(), "NameError");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_exits_ends_its_own_kernel_and_no_later_one() {
    let stage = Stage::set().await;
    let (interpreter, patient) =
        (stage.interpreter().await, stage.interpreter_with(json!({ "CLIENT_PROXY_EXIT_MAX": "600" })).await);
    let told = "import atexit\natexit.register(lambda: open('told', 'w').close())";
    for exit in ["exit()", "quit()", "exit(); 1 / 0", "exit(); get_ipython().exit_now = False"] {
        patient.run(&format!("{told}\nx = 1")).await;
        let mut exits = patient.start(&json!({ "code": format!("print('last'); {exit}") })).await;
        // It waits already.
        let mut waiting = patient.start(&json!({ "code": "x" })).await;
        assert_eq!(exits.until("stdout").await["text"], "last\n");
        if exit.ends_with("1 / 0") {
            assert_eq!(exits.until("error").await["name"], "ZeroDivisionError");
        }
        assert_eq!(exits.next().await.expect("an event")["type"], "end_of_execution");
        assert_eq!(waiting.until("error").await["name"], "NameError");
        assert_eq!(patient.run("import os, time; time.sleep(1); x = 2; os.remove('told')").await.0.len(), 1);
        assert_eq!(patient.run("x").await.text(), "2");
    }
    let own = json!({ "code": "exit()", "env_vars": { "A": "a" } });
    assert_eq!(interpreter.execute(own).await.0.len(), 1);
    // It ends while its cell goes on.
    assert_eq!(interpreter.run("exit()\nimport asyncio; await asyncio.sleep(4570)").await.0.len(), 1);
    interpreter.run("import atexit, time\natexit.register(time.sleep, 4571)\nx = 1").await;
    assert_eq!(interpreter.run("exit()").await.0.len(), 1);
    assert_eq!(interpreter.run("x").await.error(), "NameError", "one that does not end by itself is ended");
    interpreter.run("x = 3").await;
    assert_eq!(interpreter.run("exit(True)").await.0.len(), 1, "which keeps the kernel");
    assert_eq!(interpreter.run("import time; time.sleep(1); x").await.text(), "3");
}

/// As on a machine so busy that the kernel has ended before anybody has read its last words.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_kernel_said_before_it_ended_is_told() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let code = "import os, time\nprint('on')\nwhile not os.path.exists('go'): time.sleep(0.01)\n\
                print('x' * 10_000)\nfor line in range(100): print('last', flush=True)\nexit()";
    let mut exits = interpreter.start(&json!({ "code": code })).await;
    assert_eq!(exits.until("stdout").await["text"], "on\n");
    // After the agent and the interpreter.
    let processes = interpreter.sandbox.processes().await;
    let (driver, kernel) = (processes[2].0, processes[3].0);
    let send = |signal| kill_process(Pid::from_raw(driver).expect("a pid"), signal).expect("it lives");
    send(Signal::STOP);
    interpreter.put("go", "").await;
    until("the kernel has ended", async || matches!(state_of(kernel), None | Some('Z'))).await;
    send(Signal::CONT);
    let mut rest = Vec::new();
    while let Some(event) = exits.next().await {
        rest.push(event);
    }
    assert_eq!(rest.pop().expect("an end"), json!({ "type": "end_of_execution" }));
    let rest = Execution(rest);
    assert!(rest.all("error").is_empty(), "{rest:?}");
    assert_eq!(rest.printed("stdout").len(), 10_001 + 100 * "last\n".len());
    assert_eq!(interpreter.run("1").await.text(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_and_a_removal_end_what_runs() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    for (method, path) in [("POST", "/restart"), ("DELETE", "")] {
        let id = interpreter.context(json!({})).await;
        let endless = json!({ "code": "print('on')\nwhile True: pass", "context_id": id });
        let mut events = interpreter.start(&endless).await;
        events.until("stdout").await;
        let mut waiting = interpreter.start(&json!({ "code": "'after'", "context_id": id })).await;
        let path = format!("/contexts/{id}{path}");
        assert_eq!(interpreter.call(method, &path, Value::Null).await.0, 204);
        assert_eq!(events.until("error").await["name"], "KernelError");
        events.until("end_of_execution").await;
        if method == "POST" {
            assert_eq!(waiting.until("result").await["text"], "after");
        } else {
            assert_eq!(waiting.until("error").await["value"], "the context was removed");
        }
        waiting.until("end_of_execution").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_bound_on_contexts() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let mut last = 0;
    // Those that cannot be started take no place for good.
    for _ in 0..40 {
        last = interpreter.call("POST", "/contexts", json!({ "cwd": "nope" })).await.0.as_u16();
    }
    assert_eq!(last, 404);
    let mut wishes = tokio::task::JoinSet::new();
    let interpreter = std::sync::Arc::new(interpreter);
    for _ in 0..40 {
        let interpreter = interpreter.clone();
        wishes.spawn(async move { interpreter.call("POST", "/contexts", json!({})).await.0.as_u16() });
    }
    let mut told = Vec::new();
    while told.last() != Some(&429) {
        told.push(wishes.join_next().await.expect("a refusal").expect("no panic"));
    }
    assert!(told.iter().all(|status| [200, 429].contains(status)), "{told:?}");
    let (_, all) = interpreter.call("GET", "/contexts", Value::Null).await;
    assert_eq!(all.as_array().expect("a list").len(), 32);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_context_whose_creator_has_left() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    assert_eq!(interpreter.run("1").await.text(), "1");
    let before = interpreter.sandbox.processes().await.len();
    let count = async || interpreter.call("GET", "/contexts", Value::Null).await.1.as_array().expect("a list").len();
    // No kernel that runs this first can run code.
    let waits = "import time\nwhile True: time.sleep(1)\n";
    let startup = "/.interpreter/ipythondir/profile_default/startup/wait.py";
    interpreter.put(startup, waits).await;
    for _ in 0..3 {
        tokio::select! {
            told = interpreter.call("POST", "/contexts", json!({})) => panic!("{told:?}"),
            () = until("it is made", async || count().await == 2) => {}
        }
        until("only the default context is left", async || count().await == 1).await;
    }
    interpreter.put(startup, "").await;
    until("only its kernel is left", async || interpreter.sandbox.processes().await.len() == before).await;
    interpreter.context(json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_end_with_their_driver_and_there_is_another_one() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let other = interpreter.context(json!({})).await;
    // A kernel that is stopped, too, ends with it.
    let stopped = json!({ "code": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "context_id": other });
    let _stopped = interpreter.start(&stopped).await;
    for _ in 0..2 {
        interpreter.run("x = 1").await;
        let ended = interpreter.run("import os, signal; os.kill(os.getppid(), signal.SIGKILL)").await;
        assert_eq!(ended.error(), "KernelError");
        let (_, all) = interpreter.call("GET", "/contexts", Value::Null).await;
        assert_eq!(all, json!([]));
        assert_eq!(interpreter.run("x").await.error(), "NameError");
        let gone = json!({ "code": "1", "context_id": other });
        assert_eq!(interpreter.call("POST", "/execute", gone).await.0, 404);
    }
    // The agent, the interpreter, the driver and a kernel.
    until("nothing of them is left", async || interpreter.sandbox.processes().await.len() == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_an_execution_last_as_long_as_it() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let look = "import os; os.environ.get('A'), os.environ.get('B')";
    interpreter.run("import os; os.environ['B'] = 'own'").await;
    for _ in 0..2 {
        let own = interpreter.execute(json!({ "code": look, "env_vars": { "A": "it's {a}\n", "B": "b" } })).await;
        assert_eq!(own.text(), r#"("it's {a}\n", 'b')"#);
        assert_eq!(interpreter.run(look).await.text(), "(None, 'own')");
    }
    let failed = interpreter.execute(json!({ "code": "1 / 0", "env_vars": { "A": "a" } })).await;
    assert_eq!(failed.error(), "ZeroDivisionError");
    let count = interpreter.run(look).await;
    assert_eq!(count.text(), "(None, 'own')");
    let counted = count.all("number_of_executions")[0]["execution_count"].as_u64();
    assert_eq!(counted, Some(7), "what sets them is no execution of anybody's");
}
