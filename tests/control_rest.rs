//! The REST adapters against a scripted control plane on real sockets.

#[path = "support/scripted_http.rs"]
mod scripted_http;

use std::{collections::BTreeMap, time::Duration};

use client_proxy::{
    config,
    control::{AnyCatalog, AnyResumer, RestCatalog, RestResumer, SetupError, install_tls_provider},
    sandbox::ports::{Catalog as _, Located, Resumer as _, Sleep, Wake, WakeError},
    types::{Access, Credentials, Denial, Node, Placement, Port, Reason, SandboxId, Secret},
};
use scripted_http::{ScriptedHttp, Step};

const KEY: &str = "e2b_0123456789abcdef";
const GET: &str = "GET /sandboxes/abc";
const CONNECT: &str = "POST /sandboxes/abc/connect";
const RUNNING: &str = r#"{"sandboxID":"abc","state":"running","nodeIP":" 10.0.0.5 ",
    "startedAt":"2026-08-01T00:00:00Z","envdAccessToken":"envd-secret","trafficAccessToken":null}"#;
const PAUSED: &str = r#"{"sandboxID":"abc","state":"paused","lifecycle":{"autoResume":true},
    "envdAccessToken":"envd-secret"}"#;

fn id() -> SandboxId {
    SandboxId::new("abc").expect("an id")
}

fn url(text: &str) -> reqwest::Url {
    text.parse().expect("a URL")
}

fn catalog_at(text: &str) -> RestCatalog {
    install_tls_provider();
    RestCatalog::new(&config::RestCatalog {
        url: url(text),
        api_key: Secret::new(KEY),
        timeout: Duration::from_secs(5),
        node_pointer: "/nodeIP".into(),
    })
    .expect("a catalog")
}

fn resumer_at(text: &str) -> RestResumer {
    install_tls_provider();
    RestResumer::new(&config::RestResume {
        url: url(text),
        api_key: Secret::new(KEY),
        sandbox_timeout: Duration::from_mins(10),
        node_pointer: "/nodeIP".into(),
    })
    .expect("a resumer")
}

/// Asks a catalog once; the control plane plays this one step.
async fn locate(step: Step) -> Result<Located, String> {
    let server = ScriptedHttp::start([step]).await;
    let catalog = catalog_at(&format!("http://{}", server.address()));
    let located = catalog.locate(&id()).await;
    located.map_err(|error| error.to_string())
}

async fn detail(body: &str) -> Result<Located, String> {
    locate(Step::on(GET).json(200, body)).await
}

fn wake(sleep: impl Into<Option<Sleep>>, port: u16, traffic: Option<&str>, access: Option<&str>) -> Wake {
    Wake {
        id: id(),
        credentials: Credentials {
            port: Port::new(port).expect("a port"),
            traffic_token: traffic.map(Secret::new),
            access_token: access.map(Secret::new),
        },
        sleep: sleep.into(),
    }
}

/// A sleep that anybody may end.
fn open() -> Sleep {
    Sleep { barred: None, access: Some(Access::default()) }
}

async fn resume(steps: Vec<Step>, wake: Wake) -> Result<Placement, WakeError> {
    let server = ScriptedHttp::start(steps).await;
    let resumer = resumer_at(&format!("http://{}", server.address()));
    resumer.resume(&wake).await
}

fn running(located: Result<Located, String>) -> Placement {
    match located {
        Ok(Located::Running(placement)) => placement,
        other => panic!("running expected, {other:?} came"),
    }
}

fn asleep(located: Result<Located, String>) -> Sleep {
    match located {
        Ok(Located::Asleep(sleep)) => sleep,
        other => panic!("asleep expected, {other:?} came"),
    }
}

/// Node, execution, envd token, private, traffic token.
fn facts(placement: &Placement) -> (Option<&str>, Option<&str>, Option<String>, bool, Option<String>) {
    let access = placement.access.as_ref().expect("locks are told");
    let text = |token: &Option<Secret>| {
        let token = token.as_ref()?;
        Some(String::from_utf8_lossy(token.expose()).into_owned())
    };
    (
        placement.node.as_ref().map(Node::as_str),
        placement.execution.as_deref(),
        text(&access.envd_token),
        access.private,
        text(&access.traffic_token),
    )
}

#[tokio::test]
async fn a_running_sandbox_has_a_place_a_run_and_locks() {
    let step = Step::on(GET).header("x-api-key", KEY).json(200, RUNNING);
    let placement = running(locate(step).await);
    let envd = Some("envd-secret".to_owned());
    let start = Some("2026-08-01T00:00:00Z");
    assert_eq!(facts(&placement), (Some("10.0.0.5"), start, envd, false, None));

    let body = r#"{"sandboxID":"abc","state":"running","nodeIP":"fd00::1","envdAccessToken":"",
        "network":{"allowPublicTraffic":false},"trafficAccessToken":"t"}"#;
    let placement = running(detail(body).await);
    let traffic = Some("t".to_owned());
    assert_eq!(facts(&placement), (Some("[fd00::1]"), None, None, true, traffic));
}

#[tokio::test]
async fn a_missing_node_is_no_fault_but_a_wrong_one_is() {
    for node in ["", r#","nodeIP":null"#, r#","nodeIP":"""#, r#","nodeIP":"  ""#] {
        let body = format!(r#"{{"sandboxID":"abc","state":"running"{node}}}"#);
        assert_eq!(running(detail(&body).await).node, None, "{node}");
    }
    for node in [r#""no host""#, r#""10.0.0.256""#, r#""user@10.0.0.5""#, "5", "{}"] {
        let body = format!(r#"{{"sandboxID":"abc","state":"running","nodeIP":{node}}}"#);
        assert!(detail(&body).await.is_err(), "{node}");
    }
}

#[tokio::test]
async fn only_a_plain_yes_allows_traffic_to_wake() {
    for (lifecycle, barred) in [
        (r#","lifecycle":{"autoResume":true}"#, None),
        (r#","lifecycle":{"autoResume":false}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":{"autoResume":null}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":{"autoResume":"any"}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":{"autoResume":1}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":{}"#, Some(Reason::AutoResumeOff)),
        (r#","lifecycle":null"#, Some(Reason::AutoResumeOff)),
        ("", Some(Reason::AutoResumeOff)),
    ] {
        let body =
            format!(r#"{{"sandboxID":"abc","state":"paused","network":{{"allowPublicTraffic":false}}{lifecycle}}}"#);
        let sleep = asleep(detail(&body).await);
        assert_eq!(sleep.barred, barred, "{lifecycle}");
        assert!(sleep.access.expect("locks are told").private);
    }
}

#[tokio::test]
async fn not_found_is_final_and_has_a_reason() {
    for (body, want) in [
        (r#"{"code":404,"message":"x","error_code":"killed"}"#, Reason::Killed),
        (r#"{"error_code":"expired"}"#, Reason::Expired),
        (r#"{"error_code":"filesystem_only"}"#, Reason::FilesystemOnly),
        (r#"{"error_code":"auto_resume_off"}"#, Reason::AutoResumeOff),
        (r#"{"error_code":"new_word"}"#, Reason::Unknown),
        (r#"{"error_code":5}"#, Reason::Unknown),
        (r#"{"code":404,"message":"x"}"#, Reason::Unknown),
        ("<html>", Reason::Unknown),
        ("", Reason::Unknown),
    ] {
        let located = locate(Step::on(GET).json(404, body)).await;
        assert!(matches!(located, Ok(Located::Gone(reason)) if reason == want), "{body}");
        let outcome = resume(vec![Step::on(CONNECT).json(404, body)], wake(open(), 80, None, None));
        let outcome = outcome.await;
        assert!(matches!(outcome, Err(WakeError::Gone(reason)) if reason == want), "{body}");
    }
}

#[tokio::test]
async fn nonsense_is_a_fault_and_never_not_found() {
    for body in [
        "",
        "garbage",
        "null",
        "[]",
        "\"running\"",
        "{}",
        r#"{"sandboxID":"abc"}"#,
        r#"{"sandboxID":"abc","state":null}"#,
        r#"{"sandboxID":"abc","state":"pausing"}"#,
        r#"{"sandboxID":"abc","state":"Running"}"#,
        r#"{"sandboxID":"other","state":"running"}"#,
        r#"{"sandboxID":5,"state":"running"}"#,
        r#"{"sandboxID":"abc","state":"running","envdAccessToken":5}"#,
        r#"{"sandboxID":"abc","state":"running","network":{"allowPublicTraffic":"false"}}"#,
        r#"{"sandboxID":"abc","state":"running"} trailing"#,
        r#"{"sandboxID":"abc","state":"running""#,
        &"[".repeat(100_000),
        &format!(r#"{{"state":"running","startedAt":"{}"}}"#, "x".repeat(5000)),
    ] {
        let start = &body[..body.len().min(80)];
        let fault = detail(body).await.expect_err(start);
        assert!(fault.contains("GET /sandboxes/abc: "), "{fault}");
        assert!(fault.len() < 300, "{fault}");
    }
}

#[tokio::test]
async fn other_statuses_are_faults() {
    for status in [204, 206, 301, 302, 307, 400, 401, 403, 409, 410, 429, 500, 502, 503, 504] {
        let fault = locate(Step::on(GET).json(status, RUNNING)).await;
        let fault = fault.expect_err("no success");
        assert!(fault.contains(&format!("status {status}")), "{fault}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = ScriptedHttp::start([]).await;
    let location = format!("http://{}/sandboxes/abc", other.address());
    for status in [301, 302, 303, 307, 308] {
        let head = format!("HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        assert!(locate(Step::on(GET).raw(head.clone())).await.is_err());
        let outcome = resume(vec![Step::on(CONNECT).raw(head)], wake(open(), 80, None, None)).await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn broken_http_is_a_fault() {
    for bytes in [
        "",
        "garbage\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"state\":\"running\"}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}",
        "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
    ] {
        let fault = locate(Step::on(GET).raw(bytes)).await;
        assert!(fault.is_err(), "{bytes:?}: {fault:?}");
        let outcome = resume(vec![Step::on(CONNECT).raw(bytes)], wake(open(), 80, None, None)).await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn the_body_counts_not_how_it_is_sent() {
    running(locate(Step::on(GET).chunked(200, RUNNING)).await);
    for content_type in ["text/html", "", "application/json; charset=utf-16", "image/png"] {
        running(locate(Step::on(GET).reply_as(200, content_type, RUNNING)).await);
    }
    let close = format!("HTTP/1.1 200 OK\r\n\r\n{RUNNING}");
    running(locate(Step::on(GET).raw(close)).await);
}

#[tokio::test]
async fn endless_answers_are_cut() {
    let server = ScriptedHttp::start([Step::on(GET).endless(), Step::on(CONNECT).endless()]).await;
    let base = format!("http://{}", server.address());
    let calls = async {
        let fault = catalog_at(&base).locate(&id()).await.expect_err("no bound");
        assert!(fault.to_string().contains("longer than"), "{fault}");
        server.peer_left().await;
        let outcome = resumer_at(&base).resume(&wake(open(), 80, None, None)).await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
        server.peer_left().await;
    };
    let limit = Duration::from_secs(10);
    tokio::time::timeout(limit, calls).await.expect("cut long before");
}

#[tokio::test]
async fn dropping_a_call_hangs_up() {
    let server = ScriptedHttp::start([Step::on(GET).hang(), Step::on(CONNECT).hang()]).await;
    let base = format!("http://{}", server.address());
    let limit = Duration::from_millis(100);
    let catalog = catalog_at(&base);
    assert!(tokio::time::timeout(limit, catalog.locate(&id())).await.is_err());
    server.peer_left().await;
    let (resumer, wake) = (resumer_at(&base), wake(open(), 80, None, None));
    assert!(tokio::time::timeout(limit, resumer.resume(&wake)).await.is_err());
    server.peer_left().await;
}

#[tokio::test]
async fn a_base_url_keeps_its_path() {
    for path in ["", "/", "/api", "/api/", "/api/v1/#fragment"] {
        let below = path.trim_end_matches("#fragment").trim_end_matches('/');
        let step = Step::on(&format!("GET {below}/sandboxes/abc")).json(200, RUNNING);
        let server = ScriptedHttp::start([step]).await;
        let catalog = catalog_at(&format!("http://{}{path}", server.address()));
        assert!(catalog.locate(&id()).await.is_ok(), "{path}");
    }
}

#[tokio::test]
async fn unfit_settings_are_told_apart() {
    install_tls_provider();
    let make = |text, key| {
        RestCatalog::new(&config::RestCatalog {
            url: url(text),
            api_key: Secret::new(key),
            timeout: Duration::from_secs(1),
            node_pointer: "/nodeIP".into(),
        })
    };
    assert!(matches!(make("mailto:a@b", KEY), Err(SetupError::Url)));
    assert!(matches!(make("ftp://host/", KEY), Err(SetupError::Url)));
    let error = make("http://host/", "secret\nkey").expect_err("not a header");
    assert!(matches!(error, SetupError::ApiKey));
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[tokio::test]
async fn a_wake_is_marked_and_tells_where_the_sandbox_runs() {
    let connected = r#"{"sandboxID":"abc","templateID":"base","clientID":"c","envdVersion":"0.6.7",
        "nodeIP":"10.0.0.6","startedAt":"later","trafficAccessToken":"new"}"#;
    for status in [200, 201] {
        let step = Step::on(CONNECT)
            .header("x-api-key", KEY)
            .header("x-client-proxy-wake", "1")
            .header("content-type", "application/json")
            .body(r#"{"timeout":600}"#)
            .json(status, connected);
        let locks =
            Access { envd_token: Some(Secret::new("e")), private: true, traffic_token: Some(Secret::new("old")) };
        let sleep = Some(Sleep { barred: None, access: Some(locks) });
        let placement = resume(vec![step], wake(sleep, 80, Some("old"), None)).await;
        let placement = placement.expect("woken");
        let (envd, traffic) = (Some("e".to_owned()), Some("new".to_owned()));
        assert_eq!(facts(&placement), (Some("10.0.0.6"), Some("later"), envd, true, traffic));
    }
}

#[tokio::test]
async fn what_the_connect_answer_lacks_is_looked_up_once() {
    let bare = r#"{"sandboxID":"abc","templateID":"base","clientID":"c","envdVersion":"0.6.7"}"#;
    let placed = r#"{"sandboxID":"abc","nodeIP":"10.0.0.6"}"#;
    let nowhere = r#"{"sandboxID":"abc","state":"running","startedAt":"later"}"#;
    let steps = |answer: &str, then: Step| vec![Step::on(CONNECT).json(201, answer), then];
    let asked = || wake(open(), 80, None, None);

    let placement = resume(steps(bare, Step::on(GET).json(200, RUNNING)), asked()).await;
    let placement = placement.expect("woken");
    let envd = Some("envd-secret".to_owned());
    let start = Some("2026-08-01T00:00:00Z");
    assert_eq!(facts(&placement), (Some("10.0.0.5"), start, envd, false, None));

    // What was asked last is newest.
    let placement = resume(steps(placed, Step::on(GET).json(200, RUNNING)), asked()).await;
    let placement = placement.expect("woken");
    assert_eq!(facts(&placement).0, Some("10.0.0.5"));

    // Nobody names a node: an address without {node} can do without.
    let placement = resume(steps(bare, Step::on(GET).json(200, nowhere)), asked()).await;
    assert_eq!(placement.expect("woken").node, None);

    // The place is known; no failure of the second look takes that away.
    for then in [
        Step::on(GET).json(500, "{}"),
        Step::on(GET).json(200, "garbage"),
        Step::on(GET).json(200, PAUSED),
        Step::on(GET).raw(""),
    ] {
        let placement = resume(steps(placed, then), asked()).await.expect("woken");
        assert_eq!(facts(&placement), (Some("10.0.0.6"), None, None, false, None));
    }

    for then in [
        Step::on(GET).json(500, "{}"),
        Step::on(GET).json(200, PAUSED),
        Step::on(GET).json(200, r#"{"sandboxID":"other","state":"running"}"#),
    ] {
        let outcome = resume(steps(bare, then), asked()).await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    }
    let killed = Step::on(GET).json(404, r#"{"error_code":"killed"}"#);
    let outcome = resume(steps(placed, killed), asked()).await;
    assert!(matches!(outcome, Err(WakeError::Gone(Reason::Killed))), "{outcome:?}");
}

#[tokio::test]
async fn refusals_of_a_wake_are_told_apart() {
    let message = "x".repeat(600);
    for (status, body, want) in [
        (403, "{}".to_owned(), "Denied(Denied)"),
        (409, "{}".to_owned(), "Transitioning"),
        (429, r#"{"code":429,"message":"too\tmany"}"#.to_owned(), r#"Exhausted("toomany")"#),
        (429, format!(r#"{{"message":"{message}"}}"#), &format!("Exhausted({:?})", &message[..500])),
        (429, format!(r#"{{"message":"bad {KEY}"}}"#), r#"Exhausted("bad ***")"#),
        (429, "<html>".to_owned(), r#"Exhausted("too many sandboxes are running")"#),
        (429, r#"{"message":"\n"}"#.to_owned(), r#"Exhausted("too many sandboxes are running")"#),
    ] {
        let outcome = resume(vec![Step::on(CONNECT).json(status, &body)], wake(open(), 80, None, None));
        let error = outcome.await.expect_err("no success");
        assert_eq!(format!("{error:?}"), want, "{status} {body}");
    }
    for status in [202, 204, 302, 400, 401, 410, 422, 500, 502, 503, 504] {
        let step = Step::on(CONNECT).json(status, r#"{"sandboxID":"abc","nodeIP":"10.0.0.5"}"#);
        let error = resume(vec![step], wake(open(), 80, None, None)).await;
        let error = error.expect_err("no success");
        let WakeError::Unavailable(text) = &error else {
            panic!("{status}: {error:?}");
        };
        assert!(text.contains(&format!("status {status}")), "{text}");
    }
    for body in ["", "garbage", "[]", r#"{"sandboxID":"other","nodeIP":"10.0.0.5"}"#, r#"{"nodeIP":5}"#] {
        let outcome = resume(vec![Step::on(CONNECT).json(201, body)], wake(open(), 80, None, None));
        let outcome = outcome.await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{body}: {outcome:?}");
    }
}

#[tokio::test]
async fn who_may_not_wake_causes_no_wake() {
    let locked = |barred| {
        Some(Sleep {
            barred,
            access: Some(Access {
                envd_token: Some(Secret::new("e")),
                private: true,
                traffic_token: Some(Secret::new("t")),
            }),
        })
    };
    let shut = Some(Sleep { barred: None, access: Some(Access { private: true, ..Access::default() }) });
    // No step: any request would fail the test.
    for (wake, want) in [
        (wake(locked(None), 80, None, None), Denial::TrafficTokenMissing),
        (wake(locked(None), 80, Some("x"), Some("e")), Denial::TrafficTokenInvalid),
        (wake(locked(None), 49983, Some("t"), None), Denial::Denied),
        (wake(locked(None), 49983, None, Some("x")), Denial::Denied),
        (wake(shut, 80, Some(""), None), Denial::TrafficTokenInvalid),
    ] {
        let outcome = resume(vec![], wake).await;
        assert!(matches!(outcome, Err(WakeError::Denied(denial)) if denial == want), "{outcome:?}");
    }
    for reason in [Reason::AutoResumeOff, Reason::FilesystemOnly] {
        let outcome = resume(vec![], wake(locked(Some(reason)), 80, Some("t"), None)).await;
        assert!(matches!(outcome, Err(WakeError::Gone(barred)) if barred == reason), "{outcome:?}");
    }
}

#[tokio::test]
async fn what_the_catalog_did_not_tell_is_asked_before_a_wake() {
    let untold = Sleep { barred: None, access: None };
    for sleep in [None, Some(untold)] {
        let asked = |access| wake(sleep.clone(), 49983, None, access);

        let placement = resume(vec![Step::on(GET).json(200, RUNNING)], asked(None)).await;
        assert_eq!(facts(&placement.expect("it runs")).0, Some("10.0.0.5"));

        let outcome = resume(vec![Step::on(GET).json(200, PAUSED)], asked(Some("wrong"))).await;
        assert!(matches!(outcome, Err(WakeError::Denied(Denial::Denied))), "{outcome:?}");

        let connected = r#"{"nodeIP":"10.0.0.6","startedAt":"later"}"#;
        let steps =
            vec![Step::on(GET).header("x-api-key", KEY).json(200, PAUSED), Step::on(CONNECT).json(201, connected)];
        let placement = resume(steps, asked(Some("envd-secret"))).await.expect("woken");
        let envd = Some("envd-secret".to_owned());
        assert_eq!(facts(&placement), (Some("10.0.0.6"), Some("later"), envd, false, None));

        let barred = r#"{"sandboxID":"abc","state":"paused"}"#;
        let outcome = resume(vec![Step::on(GET).json(200, barred)], asked(None)).await;
        assert!(matches!(outcome, Err(WakeError::Gone(Reason::AutoResumeOff))), "{outcome:?}");

        let expired = r#"{"error_code":"expired"}"#;
        let outcome = resume(vec![Step::on(GET).json(404, expired)], asked(None)).await;
        assert!(matches!(outcome, Err(WakeError::Gone(Reason::Expired))), "{outcome:?}");

        let outcome = resume(vec![Step::on(GET).json(503, "{}")], asked(None)).await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn no_secret_stands_in_an_error() {
    let secrets = [KEY, "hunter2", "envd-secret"];
    let echo = format!(r#"{{"sandboxID":"{KEY}","envdAccessToken":"envd-secret","message":"{KEY}"}}"#);
    let garbage = format!("HTTP/1.1 {KEY} envd-secret\r\n\r\n");
    let get = || Step::on(&format!("{GET}?key=hunter2"));
    let connect = || Step::on(&format!("{CONNECT}?key=hunter2"));
    let mut texts = Vec::new();
    for steps in [
        [get().json(401, &echo), connect().json(401, &echo)],
        [get().json(200, &echo), connect().json(200, &echo)],
        [get().json(200, KEY), connect().json(429, &echo)],
        [get().raw(garbage.clone()), connect().raw(garbage.clone())],
        [get().raw(""), connect().raw("")],
    ] {
        let server = ScriptedHttp::start(steps).await;
        let base = format!("http://user:hunter2@{}/?key=hunter2", server.address());
        let error = catalog_at(&base).locate(&id()).await.expect_err("a fault");
        texts.push(format!("{error} {error:?}"));
        let error = resumer_at(&base).resume(&wake(open(), 80, None, None)).await;
        let error = error.expect_err("a fault");
        texts.push(format!("{error} {error:?}"));
    }
    // Nobody listens any more.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let catalog = catalog_at(&format!("http://user:hunter2@{address}/?key=hunter2"));
    let error = catalog.locate(&id()).await.expect_err("a fault");
    texts.push(format!("{error} {error:?} {catalog:?}"));
    for text in texts {
        for secret in secrets {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[tokio::test]
async fn the_configuration_chooses_the_adapter() {
    install_tls_provider();
    let node = Node::new("10.0.0.5").expect("a node");
    let fixed = config::Catalog::Static(BTreeMap::from([(id(), node)]));
    let catalog = AnyCatalog::new(&fixed).expect("a catalog");
    assert!(matches!(catalog.locate(&id()).await, Ok(Located::Running(_))));

    let server = ScriptedHttp::start([Step::on(GET).json(200, PAUSED), Step::on(CONNECT).json(409, "{}")]).await;
    let base = url(&format!("http://{}", server.address()));
    let rest = config::Catalog::Rest(config::RestCatalog {
        url: base.clone(),
        api_key: Secret::new(KEY),
        timeout: Duration::from_secs(5),
        node_pointer: "/nodeIP".into(),
    });
    let catalog = AnyCatalog::new(&rest).expect("a catalog");
    assert!(matches!(catalog.locate(&id()).await, Ok(Located::Asleep(_))));

    let mut settings = config::Resume {
        rest: None,
        hold_timeout: Duration::from_secs(50),
        call_timeout: Duration::from_mins(2),
        max_held: 10,
        max_held_per_sandbox: 10,
    };
    assert!(matches!(AnyResumer::new(&settings), Ok(AnyResumer::None)));
    settings.rest = Some(config::RestResume {
        url: base,
        api_key: Secret::new(KEY),
        sandbox_timeout: Duration::from_mins(5),
        node_pointer: "/nodeIP".into(),
    });
    let resumer = AnyResumer::new(&settings).expect("a resumer");
    let outcome = resumer.resume(&wake(open(), 80, None, None)).await;
    assert!(matches!(outcome, Err(WakeError::Transitioning)), "{outcome:?}");
}
