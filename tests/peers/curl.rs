//! curl, by every version of HTTP and TLS that it speaks.

use std::io::Write as _;

use tempfile::NamedTempFile;

use crate::{
    Stage, counting,
    support::{
        Proxy,
        control_plane::{ControlPlane, Gate, Step},
        get, nodes_at,
        wire::{HOST, Node},
    },
    tls::door,
    tools::{Running, run},
};

/// Its arguments: for the sandbox of these tests at this port, `more` before the URL. After the body it
/// writes a line of version and status.
fn arguments(scheme: &str, port: u16, more: &[&str]) -> Vec<String> {
    let mut all = vec!["-q".to_owned(), "--silent".into(), "--show-error".into(), "--verbose".into()];
    all.extend(["--max-time".into(), "60".into(), "--resolve".into(), format!("{HOST}:{port}:127.0.0.1")]);
    all.extend(["--write-out".into(), "\\n%{http_version} %{response_code}".into()]);
    all.extend(more.iter().map(|&argument| argument.to_owned()));
    all.push(format!("{scheme}://{HOST}:{port}/"));
    all
}

fn start(proxy: &Proxy, more: &[&str]) -> Running {
    Running::start("curl", &arguments("http", proxy.address.port(), more))
}

fn file(length: usize) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(&vec![b'x'; length]).expect("a file that takes it");
    file
}

/// A body of 10 MB, and what it is called after `@`.
const LARGE: usize = 10_000_000;

#[tokio::test]
async fn curl_is_answered_by_every_version_that_it_speaks() {
    let stage = Stage::new("").await;
    let large = file(LARGE);
    let (at, name) = (format!("@{}", large.path().display()), large.path().display().to_string());
    let authority = stage.authority.path("a.pem").display().to_string();
    let sent = format!("POST {LARGE}");
    let put = format!("PUT {LARGE}");
    for (scheme, more, body, version, told) in [
        ("http", &["--http1.1"][..], "GET 0", "1.1 200", "< HTTP/1.1 200 OK"),
        ("http", &["--http1.0"], "GET 0", "1 200", "> GET / HTTP/1.0"),
        // Its offer to go on by HTTP/2 is not taken up: RFC 9113 has none any more.
        ("http", &["--http2"], "GET 0", "1.1 200", "> Upgrade: h2c"),
        ("http", &["--http2-prior-knowledge"], "GET 0", "2 200", "< HTTP/2 200"),
        ("http", &["--http2-prior-knowledge", "--data-binary", &at], &sent, "2 200", "< HTTP/2 200"),
        ("http", &["--http2-prior-knowledge", "--upload-file", &name], &put, "2 200", "< HTTP/2 200"),
        ("http", &["--http1.1", "--data-binary", &at], &sent, "1.1 200", "< HTTP/1.1 200 OK"),
        (
            "http",
            &["--header", "Transfer-Encoding: chunked", "--upload-file", &name],
            &put,
            "1.1 200",
            "< HTTP/1.1 100 Continue",
        ),
        ("https", &["--http1.1"], "GET 0", "1.1 200", "ALPN: server accepted http/1.1"),
        ("https", &["--no-alpn"], "GET 0", "1.1 200", "< HTTP/1.1 200 OK"),
        ("https", &["--http2"], "GET 0", "2 200", "ALPN: server accepted h2"),
        ("https", &["--http2", "--data-binary", &at], &sent, "2 200", "ALPN: server accepted h2"),
        ("https", &["--http2", "--upload-file", &name], &put, "2 200", "ALPN: server accepted h2"),
        ("https", &["--tlsv1.3"], "GET 0", "2 200", "SSL connection using TLSv1.3"),
        ("https", &["--tls-max", "1.2"], "GET 0", "2 200", "SSL connection using TLSv1.2"),
        ("https", &["--http2", "--head"], "", "2 200", "< HTTP/2 200"),
    ] {
        let port = if scheme == "https" { door(&stage.proxy).port() } else { stage.proxy.address.port() };
        let said = run("curl", &arguments(scheme, port, &[&["--cacert", &authority], more].concat())).await.well();
        let (last, rest) = said.out.rsplit_once('\n').map(|(rest, last)| (last, rest)).expect("a line");
        assert_eq!(last, version, "{more:?}: {said:#?}");
        assert!(rest.ends_with(body), "{more:?}: {said:#?}");
        assert!(said.err.contains(told), "{told:?} of {more:?}: {}", said.err);
        let seen = stage.node.seen.lock().expect("no panic").pop().expect("a request");
        for name in ["upgrade", "http2-settings"] {
            assert!(!seen.headers.contains_key(name), "{more:?}: {seen:?}");
        }
        assert_eq!(seen.headers.get("x-forwarded-proto").is_some(), scheme == "https", "{more:?}");
    }
    // What nobody should speak any more, and a certificate for someone else.
    let port = door(&stage.proxy).port();
    let old = ["--cacert", &authority, "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"];
    assert_eq!(run("curl", &arguments("https", port, &old)).await.code, Some(35));
    assert_eq!(run("curl", &arguments("https", port, &[])).await.code, Some(60), "it does not know the authority");
    stage.proxy.is_idle().await;
}

#[tokio::test]
async fn curl_reads_trailers() {
    let node = Node::start().await;
    let proxy = node.proxy();
    for more in [&["--http2-prior-knowledge"][..], &["--http1.1", "--header", "TE: trailers"]] {
        let curl = start(&proxy, &[more, &["--dump-header", "-"]].concat());
        let mut upstream = node.accept().await;
        upstream.head().await;
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
        upstream.write(format!("{head}2\r\nok\r\n0\r\nX-Sum: 42\r\n\r\n")).await;
        let said = curl.end().await.well();
        let (_, rest) = said.out.split_once("\r\n\r\n").expect("a head");
        assert!(rest.starts_with("ok") && rest.to_ascii_lowercase().contains("x-sum: 42\r\n"), "{said:#?}");
    }
}

#[tokio::test]
async fn curl_is_told_to_go_on_only_when_its_sandbox_is_awake() {
    let node = counting().await;
    let body = file(100_000);
    let at = format!("@{}", body.path().display());
    // By HTTP/2 nobody tells it to go on (hyper's server has no 1xx there): it does so by itself after a while,
    // and what it sends waits.
    for (version, patience, told) in
        [("--http1.1", "50", &["100", "200"][..]), ("--http2-prior-knowledge", "0.1", &["200"])]
    {
        let control = ControlPlane::start().await;
        let proxy = Proxy::start(&control.config(&nodes_at(node.address.port())));
        let (gate, sandbox) = (Gate::closed(), control.sandbox("abc"));
        sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
        let expect = ["--header", "Expect: 100-continue", "--expect100-timeout", patience];
        let curl = start(&proxy, &[&[version, "--data-binary", &at][..], &expect].concat());
        sandbox.connects_become(1).await;
        curl.writes("100-continue").await;
        // The process has since answered many others.
        for _ in 0..50 {
            get(proxy.health, "/healthz/live").await;
        }
        let (written, requests) = (curl.written(), node.requests());
        assert!(!written.contains("< HTTP"), "{written}");
        gate.open();
        let said = curl.end().await.well();
        let answers: Vec<_> = said.err.lines().filter(|line| line.starts_with("< HTTP/")).collect();
        let codes: Vec<_> = answers.iter().filter_map(|line| line.split(' ').nth(2)).collect();
        assert_eq!(codes, told, "{said:#?}");
        assert!(said.out.starts_with("POST 100000\n"), "{said:#?}");
        assert_eq!(node.requests(), requests + 1);
        proxy.is_idle().await;
    }
}

#[tokio::test]
async fn curl_is_named_by_a_proxy_header() {
    let lines = "server.proxy_protocol = \"optional\"\nserver.trusted_proxies = [\"127.0.0.1/32\"]";
    let stage = Stage::new(lines).await;
    let authority = stage.authority.path("a.pem").display().to_string();
    let doors = [("http", stage.proxy.address.port()), ("https", door(&stage.proxy).port())];
    for (scheme, port) in doors {
        for more in [&["--haproxy-protocol"][..], &[]] {
            let said = run("curl", &arguments(scheme, port, &[&["--cacert", &authority], more].concat())).await.well();
            assert!(said.out.starts_with("GET 0\n"), "{said:#?}");
            let seen = stage.node.seen.lock().expect("no panic").pop().expect("a request");
            assert_eq!(seen.headers["x-forwarded-for"], "127.0.0.1");
        }
        // Not from just anybody.
        let stranger = ["--cacert", &authority, "--haproxy-protocol", "--interface", "127.0.0.2"];
        let said = run("curl", &arguments(scheme, port, &stranger)).await;
        let refused = if scheme == "https" { said.code == Some(35) } else { said.out == "\n1.1 400" };
        assert!(refused, "{said:#?}");
    }
    assert!(stage.node.seen.lock().expect("no panic").is_empty());
    stage.proxy.is_idle().await;
}
