//! What the admin pages refuse, how they say so, and what nobody gets to read on them.

use http::{Method, header::ALLOW};
use http_body_util::Full;

use crate::{
    admin_pages::{ask, lines},
    support::{
        Answer, Proxy, REMEMBER, Raw, World,
        control_plane::{KEY, Step},
        get, request,
    },
};

/// A refusal of the pages' own, in their form.
fn assert_refused(answer: &Answer, status: u16, error: &str) {
    let json = answer.json();
    assert_eq!((answer.status.as_u16(), &json["code"], &json["error"]), (status, &status.into(), &error.into()));
    assert!(json["message"].as_str().is_some_and(|message| !message.is_empty()), "{json}");
    assert_eq!((answer.header("content-type"), answer.header("cache-control")), ("application/json", "no-store"));
}

#[tokio::test]
async fn every_page_wants_the_token_and_no_other() {
    let proxy = Proxy::start("server.workers = 1\nadmin.token = \"a5ecret0token\"");
    for path in ["/sandboxes", "/sandboxes/abc", "/sandboxes/%ff", "/top?by=wakes", "/top", "/no/such"] {
        for method in [Method::GET, Method::HEAD, Method::DELETE, Method::POST, Method::OPTIONS] {
            for wrong in [None, Some("a5ecret0toke"), Some("a5ecret0token0"), Some("")] {
                let answer = ask(&proxy, method.clone(), path, wrong).await;
                assert_eq!(answer.status, 401, "{method} {path}");
                assert_eq!(answer.header("www-authenticate"), "Bearer");
                if method != Method::HEAD {
                    assert_refused(&answer, 401, "unauthorized");
                }
            }
            assert_ne!(ask(&proxy, method, path, Some("a5ecret0token")).await.status, 401, "{path}");
        }
    }
}

#[tokio::test]
async fn other_methods_are_told_which_there_are() {
    let proxy = Proxy::start("server.workers = 1");
    for (path, allowed) in [
        ("/sandboxes", "GET,HEAD"),
        ("/sandboxes/abc", "GET,HEAD,DELETE"),
        ("/top", "GET,HEAD"),
        ("/metrics", "GET,HEAD"),
        ("/any/other", "GET,HEAD"),
    ] {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::OPTIONS] {
            let answer = ask(&proxy, method.clone(), path, None).await;
            assert_refused(&answer, 405, "method_not_allowed");
            assert_eq!(answer.headers.get_all(ALLOW).iter().collect::<Vec<_>>(), [allowed], "{method} {path}");
        }
        let head = ask(&proxy, Method::HEAD, path, None).await;
        assert_eq!(head.status, get(proxy.admin, path).await.status, "HEAD is GET without the body");
        assert!(head.body.is_empty());
        assert_eq!(head.header("cache-control"), "no-store");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_told_what_would() {
    let proxy = Proxy::start("server.workers = 1");
    for (query, right) in [
        ("/sandboxes?state=sleeping", "unknown, locating, running, running_stale, asleep, resuming, refusing, gone"),
        ("/sandboxes?state=", "one of unknown"),
        ("/sandboxes?limit=0", "from 1 to 1000"),
        ("/sandboxes?limit=1001", "from 1 to 1000"),
        ("/sandboxes?limit=-1", "from 1 to 1000"),
        ("/sandboxes?limit=99999999999999999999999", "from 1 to 1000"),
        ("/sandboxes?limit=5&limit=5", "each at most once"),
        ("/sandboxes?after=%2e%2e", "a sandbox id"),
        ("/sandboxes?after=", "a sandbox id"),
        ("/sandboxes?a5ecret=a5ecret", "state, after, limit"),
        ("/sandboxes?%ff=%ff", "state, after, limit"),
        ("/top", "wakes, held, requests"),
        ("/top?by=a5ecret", "wakes, held, requests"),
        ("/top?by=wakes&limit=0", "from 1 to 1000"),
        ("/top?by=wakes&after=a", "by, limit"),
    ] {
        let answer = get(proxy.admin, query).await;
        assert_refused(&answer, 400, "invalid_parameter");
        let message = answer.json()["message"].as_str().expect("a message").to_owned();
        assert!(message.contains(right) && !message.contains("a5ecret"), "{query}: {message}");
    }
    let long = "a".repeat(64);
    for id in ["ABC", "a-b", "a%2Fb", "%2e%2e", "%00", "%ff", "a%20b", "%F0%9F%A6%80", "..%2f..%2fetc", &long] {
        for method in [Method::GET, Method::DELETE] {
            let answer = ask(&proxy, method, &format!("/sandboxes/{id}"), None).await;
            assert_refused(&answer, 400, "invalid_sandbox_id");
        }
    }
    for method in [Method::GET, Method::DELETE] {
        let answer = ask(&proxy, method, "/sandboxes/nobody", None).await;
        assert_refused(&answer, 404, "unknown_sandbox");
    }
    // A name as encodings go, and a path longer than any.
    assert_eq!(get(proxy.admin, "/sandboxes/%6eobody").await.status, 404);
    let mut raw = Raw::connect(proxy.admin).await;
    raw.write(format!("GET /sandboxes/{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(60_000))).await;
    assert_eq!(raw.message().await.head.status(), 400);
}

#[tokio::test]
async fn no_page_tells_a_secret() {
    let world = World::new(&format!("{REMEMBER}admin.token = \"a5ecret0admin\"\n")).await;
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").set("/envdAccessToken", "a5ecret0envd".into());
    sandbox.set("/network", serde_json::json!({ "allowPublicTraffic": false }));
    sandbox.set("/trafficAccessToken", "a5ecret0traffic".into());
    sandbox.wakes([Step::error(500, "a5ecret0message"), Step::Truly]);
    let knock = async |traffic: &str| {
        let request = request("GET", 8000, "abc", "/a5ecret0path?token=a5ecret0query")
            .header("user-agent", "a5ecret0agent")
            .header("authorization", "Bearer a5ecret0app")
            .header("x-access-token", "a5ecret0envd")
            .header("e2b-traffic-access-token", traffic);
        let answer = world.proxy.send(request.body(Full::default()).expect("a request")).await;
        answer.status.as_u16()
    };
    assert_eq!(knock("a5ecret0wrong").await, 403);
    assert_eq!(knock("a5ecret0traffic").await, 503);
    assert_eq!(ask(&world.proxy, Method::DELETE, "/sandboxes/abc", Some("a5ecret0admin")).await.status, 204);
    assert_eq!(knock("a5ecret0traffic").await, 200);
    let mut said = String::new();
    for path in [
        "/sandboxes/abc",
        "/sandboxes/a5ecret0id",
        "/sandboxes/a5ecret-id",
        "/sandboxes",
        "/sandboxes?state=a5ecret0state",
        "/sandboxes?token=a5ecret0token",
        "/top?by=wakes",
        "/top?by=requests&a5ecret0name=1",
    ] {
        for token in [None, Some("a5ecret0wrong"), Some("a5ecret0admin")] {
            let answer = ask(&world.proxy, Method::GET, path, token).await;
            said += &format_args!("{:?} {}\n", answer.headers, answer.text()).to_string();
        }
    }
    let told = ask(&world.proxy, Method::GET, "/sandboxes/abc", Some("a5ecret0admin")).await.json();
    let told = lines(&told);
    assert!(told.contains(&"refused denied asleep>asleep".into()), "{told:?}");
    assert!(told.contains(&"wake_ended ok resuming>running".into()), "{told:?}");
    for secret in ["a5ecret", KEY] {
        let at = said.find(secret);
        assert!(at.is_none(), "{:?}", at.map(|at| &said[at.saturating_sub(200)..said.len().min(at + 40)]));
    }
}
