//! What the real program writes and shows of requests that were held: who woke what, and no secret.

use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::{
    self, REMEMBER, Raw, Server, answer,
    binary::Binary,
    control_plane::{ControlPlane, Gate, KEY, Step},
    count, eventually, get, nodes_at, request, send,
    wire::node_mode,
};

const SECRETS: [&str; 5] = [KEY, "envd-t0ken", "traffic-t0ken", "wrong-t0ken", "query-t0ken"];

/// The lines of one kind.
fn lines(proxy: &Binary, target: &str) -> Vec<Value> {
    proxy.log().into_iter().filter(|line| line["target"] == target).collect()
}

#[tokio::test]
async fn a_wake_and_those_who_waited_leave_their_lines_and_no_secret() {
    let control = ControlPlane::start().await;
    let node = Server::start(async |_| answer(200, "hello")).await;
    let config = format!("{}{REMEMBER}log.filter = \"debug\"\n", nodes_at(node.address.port()));
    let proxy = Binary::start(&control.config(&config)).await;
    let gate = Gate::closed();
    let sandbox = control.sandbox("abc");
    sandbox
        .paused("127.0.0.1")
        .set("/envdAccessToken", json!("envd-t0ken"))
        .set("/trafficAccessToken", json!("traffic-t0ken"))
        .set("/network", json!({ "allowPublicTraffic": false }))
        .wakes([Step::Truly.after(&gate)]);
    let ask = async |path: &str, token: &str| {
        let request = request("POST", 8000, "abc", path)
            .header("user-agent", "tester/1.0")
            .header("x-request-id", "r-1")
            .header("e2b-traffic-access-token", token)
            .header("x-access-token", "envd-t0ken")
            .body(Full::from("body"));
        send(proxy.address, request.expect("a request")).await
    };
    let wrong = ask("/wrong?key=query-t0ken", "wrong-t0ken").await;
    assert_eq!((wrong.status.as_u16(), wrong.error()), (403, "traffic_token_invalid".into()));
    let opened = async {
        eventually("it is held", async || count(proxy.health, "client_proxy_held_requests").await == 1).await;
        sandbox.connects_become(1).await;
        let view = get(proxy.admin, "/sandboxes/abc").await;
        assert_eq!((&view.json()["state"], &view.json()["held"]), (&json!("resuming"), &json!(1)));
        gate.open();
        view.text()
    };
    let (woken, view) = tokio::join!(ask("/a/path?key=query-t0ken", "traffic-t0ken"), opened);
    assert_eq!(woken.status, 200);
    // One sandbox refused, one unknown, one control plane that fails: their lines are read, too.
    control.sandbox("full").paused("127.0.0.1").wakes([Step::error(429, &format!("limit for {KEY}"))]);
    control.sandbox("bad").looks_up([Step::Tells(500, json!({ "message": KEY, "envdAccessToken": "envd-t0ken" }))]);
    let mut answers = vec![wrong.text(), view];
    for id in ["full", "unknown", "bad"] {
        answers.push(proxy_get(&proxy, id).await);
    }

    eventually("all is written", async || lines(&proxy, "access").len() == 5).await;
    let wake = lines(&proxy, "wake");
    let find = |outcome: &str| wake.iter().find(|line| line["outcome"] == outcome).expect("a line for each wake");
    let line = find("ok");
    for (field, value) in [
        ("sandbox", json!("abc")),
        ("port", json!(8000)),
        ("client", json!("127.0.0.1")),
        ("user_agent", json!("tester/1.0")),
        ("path", json!("/a/path")),
        ("held", json!(1)),
    ] {
        assert_eq!(line[field], value, "{field} in {line}");
    }
    assert!(line["milliseconds"].is_u64(), "{line}");
    assert_eq!((find("exhausted")["sandbox"].as_str(), wake.len()), (Some("full"), 2));

    let access = lines(&proxy, "access");
    let line = access.iter().find(|line| line["path"] == "/a/path").expect("a line for each request");
    for (field, value) in [
        ("request_id", json!("r-1")),
        ("client", json!("127.0.0.1")),
        ("sandbox", json!("abc")),
        ("port", json!(8000)),
        ("method", json!("POST")),
        ("status", json!(200)),
        ("origin", json!("sandbox")),
        ("error", json!("")),
        ("bytes", json!(5)),
        ("ended_by", json!("")),
    ] {
        assert_eq!(line[field], value, "{field} in {line}");
    }
    for field in ["held_ms", "head_ms", "total_ms"] {
        assert!(line[field].is_u64(), "{field} in {line}");
    }
    assert!(line["held_ms"].as_u64() <= line["total_ms"].as_u64(), "{line}");
    let who_made_it = access.iter().find(|line| line["sandbox"] == "unknown").expect("a line for each request");
    assert_eq!((&who_made_it["origin"], &who_made_it["error"]), (&json!("proxy"), &json!("sandbox_not_found")));

    let pages = ["/sandboxes/abc", "/sandboxes/full", "/sandboxes/bad", "/metrics", "/healthz/ready"];
    for (address, path) in pages.into_iter().flat_map(|path| [(proxy.admin, path), (proxy.health, path)]) {
        answers.push(get(address, path).await.text());
    }
    answers.push(proxy.stderr());
    for text in answers {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

async fn proxy_get(proxy: &Binary, sandbox: &str) -> String {
    let request = request("GET", 8000, sandbox, "/").header("x-access-token", "wrong-t0ken").body(Full::default());
    let answer = send(proxy.address, request.expect("a request")).await;
    format!("{:?} {}", answer.headers, answer.text())
}

#[tokio::test]
async fn a_client_that_left_is_a_line_and_no_error() {
    let control = ControlPlane::start().await;
    // Few enough for any machine's descriptors, and for each other: no warning at the start.
    let config =
        format!("server.max_connections = 100\nresume.max_held = 100\nresume.max_held_per_sandbox = 100\n{REMEMBER}");
    let proxy = Binary::start(&control.config(&config)).await;
    let gate = Gate::closed();
    control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let mut client = Raw::connect(proxy.address).await;
    client.write("GET /gone HTTP/1.1\r\nhost: 8000-abc.example.test\r\n\r\n").await;
    control.sandbox("abc").connects_become(1).await;
    drop(client);
    eventually("its line is written", async || lines(&proxy, "access").len() == 1).await;
    let line = &lines(&proxy, "access")[0];
    assert_eq!(
        (&line["path"], &line["status"], &line["error"], &line["ended_by"]),
        (&json!("/gone"), &json!(499), &json!("client_closed"), &json!("client"))
    );
    gate.open();
    eventually("the wake's line is written", async || lines(&proxy, "wake").len() == 1).await;
    assert_eq!((&lines(&proxy, "wake")[0]["outcome"], &lines(&proxy, "wake")[0]["held"]), (&json!("ok"), &json!(0)));
    let loud: Vec<_> =
        proxy.log().into_iter().filter(|line| ["WARN", "ERROR"].map(Value::from).contains(&line["level"])).collect();
    assert!(loud.is_empty(), "{loud:#?}");
}

#[tokio::test]
async fn a_long_path_is_cut_in_the_access_line() {
    let node = Server::start(async |_| answer(200, "hello")).await;
    let config = support::wire::node_mode(node.address, "");
    let mut proxy = Binary::start(&config).await;
    // The cut is not in the middle of a letter.
    for path in ["/".to_owned() + &"x".repeat(5000), "/".to_owned() + &"\u{e9}".repeat(1000), "/short".into()] {
        let mut client = Raw::connect(proxy.address).await;
        client.write(support::wire::get(&path)).await;
        client.message().await;
        let line = proxy.access_line().await;
        let told = line["path"].as_str().expect("a path");
        assert!(path.starts_with(told) && told.len() >= path.len().min(1023) && told.len() <= 1024, "{told}");
    }
}

#[tokio::test]
async fn a_request_id_is_the_same_wherever_it_is_told() {
    let node = Server::start(async |request| answer(200, request.headers()["x-request-id"].as_bytes().to_vec())).await;
    let mut proxy = Binary::start(&node_mode(node.address, "")).await;
    let long = "a".repeat(129);
    for (given, kept) in [
        ("mine-1/2:3", true),
        (&long[1..], true),
        ("", false),
        ("a b", false),
        ("a\tb", false),
        ("\u{e4}", false),
        (&long, false),
    ] {
        for host in ["8000-abc", "8000-nobody"] {
            let mut client = Raw::connect(proxy.address).await;
            client.write(format!("GET / HTTP/1.1\r\nHost: {host}.example.test\r\nX-Request-Id: {given}\r\n\r\n")).await;
            let answer = client.message().await;
            // Upstream and back, or in our own answer's head, which tells the same as its body.
            let told = if answer.head.status() == 200 {
                answer.text()
            } else {
                answer.refusal();
                answer.head.one("x-request-id").to_owned()
            };
            assert_eq!(told == given, kept, "{given:?} became {told:?}");
            assert!((1..=128).contains(&told.len()) && told.bytes().all(|byte| byte.is_ascii_graphic()), "{told:?}");
            assert_eq!(proxy.access_line().await["request_id"], told, "{given:?}");
        }
    }
}
