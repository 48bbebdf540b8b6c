//! Code runs where programs of the sandbox do: with the same files, the same names, the same environment.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::{
    installed::{Installed, KERNEL},
    stage::Stage,
};

#[tokio::test(flavor = "multi_thread")]
async fn code_and_callers_mean_the_same_files() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    for path in ["/home/user/data.csv", "/tmp/data.csv", "/root/data.csv", "/own/data.csv"] {
        interpreter.put(path, "a,b").await;
        assert_eq!(interpreter.run(&format!("open('{path}').read()")).await.text(), "a,b");
        let back = path.replace("data", &format!("back-{}", std::process::id()));
        assert!(
            interpreter.run(&format!("_ = open('{back}', 'w').write('c')")).await.all("error").is_empty(),
            "{back}"
        );
        assert_eq!(interpreter.get(&back).await.as_deref(), Some("c"), "{back}");
        assert!(!Path::new(&back).exists(), "it is the sandbox's own");
    }
    let said = interpreter.run("import os; os.getcwd(), os.path.expanduser('~'), os.getuid()").await;
    assert_eq!(said.text(), "('/home/user', '/home/user', 1000)");
    assert_eq!(interpreter.run("!whoami; pwd").await.printed("stdout").replace('\r', ""), "user\n/home/user\n");
    interpreter.run("os.makedirs('real'); os.symlink('/home/user/real', 'current')").await;
    for (cwd, shown, real) in [
        ("/usr/bin", "/usr/bin", "/usr/bin"),
        ("current", "/home/user/current", "/home/user/real"),
        ("a/../real", "/home/user/real", "/home/user/real"),
        ("/tmp", "/tmp", "/tmp"),
    ] {
        let (_, context) = interpreter.call("POST", "/contexts", json!({ "cwd": cwd })).await;
        assert_eq!(context["cwd"], shown, "{context}");
        let look = json!({ "code": "import os; os.getcwd()", "context_id": context["id"] });
        assert_eq!(interpreter.execute(look).await.text(), real);
    }
    // A name that is no text.
    interpreter.run(r"os.mkdir(b'/home/user/\xff'); os.symlink(b'\xff', b'/home/user/link')").await;
    let id = interpreter.context(json!({ "cwd": "/home/user/link" })).await;
    let look = json!({ "code": "import os; os.path.samefile('.', '/home/user/link')", "context_id": id });
    assert_eq!(interpreter.execute(look).await.text(), "True");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_that_the_sandbox_would_not_see_is_shown_and_cannot_be_changed() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let hidden = ["/tmp", "/root", "/home/user"].iter().any(|own| stage.python.starts_with(own));
    let told = interpreter.run("import sys; open(sys.prefix + '/new', 'w').close()").await;
    assert_eq!(!told.all("error").is_empty(), hidden, "{told:?}");
    if hidden {
        assert!(told.all("error")[0]["value"].as_str().expect("text").contains("Read-only"), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_knows_nothing_of_the_playgrounds_environment() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    assert_eq!(interpreter.run("import os; os.environ.get('A_CLOUDS_KEY')").await.0.len(), 1);
    let started_in = format!("os.path.exists('{}')", stage.folder.path().display());
    assert_eq!(interpreter.run(&started_in).await.text(), "False");
    let marks = "os.environ['E2B_SANDBOX_ID'], os.environ['CLIENT_PROXY_SANDBOX'], os.environ['OWN']";
    let other = json!({ "E2B_SANDBOX_ID": "other", "CLIENT_PROXY_SANDBOX": "other", "OWN": "own" });
    let told = interpreter.execute(json!({ "code": marks, "env_vars": other })).await;
    let id = &interpreter.sandbox.id;
    assert_eq!(told.text(), format!("('{id}', '{id}', 'own')"), "{told:?}");
}

fn script(folder: &Path, lines: &str) -> PathBuf {
    let file = folder.join("python");
    fs::write(&file, format!("#!/bin/sh\n{lines}\n")).expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("its mode");
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_may_be_a_script_that_sets_variables_for_one() {
    let python = Installed::get(&KERNEL).await.python;
    let find = format!("{} -c 'import zmq; print(zmq.__path__[0])'", python.display());
    let lines = format!(
        "export OWN=own HOME=/nowhere PYTHONPATH=\"$(dirname \"$({find})\")\"\nexec {} \"$@\"",
        fs::canonicalize(&python).expect("a program").display()
    );
    // Sandboxes do not see it.
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let stage = Stage::with(script(folder.path(), &lines)).await;
    let interpreter = stage.interpreter().await;
    let told = interpreter.run("import os; os.environ['OWN'], os.environ['HOME'], 'PWD' in os.environ").await;
    assert_eq!(told.text(), "('own', '/home/user', False)", "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_where_the_playground_was_started_is_neither_imported_from_nor_told() {
    let python = Installed::get(&KERNEL).await.python;
    let find = format!("{} -c 'import zmq; print(zmq.__path__[0])'", python.display());
    let lines = format!(
        "export PYENV_DIR=\"$PWD\" ONE=script TWO=script\nexport PYTHONPATH=\"$(dirname \"$(cd / && {find})\"):\"\n\
         exec {} \"$@\"",
        fs::canonicalize(&python).expect("a program").display()
    );
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let stage = Stage::with(script(folder.path(), &lines)).await;
    fs::write(stage.folder.path().join("queue.py"), "raise SystemError('not ours')").expect("written");
    let wanted = json!({ "TWO": "creator", "LC_CTYPE": "C.utf8" });
    let interpreter = stage.interpreter_with(wanted).await;
    let names = "['ONE', 'TWO', 'LC_CTYPE', 'PYENV_DIR', 'PYTHONCOERCECLOCALE']";
    let told = interpreter.run(&format!("import os; [os.environ.get(name) for name in {names}]")).await;
    assert_eq!(told.text(), "['script', 'creator', 'C.utf8', None, None]", "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_that_does_not_start_after_all_is_told_to_whoever_runs_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let answer = r#"{"executable":"/bin/false","user_base":null,"folders":[],"environment":{}}"#;
    let stage = Stage::with(script(folder.path(), &format!("echo '{answer}'"))).await;
    let interpreter = stage.interpreter().await;
    for _ in 0..2 {
        let told = interpreter.run("1").await;
        assert_eq!(told.error(), "KernelError");
        let text = told.all("error")[0]["value"].as_str().expect("text");
        assert!(text.contains("the interpreter has ended"), "{text}");
    }
    let (status, text) = interpreter.call("POST", "/contexts", json!({})).await;
    assert_eq!(status, 500);
    assert!(text.as_str().expect("text").contains("the interpreter has ended"), "{text}");
}
