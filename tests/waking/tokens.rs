//! Tokens: nobody wakes a sandbox with a wrong one, and a wrong one spoils nobody else's wake.

use serde_json::json;

use crate::support::{
    Answer, DIRECT, Proxy, REMEMBER, Server, World, answer,
    control_plane::{ControlPlane, Gate, Sandbox, Step},
    request,
};

const ENVD: u16 = 49983;
const ACCESS: &str = "x-access-token";
const TRAFFIC: &str = "e2b-traffic-access-token";

async fn world() -> (ControlPlane, Server, Proxy) {
    let World { control, node, proxy } = World::new(REMEMBER).await;
    (control, node, proxy)
}

async fn ask(proxy: &Proxy, sandbox: &str, port: u16, tokens: &[(&str, &str)]) -> Answer {
    let mut request = request("GET", port, sandbox, "/");
    for (name, token) in tokens {
        request = request.header(*name, *token);
    }
    proxy.send(request.body(http_body_util::Full::default()).expect("a request")).await
}

fn secure(sandbox: &Sandbox) -> &Sandbox {
    sandbox.paused("127.0.0.1").set("/envdAccessToken", json!("right"))
}

fn private(sandbox: &Sandbox) -> &Sandbox {
    let closed = json!({ "allowPublicTraffic": false });
    sandbox.paused("127.0.0.1").set("/network", closed).set("/trafficAccessToken", json!("right"))
}

/// Both answers, or only the status where the sandbox answered.
fn told(answer: &Answer) -> (u16, String) {
    let error = if answer.status == 200 { String::new() } else { answer.error() };
    (answer.status.as_u16(), error)
}

#[tokio::test]
async fn a_wrong_token_before_the_right_one_wakes_nothing_and_spoils_nothing() {
    let (control, node, proxy) = world().await;
    let sandbox = control.sandbox("abc");
    secure(&sandbox).looks_up([Step::Truly]);
    for tokens in [&[][..], &[(ACCESS, "wrong")], &[(ACCESS, "")], &[(TRAFFIC, "right")], &[(ACCESS, "right ish")]] {
        assert_eq!(told(&ask(&proxy, "abc", ENVD, tokens).await), (403, "access_denied".into()), "{tokens:?}");
    }
    sandbox.wakes([Step::Truly]);
    assert_eq!(ask(&proxy, "abc", ENVD, &[(ACCESS, "right")]).await.status, 200);
    assert_eq!(node.requests(), 1);
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_wrong_token_does_not_ride_on_the_wake_of_the_right_one() {
    let (control, node, proxy) = world().await;
    let gate = Gate::closed();
    let sandbox = control.sandbox("abc");
    secure(&sandbox).looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
    let wrong = async {
        sandbox.connects_become(1).await;
        // Answered while the right one is still held.
        for tokens in [&[][..], &[(ACCESS, "wrong")]] {
            assert_eq!(told(&ask(&proxy, "abc", ENVD, tokens).await), (403, "access_denied".into()));
        }
        proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
        gate.open();
    };
    let (right, ()) = tokio::join!(ask(&proxy, "abc", ENVD, &[(ACCESS, "right")]), wrong);
    assert_eq!((right.status.as_u16(), node.requests()), (200, 1));
    proxy.is_idle().await;
}

#[tokio::test]
async fn wrong_and_right_tokens_at_once_get_each_their_own() {
    let (control, node, proxy) = world().await;
    for round in 0..20 {
        let (envd, user) = (format!("envd{round}"), format!("user{round}"));
        secure(&control.sandbox(&envd)).wakes([Step::Truly]);
        private(&control.sandbox(&user)).wakes([Step::Truly]);
        let (a, b, c, d) = tokio::join!(
            ask(&proxy, &envd, ENVD, &[(ACCESS, "wrong")]),
            ask(&proxy, &envd, ENVD, &[(ACCESS, "right")]),
            ask(&proxy, &user, 8000, &[(TRAFFIC, "right")]),
            ask(&proxy, &user, 8000, &[(TRAFFIC, "wrong")]),
        );
        assert_eq!((b.status.as_u16(), c.status.as_u16()), (200, 200));
        // The sandbox may be running already when the wrong one is looked at: then the node judges.
        for (answer, error) in [(a, "access_denied"), (d, "traffic_token_invalid")] {
            assert!(answer.status == 200 || told(&answer) == (403, error.into()), "{answer:?}");
        }
    }
    assert!((40..=80).contains(&node.requests()));
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_private_port_is_told_what_it_lacks() {
    let (control, node, proxy) = world().await;
    let sandbox = control.sandbox("abc");
    private(&sandbox).set("/envdAccessToken", json!("other")).looks_up([Step::Truly]);
    for (tokens, error) in [
        (&[][..], "traffic_token_missing"),
        (&[(ACCESS, "right")], "traffic_token_missing"),
        (&[(TRAFFIC, "wrong")], "traffic_token_invalid"),
        (&[(TRAFFIC, "other")], "traffic_token_invalid"),
        (&[(TRAFFIC, "")], "traffic_token_invalid"),
    ] {
        assert_eq!(told(&ask(&proxy, "abc", 8000, tokens).await), (403, error.into()), "{tokens:?}");
    }
    sandbox.wakes([Step::Truly]);
    assert_eq!(ask(&proxy, "abc", 8000, &[(TRAFFIC, "right")]).await.status, 200);
    assert_eq!(node.requests(), 1);
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_private_sandbox_whose_token_nobody_tells_is_not_woken() {
    let (control, _node, proxy) = world().await;
    private(&control.sandbox("abc")).set("/trafficAccessToken", json!(null));
    for (tokens, error) in [(&[][..], "traffic_token_missing"), (&[(TRAFFIC, "any")], "traffic_token_invalid")] {
        assert_eq!(told(&ask(&proxy, "abc", 8000, tokens).await), (403, error.into()));
    }
    proxy.is_idle().await;
}

#[tokio::test]
async fn a_refusal_of_the_control_plane_is_for_the_credentials_that_got_it() {
    let (control, _node, proxy) = world().await;
    let sandbox = control.sandbox("abc");
    sandbox.paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::error(403, "no"), Step::Truly]);
    for _ in 0..3 {
        assert_eq!(told(&ask(&proxy, "abc", 8000, &[(TRAFFIC, "a")]).await), (403, "access_denied".into()));
    }
    assert_eq!(sandbox.connects(), 1);
    assert_eq!(ask(&proxy, "abc", 8000, &[(TRAFFIC, "b")]).await.status, 200);
    // It runs now, whoever was refused before.
    assert_eq!(ask(&proxy, "abc", 8000, &[(TRAFFIC, "a")]).await.status, 200);
    proxy.is_idle().await;
}

#[tokio::test]
async fn node_mode_leaves_running_sandboxes_and_their_tokens_to_the_node() {
    let (control, node, proxy) = world().await;
    private(&control.sandbox("abc")).running("127.0.0.1");
    for tokens in [&[][..], &[(TRAFFIC, "wrong")], &[(TRAFFIC, "right"), (ACCESS, "mine")]] {
        assert_eq!(ask(&proxy, "abc", 8000, tokens).await.status, 200);
    }
    let seen: Vec<_> = node.seen.lock().expect("no panic").iter().map(|head| head.headers.clone()).collect();
    assert!(!seen[0].contains_key(TRAFFIC));
    assert_eq!(
        (&seen[1][TRAFFIC], &seen[2][TRAFFIC], &seen[2][ACCESS]),
        (&"wrong".parse().expect("a value"), &"right".parse().expect("a value"), &"mine".parse().expect("a value"))
    );
    proxy.is_idle().await;
}

#[tokio::test]
async fn direct_mode_checks_the_traffic_token_of_running_sandboxes_and_keeps_it() {
    let control = ControlPlane::start().await;
    let app = Server::start(async |_| answer(200, "hello")).await;
    let port = app.address.port();
    let proxy = Proxy::start(&control.config(&format!("{DIRECT}{REMEMBER}")));
    let sandbox = control.sandbox("abc");
    private(&sandbox).running("127.0.0.1").set("/envdAccessToken", json!("other"));
    for (tokens, error) in [
        (&[][..], "traffic_token_missing"),
        (&[(ACCESS, "other")], "traffic_token_missing"),
        (&[(TRAFFIC, "wrong")], "traffic_token_invalid"),
    ] {
        assert_eq!(told(&ask(&proxy, "abc", port, tokens).await), (403, error.into()), "{tokens:?}");
    }
    assert_eq!(ask(&proxy, "abc", port, &[(TRAFFIC, "right"), (ACCESS, "mine")]).await.status, 200);
    // The locks of before hold after a wake, also where its answer does not repeat them.
    let woken = control.sandbox("woken");
    let wakes = woken.clone();
    let bare = json!({ "sandboxID": "woken", "nodeIP": "127.0.0.1", "startedAt": "later" });
    private(&woken).wakes([Step::Tells(201, bare).doing(move || {
        wakes.running("127.0.0.1");
    })]);
    assert_eq!(ask(&proxy, "woken", port, &[(TRAFFIC, "right")]).await.status, 200);
    assert_eq!(told(&ask(&proxy, "woken", port, &[(TRAFFIC, "wrong")]).await), (403, "traffic_token_invalid".into()));
    // Where no token is needed, one that comes all the same stays here, too.
    control.sandbox("public").running("127.0.0.1");
    assert_eq!(ask(&proxy, "public", port, &[(TRAFFIC, "any"), (ACCESS, "mine")]).await.status, 200);
    let seen = app.seen.lock().expect("no panic").clone();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|head| !head.headers.contains_key(TRAFFIC)), "the sandbox learns no token: {seen:?}");
    assert_eq!([0, 2].map(|at| seen[at].headers[ACCESS].as_bytes()), [b"mine"; 2]);
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn callers_whose_wakes_hang_do_not_lock_the_others_out() {
    let (control, _node, proxy) = world().await;
    let sandbox = control.sandbox("abc");
    let steps = std::iter::repeat_n(Step::Hangs, 8).chain([Step::Truly]);
    sandbox.paused("127.0.0.1").looks_up([Step::Truly]).wakes(steps);
    let strangers = async {
        let tokens: Vec<_> = (0..8).map(|n| format!("stranger{n}")).collect();
        let asked = tokens.iter().map(async |token| ask(&proxy, "abc", 8000, &[(TRAFFIC, token)]).await.status);
        futures_util::future::join_all(asked).await
    };
    let owner = async {
        sandbox.connects_become(8).await;
        ask(&proxy, "abc", 8000, &[(TRAFFIC, "owner")]).await.status
    };
    let (strangers, owner) = tokio::join!(strangers, owner);
    // It is awake for all of them.
    assert!(owner == 200 && strangers.iter().all(|status| *status == 200), "{owner} {strangers:?}");
    proxy.is_idle().await;
}
