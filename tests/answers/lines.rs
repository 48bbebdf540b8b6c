//! What the real program writes of its own answers, and how its rules change while it runs.

use serde_json::json;

use crate::{
    asking::{Fields, bytes, outcome, with},
    support::{
        Answer, Server, answer,
        binary::Binary,
        control_plane::{ControlPlane, Step},
        count, eventually, get, nodes_at, send,
    },
};

async fn ask(proxy: &Binary, line: (&str, u16, &str, &str), fields: Fields<'_>) -> Answer {
    send(proxy.address, with(line, fields).body(bytes("")).expect("a request")).await
}

#[tokio::test]
async fn each_of_its_own_answers_has_its_line_and_its_count_and_no_token() {
    let control = ControlPlane::start().await;
    let node = Server::start(async |_| answer(200, "hello")).await;
    let config = format!("{}log.filter = \"debug\"\nwake.ignore_paths = [\"/kept\"]\n", nodes_at(node.address.port()));
    let mut proxy = Binary::start(&control.config(&config)).await;
    control.sandbox("abc").paused("127.0.0.1");
    let network = json!({ "allowPublicTraffic": false });
    control.sandbox("private").paused("127.0.0.1").set("/network", network).set("/trafficAccessToken", json!("t0ken"));
    let tokens: Fields<'_> = &[("e2b-traffic-access-token", "wrong-t0ken"), ("x-access-token", "envd-t0ken")];
    let site = ("origin", "https://app.example.test");
    let mut read = String::new();
    for (line, fields, status, error, own_status) in [
        (("GET", 8000, "abc", "/kept?key=query-t0ken"), &[][..], 502, "sandbox_not_found", 502),
        (("GET", 8000, "abc", "/"), &[("x-sandbox-wake", "never")], 502, "sandbox_not_found", 502),
        (("GET", 8000, "private", "/"), &[("sec-fetch-mode", "navigate")], 403, "traffic_token_invalid", 403),
        (("POST", 8000, "private", "/"), &[("content-type", "application/grpc")], 200, "traffic_token_invalid", 403),
        (("POST", 49983, "none", "/"), &[("content-type", "application/connect+json")], 200, "sandbox_not_found", 502),
        (("OPTIONS", 8000, "private", "/"), &[site, ("access-control-request-method", "GET")], 204, "", 204),
        (("GET", 0, "abc", "/"), &[("accept", "text/html")], 400, "invalid_port", 400),
    ] {
        let sent = [fields, tokens].concat();
        let answer = ask(&proxy, line, &sent).await;
        assert_eq!(answer.status.as_u16(), status, "{answer:?}");
        let written = proxy.access_line().await;
        for (field, value) in [
            ("status", json!(status)),
            ("error", json!(error)),
            ("origin", json!("proxy")),
            ("method", json!(line.0)),
            ("path", json!(line.3.split('?').next())),
            ("bytes", json!(answer.body.len())),
            ("ended_by", json!("")),
            ("request_id", json!(answer.header("x-request-id"))),
        ] {
            assert_eq!(written[field], value, "{field} of {line:?} in {written}");
        }
        let name = format!("client_proxy_requests_total{{origin=\"proxy\",status=\"{status}\",error=\"{error}\"}}");
        assert!(count(proxy.health, &name).await >= 1, "{name} ({own_status})");
        read.extend([format!("{:?}", answer.headers), answer.text()]);
    }
    for page in ["/sandboxes/abc", "/sandboxes/private", "/config", "/wake", "/metrics"] {
        read += &get(proxy.admin, page).await.text();
    }
    read += &proxy.last_words().await;
    let leaked = read.lines().find(|line| line.contains("t0ken"));
    assert_eq!(leaked, None);
}

/// A key, the line that sets it, a request that it concerns (method, port, path; fields), and its status then.
type Case = (&'static str, &'static str, (&'static str, u16, &'static str), Fields<'static>, u16);

#[tokio::test]
async fn the_rules_change_at_sighup() {
    let control = ControlPlane::start().await;
    let node = Server::start(async |_| answer(200, "hello")).await;
    let quick = "cache.negative_ttl = \"1ms\"\n";
    let config = |rules: &str| control.config(&format!("{}{quick}{rules}", nodes_at(node.address.port())));
    let proxy = Binary::start(&config("")).await;
    let preflight: Fields<'static> =
        &[("origin", "https://app.example.test"), ("access-control-request-method", "GET")];
    let cases: [Case; 5] = [
        ("wake.health_probe", "wake.health_probe = false", ("GET", 49983, "/health"), &[], 502),
        ("wake.ignore_paths", "wake.ignore_paths = [\"/a\"]", ("GET", 8000, "/a"), &[], 502),
        (
            "wake.ignore_user_agents",
            "wake.ignore_user_agents = [\"Bot\"]",
            ("GET", 8000, "/"),
            &[("user-agent", "bot")],
            502,
        ),
        ("wake.answer_preflight", "wake.answer_preflight = false", ("OPTIONS", 8000, "/"), preflight, 204),
        ("wake.max_per_client_per_minute", "wake.max_per_client_per_minute = 1", ("GET", 8000, "/"), &[], 429),
    ];
    let mut before = "";
    for (at, (key, rule, (method, port, path), fields, kept)) in cases.into_iter().enumerate() {
        // Without the rule it wakes, with the rule it does not; the preflight the other way round.
        let preflights = method == "OPTIONS";
        let ask_with = async |id: String, wakes: bool| {
            let sandbox = control.sandbox(&id);
            sandbox.paused("127.0.0.1").wakes(wakes.then_some(Step::Truly));
            let answer = ask(&proxy, (method, port, &id, path), fields).await;
            assert_eq!(answer.status.as_u16(), if wakes { 200 } else { kept }, "{key}: {:?}", outcome(&answer));
        };
        ask_with(format!("before{at}"), !preflights).await;
        let told = proxy.reload(&config(rule)).await;
        let changed = told["changed"].as_str().expect("keys");
        assert!(changed.contains(key) && (before.is_empty() || changed.contains(before)), "{told}");
        if kept == 429 {
            ask_with(format!("counts{at}"), true).await;
        }
        ask_with(format!("after{at}"), preflights).await;
        before = key;
    }
    proxy.reload(&config("wake.page_after = \"50ms\"")).await;
    let gate = crate::support::control_plane::Gate::closed();
    control.sandbox("paged").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let page = ask(&proxy, ("GET", 8000, "paged", "/"), &[("sec-fetch-mode", "navigate")]).await;
    assert_eq!(outcome(&page), (503, "waking"));
    gate.open();
    eventually("it runs", async || ask(&proxy, ("GET", 8000, "paged", "/"), &[]).await.status == 200).await;
}
