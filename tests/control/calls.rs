//! Calls as they are on the wire: where they go, how they break, when they end, what they give away.

use std::time::Duration;

use client_proxy::sandbox::ports::{Catalog as _, Resumer as _, WakeError};

use super::{
    CONNECT, GET, KEY, RUNNING, catalog_at, id, locate, open, resume, resumer_at, running,
    scripted_http::{ScriptedHttp, Step},
    wake,
};

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
