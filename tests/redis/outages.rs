//! Redis is frozen, cut off, gone, back, refuses, or is no Redis at all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tokio::{
    io::{AsyncWriteExt as _, copy_bidirectional},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::Instant,
};

use super::{
    Nodes, becomes, pushes,
    server::{Redis, free_port},
    support::{Proxy, binary::Binary, eventually, get, listen},
    tls::Authority,
    who,
};

const NOBODY: &str = "resume.kind = \"none\"\ncache.ttl_with_push = \"1h\"";
const DOWN: &str = "503 control_plane_unavailable";
const GONE: &str = "502 sandbox_not_found";
/// What README.md promises, and as much again for a busy machine.
const BOUND: Duration = Duration::from_secs(2);

async fn knows(redis: &Redis, proxy: &Proxy, sandbox: &str) {
    redis.put(sandbox, "127.0.0.1", "a").await;
    pushes(proxy, true).await;
    becomes(proxy, sandbox, "127.0.0.1").await;
}

#[tokio::test]
async fn a_frozen_server_makes_everything_stale_within_the_bound_and_takes_no_route_away() {
    let (redis, nodes) = (Redis::start().await, Nodes::start().await);
    let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
    knows(&redis, &proxy, "abc").await;
    redis.freeze();
    let began = Instant::now();
    pushes(&proxy, false).await;
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1", "from memory");
    let refused = proxy.get(8000, "unknown", "/").await;
    assert_eq!((refused.status.as_u16(), refused.error().as_str()), (503, "control_plane_unavailable"));
    assert!(!refused.header("retry-after").is_empty());
    // A change that it takes as soon as it can.
    let mut writer = TcpStream::connect(redis.address()).await.expect("the kernel takes it");
    let record = super::server::record("127.0.0.2", "b");
    let set = format!("*3\r\n$3\r\nSET\r\n$19\r\nsandbox:catalog:abc\r\n${}\r\n{record}\r\n", record.len());
    writer.write_all(set.as_bytes()).await.expect("the kernel takes that, too");
    redis.thaw();
    becomes(&proxy, "abc", "127.0.0.2").await;
    pushes(&proxy, true).await;
    redis.put("abc", "127.0.0.3", "c").await;
    becomes(&proxy, "abc", "127.0.0.3").await;
    becomes(&proxy, "unknown", GONE).await;
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back_empty_takes_its_routes_with_it() {
    let (redis, nodes) = (Redis::start().await, Nodes::start().await);
    let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
    knows(&redis, &proxy, "abc").await;
    redis.kill();
    pushes(&proxy, false).await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1", "from memory");
    assert_eq!(who(&proxy, "unknown").await, DOWN);
    redis.restart().await;
    becomes(&proxy, "abc", GONE).await;
    pushes(&proxy, true).await;
    redis.put("abc", "127.0.0.3", "c").await;
    becomes(&proxy, "abc", "127.0.0.3").await;
}

#[tokio::test]
async fn a_change_while_its_connection_is_cut_is_seen() {
    let (redis, nodes) = (Redis::start().await, Nodes::start().await);
    let cut = async |proxy: &Proxy, round: usize| {
        knows(&redis, proxy, "abc").await;
        redis.command::<i64>("CLIENT", &["KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        redis.put("abc", "127.0.0.2", &round.to_string()).await;
        becomes(proxy, "abc", "127.0.0.2").await
    };
    let mut took = Vec::new();
    for round in 0..7 {
        // One that was cut before takes its time to come back.
        let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
        took.push(cut(&proxy, round).await);
    }
    took.sort_unstable();
    // That it is cut is told, not found by the next ping.
    assert!(took[3] < Duration::from_millis(200), "{took:?}");
    let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
    for round in 0..10 {
        let took = cut(&proxy, round).await;
        assert!(took < 2 * BOUND, "{took:?}");
    }
}

#[tokio::test]
async fn a_server_that_may_not_push_or_is_not_asked_to_is_asked_again_after_a_while() {
    let acl = ["--user", "plain", "on", ">pw", "~sandbox:catalog:*", "+get", "+pttl", "+ping", "+hello"];
    // An old one, which does not even know RESP3.
    let old = ["--user", "old", "on", ">pw", "~sandbox:catalog:*", "+get", "+pttl", "+ping", "+auth"];
    let admin = ["--user", "admin", "on", ">pw", "allkeys", "allcommands", "--user", "default", "off"];
    let redis = Redis::start_for("admin:pw@", &[&acl[..], &old[..], &admin[..]].concat()).await;
    let nodes = Nodes::start().await;
    let of = |user: &str| redis.config(nodes.port, "").replace("admin:pw@", &format!("{user}:pw@"));
    for toml in [of("plain"), of("old"), redis.config(nodes.port, "catalog.redis.push = false")] {
        redis.put("abc", "127.0.0.1", "a").await;
        let proxy = Proxy::start(&format!("{toml}\n{NOBODY}\ncache.ttl = \"300ms\""));
        becomes(&proxy, "abc", "127.0.0.1").await;
        redis.put("abc", "127.0.0.2", "b").await;
        becomes(&proxy, "abc", "127.0.0.2").await;
        assert!(proxy.metric("client_proxy_catalog_push_up").await < 0.5);
        eventually("it is ready", async || get(proxy.health, "/healthz/ready").await.status == 200).await;
    }
}

#[tokio::test]
async fn the_least_that_a_user_must_be_allowed_is_enough() {
    let acl = ["--user", "edge", "on", ">t0ken", "~sandbox:catalog:*", "+get", "+pttl", "+ping", "+hello"];
    let tracking = ["+client|tracking", "--user", "admin", "on", ">pw", "allkeys", "allcommands"];
    let redis = Redis::start_for("admin:pw@", &[&acl[..], &tracking[..]].concat()).await;
    let nodes = Nodes::start().await;
    let url = format!("redis://edge:t0ken@127.0.0.1:{}", redis.port);
    let toml = redis.config(nodes.port, NOBODY).replace(&redis.url(), &url);
    let proxy = Proxy::start(&toml);
    knows(&redis, &proxy, "abc").await;
    redis.put("abc", "127.0.0.2", "b").await;
    becomes(&proxy, "abc", "127.0.0.2").await;
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_waited_for_without_a_wrong_answer() {
    let (redis, nodes) = (Redis::prepare(&[], ""), Nodes::start().await);
    let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
    assert_eq!(who(&proxy, "abc").await, DOWN);
    assert_eq!(get(proxy.health, "/healthz/ready").await.status, 503);
    redis.restart().await;
    redis.put("abc", "127.0.0.1", "a").await;
    becomes(&proxy, "abc", "127.0.0.1").await;
    eventually("it is ready", async || get(proxy.health, "/healthz/ready").await.status == 200).await;
    pushes(&proxy, true).await;
}

#[tokio::test]
async fn over_tls_with_an_authority_of_its_own_a_user_and_a_database() {
    let authority = Authority::new();
    authority.issue("redis", &["127.0.0.1"]);
    let [cert, key] = ["redis.pem", "redis.key"].map(|file| authority.path(file).display().to_string());
    let port = free_port();
    let secure = port.to_string();
    let tls = ["--tls-port", &secure, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &cert];
    let more = ["--tls-auth-clients", "no", "--user", "edge", "on", ">t0ken", "allkeys", "allcommands"];
    let mut redis = Redis::start_for("edge:t0ken@", &[&tls[..], &more[..]].concat()).await;
    redis.path = "/3";
    let nodes = Nodes::start().await;
    let ca = STANDARD.encode(authority.pem());
    let toml = |login: &str, ca: &str| {
        let url = format!("rediss://{login}127.0.0.1:{port}/3");
        let config = redis.config(nodes.port, NOBODY).replace(&redis.url(), &url);
        format!("{config}\ncatalog.redis.ca_base64 = \"{ca}\"")
    };
    let proxy = Proxy::start(&toml("edge:t0ken@", &ca));
    knows(&redis, &proxy, "abc").await;
    redis.put("abc", "127.0.0.2", "b").await;
    becomes(&proxy, "abc", "127.0.0.2").await;
    // Who is not believed, or does not believe, gets nothing; and what is wrong is told without the secret.
    let others = STANDARD.encode(Authority::new().pem());
    for (login, ca, word) in [("edge:t0ken@", &others, "invalid peer certificate"), ("edge:t0kenX@", &ca, "WRONGPASS")]
    {
        let proxy = Binary::start(&toml(login, ca)).await;
        let answer = super::support::send(
            proxy.address,
            super::support::request("GET", 8000, "abc", "/").body(http_body_util::Full::default()).expect("a request"),
        );
        assert_eq!(super::told(&answer.await), DOWN);
        let says = |line: &serde_json::Value| line["error"].as_str().is_some_and(|error| error.contains(word));
        eventually(word, async || proxy.lines_of("no connection to Redis").iter().any(says)).await;
    }
}

/// A way to Redis that can be made mute: open, and nothing comes through.
struct Way {
    port: u16,
    mute: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Way {
    fn to(redis: &Redis) -> Self {
        let listener = listen("127.0.0.1:0");
        let port = listener.local_addr().expect("an address").port();
        let (mute, silent) = watch::channel(false);
        let (mut task, address) = (JoinSet::new(), redis.address());
        task.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let Ok((mut client, _)) = listener.accept().await else { return };
                let mut silent = silent.clone();
                open.spawn(async move {
                    let mut server = TcpStream::connect(address).await.expect("Redis");
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        // The sockets stay open, and nobody reads them.
                        () = async { drop(silent.wait_for(|mute| *mute).await) } => std::future::pending().await,
                    }
                });
            }
        });
        Self { port, mute, _task: task }
    }
}

#[tokio::test]
async fn a_way_that_has_gone_mute_makes_everything_stale_within_the_bound() {
    let (redis, nodes) = (Redis::start().await, Nodes::start().await);
    let way = Way::to(&redis);
    let toml = redis.config(nodes.port, NOBODY).replace(&format!(":{}\"", redis.port), &format!(":{}\"", way.port));
    let proxy = Proxy::start(&toml);
    knows(&redis, &proxy, "abc").await;
    way.mute.send_replace(true);
    let began = Instant::now();
    redis.put("abc", "127.0.0.2", "b").await;
    pushes(&proxy, false).await;
    assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    way.mute.send_replace(false);
    becomes(&proxy, "abc", "127.0.0.2").await;
}

#[tokio::test]
async fn what_is_no_redis_is_an_outage_and_is_not_hammered() {
    let nodes = Nodes::start().await;
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"", b"-ERR \xff\xfe\r\n", b"%9999999999\r\n", b"*-7\r\n"]
    {
        let listener = listen("127.0.0.1:0");
        let (port, accepted) = (listener.local_addr().expect("an address").port(), Arc::new(AtomicUsize::new(0)));
        let (mut task, counted) = (JoinSet::new(), accepted.clone());
        task.spawn(async move {
            loop {
                use tokio::io::AsyncReadExt as _;
                let Ok((mut socket, _)) = listener.accept().await else { return };
                counted.fetch_add(1, SeqCst);
                let _ = socket.read(&mut [0; 1024]).await;
                let _ = socket.write_all(answer).await;
            }
        });
        let toml = format!(
            "catalog.kind = \"redis\"\ncatalog.redis.urls = [\"redis://127.0.0.1:{port}\"]\n\
             upstream.address = \"{{node}}:{}\"\n{NOBODY}",
            nodes.port
        );
        let (proxy, began) = (Proxy::start(&toml), Instant::now());
        while began.elapsed() < Duration::from_secs(2) {
            assert_eq!(who(&proxy, "abc").await, DOWN, "{answer:?}");
        }
        // Two protocols are tried each time; pauses grow to a second.
        let attempts = accepted.load(SeqCst);
        assert!((2..=30).contains(&attempts), "{attempts} for {answer:?}");
    }
}
