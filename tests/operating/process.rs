//! What keeps the process itself well: its log, its limits, its listeners, its signals, its end.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener},
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{
    Raw, Server, answer,
    binary::Binary,
    eventually, get, kinds, metric,
    wire::{HOST, Node, OK, get as head, node_mode},
};
use client_proxy::{
    app::App,
    config::{Config, Environment},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{io::AsyncReadExt as _, time::timeout};

#[tokio::test]
async fn a_log_that_nobody_reads_stops_neither_traffic_nor_the_end() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let mut proxy = Binary::start_unread(&node_mode(upstream.address, "shutdown.drain_delay = \"0s\"")).await;
    // More than 10 MB of access lines, a path is cut at 1 KiB; the queue takes 8, a pipe 64 KiB.
    let path = format!("/{}", "x".repeat(1_024));
    let mut client = Raw::connect(proxy.address).await;
    for _ in 0..8_000 {
        client.write(head(&path)).await;
        assert_eq!(client.message().await.head.status(), 200);
    }
    let dropped = "client_proxy_log_lines_dropped_total";
    assert!(metric(proxy.health, dropped).await > 0.0, "what does not fit is counted");
    drop(client);
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.end().await.code(), Some(0));
}

#[tokio::test]
async fn the_limit_on_open_files_is_raised_and_told() {
    for (setting, warns) in [("", true), ("server.max_connections = 50", false)] {
        let proxy = Binary::start_after("ulimit -Sn 256 && ulimit -Hn 1000", setting).await;
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", proxy.pid())).expect("its limits");
        let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
        assert_eq!(files.split_whitespace().nth(3), Some("1000"), "{files}");
        let told = proxy.line("effective limits").expect("a line");
        assert_eq!(told["descriptors"], "1000", "{told}");
        let warned = proxy.line("server.max_connections = 16384 is beyond the limit on open files");
        assert_eq!(warned.map(|line| line["level"].clone()), warns.then(|| "WARN".into()));
    }
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its files").count()
}

#[tokio::test]
async fn a_proxy_without_descriptors_does_not_blame_the_node() {
    let upstream = Server::start(async |_| answer(200, "hello")).await;
    let proxy = Binary::start_after("ulimit -Sn 64 && ulimit -Hn 64", &node_mode(upstream.address, "")).await;
    let request = head("/");
    let (first, rest) = request.split_at(10);
    let mut client = Raw::connect(proxy.address).await;
    client.write(first).await;
    let mut others = Vec::new();
    eventually("no descriptor is left", async || {
        others.push(Raw::connect(proxy.address).await);
        proxy.line("accept failed").is_some()
    })
    .await;
    client.write(rest).await;
    let answer = client.message().await;
    assert_eq!(answer.refusal(), (503, "node_unavailable".into()));
    assert!(answer.text().contains("no room"), "{}", answer.text());
    drop(others);
    eventually("there is room again", async || {
        let mut client = Raw::connect(proxy.address).await;
        client.write(head("/")).await;
        client.message().await.head.status() == 200
    })
    .await;
    let dialled = metric(proxy.health, "client_proxy_upstream_connections_total{result=\"no_room\"}").await;
    assert!(dialled >= 1.0, "{dialled}");
}

#[tokio::test]
async fn operators_connections_are_bounded_in_number_and_time() {
    const ROOM: usize = 256;
    crate::support::many_descriptors();
    for admin in [false, true] {
        let proxy = Binary::start("server.workers = 1").await;
        let address = if admin { proxy.admin } else { proxy.health };
        let before = open_files(proxy.pid());
        let mut idle = Vec::new();
        for _ in 0..ROOM + 20 {
            idle.push(Raw::connect(address).await);
        }
        eventually("as many are served as may be", async || open_files(proxy.pid()) >= before + ROOM).await;
        // The next one is served nevertheless: the oldest makes room.
        let mut probe = Raw::connect(address).await;
        probe.write("GET /healthz/live HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(probe.message().await.text(), "alive\n");
        for oldest in &mut idle[..=20] {
            oldest.is_left().await;
        }
        // Of those others one may not be closed yet.
        assert!(open_files(proxy.pid()) <= before + ROOM + 1);
        idle.drain(..ROOM / 2);
        // And those who say nothing lose their places.
        for silent in &mut idle {
            let end = async { while silent.0.read_u8().await.is_ok() {} };
            timeout(Duration::from_secs(20), end).await.expect("it is left");
        }
    }
}

#[tokio::test]
async fn whoever_says_half_a_head_to_the_health_port_is_left() {
    let proxy = Binary::start("server.workers = 1").await;
    let mut slow = Raw::connect(proxy.health).await;
    slow.write("GET / HTTP/1.1\r\nHo").await;
    let end = async { while slow.0.read_u8().await.is_ok() {} };
    timeout(Duration::from_secs(20), end).await.expect("it is left");
    assert_eq!(get(proxy.health, "/healthz/live").await.status, 200);
}

fn configuration(lines: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(lines.as_bytes()).expect("a file that takes it");
    file
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_client-proxy"));
    command.env_clear().stdin(Stdio::null());
    command
}

#[test]
fn all_taken_ports_are_told_at_once() {
    let taken: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let at: Vec<SocketAddr> = taken.iter().map(|listener| listener.local_addr().expect("an address")).collect();
    let file = configuration(&format!(
        "server.listen = [\"{}\", \"{}\"]\nhealth.listen = \"{}\"\nadmin.listen = \"{}\"\n",
        at[0], at[1], at[2], at[3]
    ));
    let output = program().arg("--config").arg(file.path()).output().expect("the program");
    let told = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{told}");
    for (address, key) in at.iter().zip(["server", "server", "health", "admin"]) {
        assert!(told.contains(&format!("cannot listen on {address} ({key}.listen): ")), "{address}: {told}");
    }
}

#[tokio::test]
async fn a_signal_drains_from_the_first_connection_on() {
    // A port that was free a moment ago, on an address of this test alone.
    let ip = crate::support::own_ip();
    let address = SocketAddr::new(ip.parse().expect("an address"), crate::support::free_port(&ip));
    let file = configuration(&format!(
        "server.listen = [\"{address}\"]\nhealth.listen = \"127.0.0.1:0\"\nadmin.listen = \"\"\n\
         shutdown.drain_delay = \"0s\"\n"
    ));
    let mut child = program().arg("--config").arg(file.path()).stderr(Stdio::piped()).spawn().expect("the program");
    while std::net::TcpStream::connect(address).is_err() {
        assert!(child.try_wait().expect("one's own child").is_none(), "it ended");
    }
    // As it was when the first client came, or a little later.
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it lives");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("its signals");
    let caught = u64::from_str_radix(caught.trim(), 16).expect("a set");
    assert!(
        [15, 2, 1].iter().all(|signal| caught & (1 << (signal - 1)) != 0),
        "SIGTERM, SIGINT and SIGHUP are caught: {caught:x}"
    );
    let output = tokio::task::spawn_blocking(|| child.wait_with_output());
    let output =
        timeout(crate::support::PATIENCE, output).await.expect("it ends").expect("no panic").expect("its output");
    let told = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("draining") && told.contains("stopped"), "{told}");
}

#[tokio::test]
async fn what_hyper_refuses_is_counted_as_it_was_answered() {
    let node = Node::start().await;
    let proxy = node.proxy();
    let long = "x".repeat(70_000);
    let many = "a: b\r\n".repeat(200);
    let large = format!("a: {}\r\n", "y".repeat(140_000));
    for (request, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        (format!("GET /{long} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n{many}\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n{large}\r\n"), 431),
    ] {
        let sum = async || proxy.metric("client_proxy_requests_total").await;
        let before = sum().await;
        let mut client = Raw::connect(proxy.address).await;
        client.write(request).await;
        assert!(client.read_until("\r\n").await.starts_with(&format!("HTTP/1.1 {status} ")));
        client.is_left().await;
        proxy.is_idle().await;
        let counted = sum().await - before;
        assert!((counted - 1.0).abs() < 0.5, "{status:?}: {counted}");
        let name = "client_proxy_requests_total{origin=\"proxy\",status=";
        assert!(proxy.metric(&format!("{name}\"{status}\",error=\"malformed\"}}")).await > 0.5);
    }
}

#[tokio::test]
async fn an_answer_that_streams_ends_at_the_cut() {
    let node = Node::start().await;
    let streaming = async |proxy: &crate::support::Proxy| {
        let mut client = Raw::connect(proxy.address).await;
        client.write(head("/")).await;
        let mut upstream = node.accept().await;
        upstream.head().await;
        upstream.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n").await;
        client.head().await;
        assert_eq!(client.chunk().await.expect("a chunk"), b"ab");
        (client, upstream)
    };
    // At the end of a drain.
    let proxy = node.proxy_with("shutdown.drain_delay = \"0s\"\nshutdown.drain_timeout = \"100ms\"");
    let (mut client, mut upstream) = streaming(&proxy).await;
    assert!(!proxy.app.drain().await);
    client.is_left().await;
    upstream.is_left().await;
    // And when the proxy is dropped, without a drain.
    let proxy = node.proxy_with("shutdown.drain_delay = \"1h\"");
    let (mut client, mut upstream) = streaming(&proxy).await;
    drop(proxy);
    client.is_left().await;
    upstream.is_left().await;
}

#[tokio::test]
async fn the_last_place_goes_to_whichever_listener_has_a_client() {
    let node = Node::start().await;
    let lines = "server.listen = [\"127.0.0.1:0\", \"[::1]:0\", \"127.0.0.2:0\"]\nhealth.listen = \"127.0.0.1:0\"\n\
                 admin.listen = \"\"\nserver.max_connections = 1";
    let toml = node_mode(node.address, lines);
    let config = Config::load((kinds::lines(&toml) + &toml).as_bytes(), &Environment::default());
    let app = App::start(config.unwrap_or_else(|faults| panic!("{faults}")), None).expect("a proxy");
    let mut upstream: Option<Raw> = None;
    for address in app.addresses().proxy.iter().chain(&app.addresses().proxy) {
        let mut client = Raw::connect(*address).await;
        client.write(head("/")).await;
        if upstream.is_none() {
            upstream = Some(node.accept().await);
        }
        let upstream = upstream.as_mut().expect("just put there");
        upstream.head().await;
        upstream.write(OK).await;
        assert_eq!(client.message().await.text(), "ok");
        // Beyond the limit nobody is accepted, on no listener.
        let next = app.addresses().proxy[0];
        let mut waiting = Raw::connect(next).await;
        waiting.write("nonsense\r\n\r\n").await;
        client.write(head("/")).await;
        upstream.head().await;
        upstream.write(OK).await;
        assert_eq!(client.message().await.text(), "ok");
        waiting.waits(app.addresses().health).await;
        drop(client);
        assert!(waiting.read_until("\r\n").await.starts_with("HTTP/1.1 400 "));
        waiting.is_left().await;
    }
}

#[cfg(feature = "dev")]
#[test]
fn the_playground_listens_on_loopback_whatever_the_environment_says() {
    for (name, value) in [
        ("CLIENT_PROXY__SERVER__LISTEN", "[\"127.0.0.1:0\", \"0.0.0.0:0\"]"),
        ("CLIENT_PROXY__HEALTH__LISTEN", "0.0.0.0:0"),
        ("CLIENT_PROXY__ADMIN__LISTEN", "[::]:0"),
    ] {
        let mut child = program()
            .args(["dev", "--api", "127.0.0.1:0", "--proxy", "127.0.0.1:0", "--health", "127.0.0.1:0"])
            .args(["--admin", "127.0.0.1:0"])
            .env(name, value)
            // A public admin listener would be refused without one anyway.
            .env("CLIENT_PROXY__ADMIN__TOKEN", "token")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        // It says nothing and ends, or it serves and says so.
        let mut said = [0];
        let count = std::io::Read::read(&mut child.stdout.take().expect("a pipe"), &mut said).expect("read");
        if count > 0 {
            child.kill().expect("it lives");
        }
        let output = child.wait_with_output().expect("its output");
        let told = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{name}: {told}");
        assert!(told.contains(name) && told.contains("loopback"), "{name}: {told}");
    }
}

#[cfg(feature = "dev")]
#[test]
fn durations_of_the_playground_have_an_end() {
    let delays = ["--pause-delay", "--resume-delay", "--remove-delay"];
    for option in ["--retention", "--transition-wait", "--command-wait"].into_iter().chain(delays) {
        let output = program().args(["dev", option, "100000000000years"]).output().expect("the program");
        let told = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(option) && told.contains("365days"), "{told}");
    }
}
