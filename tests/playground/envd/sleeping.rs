//! Programs sleep and end with their sandbox, whatever they have done to get away.

use serde_json::json;

use super::{bash, connect::Rpc, of};
use crate::{
    playground_support::{Ground, Sandbox, processes_with, state_of, until},
    support::Proxy,
};

/// A playground that traffic wakes by way of a proxy, and the way through that to a sandbox's envd.
async fn behind_a_proxy() -> (Ground, Proxy, Sandbox, Rpc) {
    let ground = Ground::start(&["--proxy", "127.0.0.1:0"]).await;
    let proxy = Proxy::start(&ground.playground.proxy_config().expect("a configuration"));
    let sandbox = ground.api.sleeper("base").await;
    let rpc = Rpc::to(&ground.api.client, &sandbox);
    let mut rpc = rpc.with("e2b-sandbox-id", &sandbox.id).with("e2b-sandbox-port", "49983");
    rpc.base = format!("http://{}", proxy.address);
    (ground, proxy, sandbox, rpc)
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_commands_wake_a_sandbox_once_and_all_of_them_run() {
    let (ground, _proxy, sandbox, rpc) = behind_a_proxy().await;
    assert_eq!(sandbox.post("pause").await.status, 204);
    let runs = (0..20).map(|number| {
        let rpc = rpc.clone();
        tokio::spawn(async move { rpc.run(bash(&format!("echo {number}"))).await.stdout })
    });
    for (number, run) in runs.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(run.await.expect("done"), format!("{number}\n"));
    }
    assert_eq!(sandbox.inside().await["wakes"], 1);
    ground.playground.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_sleeps_with_its_sandbox_and_goes_on_where_it_was() {
    let (ground, _proxy, sandbox, rpc) = behind_a_proxy().await;
    let mut wanted =
        bash("all=; while read word; do all=$all$word; echo $all; done; (setsid sleep 4371 &); exec sleep 4372");
    wanted["stdin"] = true.into();
    let (mut frames, pid) = rpc.start(wanted).await;
    let say = |text: &str| of(pid, &json!({ "input": { "stdin": super::base64(text) } }));
    let number = i32::try_from(pid).expect("a number");
    let mut all = String::new();
    for word in ["a", "b", "c", "d", "e"] {
        rpc.done("SendInput", &say(&format!("{word}\n"))).await;
        all += word;
        assert_eq!(frames.said("stdout").await, format!("{all}\n"));
        assert_eq!(sandbox.post("pause").await.status, 204);
        // The edge knows why the stream broke off, and ends it so that no SDK looks whether the sandbox lives.
        let (flags, last) = frames.next().await.expect("a whole stream").expect("a last frame");
        assert_eq!((flags, &last["error"]["code"]), (2, &json!("unavailable")), "{last}");
        assert_eq!(state_of(number), Some('T'));
        assert_eq!(sandbox.state().await, "paused");
        // The next call wakes it.
        assert_eq!(rpc.done("List", &json!({})).await["processes"][0]["pid"], pid);
        frames = rpc.stream("Connect", &[of(pid, &json!({}))]).await;
        assert_eq!(frames.event().await, json!({ "start": { "pid": pid } }));
    }
    rpc.done("CloseStdin", &of(pid, &json!({}))).await;
    until("all of it runs", async || {
        sandbox.processes().await.iter().filter(|(_, name, _)| name == "sleep").count() == 2
    })
    .await;
    let all = sandbox.processes().await;
    assert_eq!(sandbox.kill().await.status, 204);
    for (pid, name, _) in all {
        assert!(matches!(state_of(pid), None | Some('Z')), "{name} survived");
    }
    assert!(processes_with(&sandbox.id).is_empty());
    ground.playground.shutdown().await;
}
