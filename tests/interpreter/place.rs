//! Code runs where programs of the sandbox do: with the same files, the same names, the same environment.

use std::path::Path;

use serde_json::json;

use crate::stage::Stage;

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
    let marks = "os.environ['E2B_SANDBOX_ID'], os.environ['CLIENT_PROXY_SANDBOX'], os.environ['OWN']";
    let other = json!({ "E2B_SANDBOX_ID": "other", "CLIENT_PROXY_SANDBOX": "other", "OWN": "own" });
    let told = interpreter.execute(json!({ "code": marks, "env_vars": other })).await;
    let id = &interpreter.sandbox.id;
    assert_eq!(told.text(), format!("('{id}', '{id}', 'own')"), "{told:?}");
}
