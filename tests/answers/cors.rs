//! Pages of other sites: they may read what they are told, and their preflights wake nothing.

use serde_json::json;

use crate::{
    asking::{BOTH, Over, ask, get, outcome},
    support::{
        Answer, DIRECT, Proxy, Server, World, answer,
        control_plane::{ControlPlane, Step},
    },
};

const SITE: &str = "https://app.example.test:8443";
const PREFLIGHT: &[(&str, &str)] = &[
    ("origin", SITE),
    ("access-control-request-method", "PUT"),
    ("access-control-request-headers", "content-type,e2b-traffic-access-token"),
    ("sec-fetch-mode", "cors"),
];

async fn preflight(proxy: &Proxy, over: Over, port: u16, sandbox: &str) -> Answer {
    ask(proxy, over, ("OPTIONS", port, sandbox, "/a"), PREFLIGHT).await
}

/// It is ours, and lets the page ask.
fn lets_ask(answer: &Answer) {
    assert_eq!((answer.status.as_u16(), answer.body.len()), (204, 0), "{answer:?}");
    for (name, value) in [
        ("access-control-allow-origin", SITE),
        ("access-control-allow-methods", "PUT"),
        ("access-control-allow-headers", "content-type,e2b-traffic-access-token"),
        ("access-control-max-age", "0"),
        ("access-control-allow-credentials", ""),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(answer.header(name), value, "{name}: {answer:?}");
    }
    assert!(answer.header("vary").contains("Origin"), "{answer:?}");
    assert!(answer.header("proxy-status").starts_with("client-proxy; "), "{answer:?}");
}

#[tokio::test]
async fn a_page_of_another_site_may_read_an_error_in_any_medium() {
    let world = World::new("").await;
    world.control.sandbox("bad").always_looks_up(Step::Garbage);
    for over in BOTH {
        for medium in [
            &[][..],
            &[("sec-fetch-mode", "navigate")],
            &[("content-type", "application/connect+proto")],
            &[("connect-protocol-version", "1")],
            &[("content-type", "application/grpc-web+proto")],
        ] {
            for origin in [SITE, "null"] {
                let fields = [medium, &[("origin", origin)]].concat();
                let answer = ask(&world.proxy, over, ("POST", 8000, "bad", "/"), &fields).await;
                assert_eq!(answer.header("access-control-allow-origin"), origin, "{answer:?}");
                assert_eq!(answer.header("access-control-allow-credentials"), "true");
                assert_eq!(answer.header("vary"), "Origin");
                let exposed = answer.header("access-control-expose-headers");
                for name in ["Proxy-Status", "Retry-After", "X-Request-Id", "grpc-status", "grpc-message"] {
                    assert!(exposed.split(", ").any(|one| one == name), "{exposed}");
                }
            }
            let answer = ask(&world.proxy, over, ("POST", 8000, "bad", "/"), medium).await;
            let shared = answer.headers.keys().find(|name| name.as_str().starts_with("access-control"));
            assert_eq!((shared, answer.headers.contains_key("vary")), (None, false), "nobody else is told");
        }
    }
}

#[tokio::test]
async fn a_preflight_is_answered_here_and_wakes_nothing() {
    let world = World::new("cache.negative_ttl = \"50ms\"\n").await;
    let private = |id: &str| {
        let sandbox = world.control.sandbox(id);
        let network = json!({ "allowPublicTraffic": false });
        sandbox.paused("127.0.0.1").set("/network", network).set("/trafficAccessToken", json!("t0ken"));
    };
    world.control.sandbox("sleeps").paused("127.0.0.1");
    world.control.sandbox("stays").paused("127.0.0.1").set("/lifecycle", json!({ "autoResume": false }));
    world.control.sandbox("killed").always_looks_up(Step::gone("killed"));
    world.control.sandbox("bad").always_looks_up(Step::Garbage);
    private("private");
    for over in BOTH {
        for sandbox in ["sleeps", "stays", "unknown", "killed", "private", "bad"] {
            lets_ask(&preflight(&world.proxy, over, 8000, sandbox).await);
            lets_ask(&preflight(&world.proxy, over, 49983, sandbox).await);
        }
    }
    assert_eq!((world.node.requests(), world.proxy.count("client_proxy_wakes_total").await), (0, 0));
    // What is no preflight is a request like any other.
    world.control.sandbox("sleeps").wakes([Step::Truly]);
    let options = ask(&world.proxy, Over::Http1, ("OPTIONS", 8000, "sleeps", "/"), &[("origin", SITE)]).await;
    assert_eq!((options.status.as_u16(), options.text()), (200, "hello".into()));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn a_preflight_to_a_sandbox_that_runs_is_its_own_to_answer() {
    let world = World::new("").await;
    world.control.sandbox("abc").running("127.0.0.1");
    for over in BOTH {
        let answer = preflight(&world.proxy, over, 8000, "abc").await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()), "{answer:?}");
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "{answer:?}");
    }
    let seen = world.node.seen.lock().expect("no panic");
    assert!(seen.iter().all(|head| head.headers["access-control-request-method"] == "PUT"), "{seen:?}");
    assert_eq!(seen.len(), 2);
}

/// The preflight brings no token, and this proxy is the one that guards the port.
#[tokio::test]
async fn a_preflight_to_a_private_sandbox_that_runs_is_answered_here_where_nobody_else_guards_it() {
    let control = ControlPlane::start().await;
    let app = Server::start(async |_| answer(200, "hello")).await;
    let proxy = Proxy::start(&control.config(DIRECT));
    let sandbox = control.sandbox("abc");
    let network = json!({ "allowPublicTraffic": false });
    sandbox.running("127.0.0.1").set("/network", network).set("/trafficAccessToken", json!("t0ken"));
    let port = app.address.port();
    lets_ask(&preflight(&proxy, Over::Http1, port, "abc").await);
    assert_eq!(app.requests(), 0);
    let fields = [("origin", SITE), ("e2b-traffic-access-token", "t0ken")];
    let real = ask(&proxy, Over::Http1, ("PUT", port, "abc", "/a"), &fields).await;
    assert_eq!((real.status.as_u16(), app.requests()), (200, 1));
    let refused = ask(&proxy, Over::Http1, ("PUT", port, "abc", "/a"), &[("origin", SITE)]).await;
    assert_eq!(outcome(&refused), (403, "traffic_token_missing"));
    assert_eq!(refused.header("access-control-allow-origin"), SITE);
}

#[tokio::test]
async fn preflights_wake_like_others_where_they_are_not_answered_here() {
    let world = World::new("wake.answer_preflight = false\n").await;
    world.control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly]);
    let answer = preflight(&world.proxy, Over::Http1, 8000, "abc").await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()));
    // And one that fails is told like any other.
    let unknown = preflight(&world.proxy, Over::Http2, 8000, "none").await;
    assert_eq!(outcome(&unknown), (502, "sandbox_not_found; reason=unknown"));
    assert_eq!(get(&world.proxy, "abc", &[]).await.status, 200);
}
