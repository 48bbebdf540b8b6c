//! Certificates become others while the program runs, and bad ones do not.

use serde_json::{Value, json};

use crate::{
    support::{
        Answer, Server, answer,
        binary::Binary,
        count, eventually, get, metric,
        wire::{HOST, get as head, node_mode},
    },
    tls::{Authority, Stream, ask, binary_door, leaf},
};

const RELOADS: &str = "client_proxy_tls_certificate_reloads_total";

struct Stage {
    authority: Authority,
    upstream: Server,
    proxy: Binary,
}

impl Stage {
    /// With these certificates.
    async fn with(authority: Authority, names: &[&str]) -> Self {
        let upstream = Server::start(async |_| answer(200, "hello")).await;
        let proxy = Binary::start(&node_mode(upstream.address, &authority.config(names))).await;
        Self { authority, upstream, proxy }
    }

    fn config(&self, names: &[&str]) -> String {
        node_mode(self.upstream.address, &self.authority.config(names))
    }

    async fn connect(&self) -> Stream {
        self.authority.http1().connect(binary_door(&self.proxy)).await
    }

    /// New clients see the one of that name.
    async fn shows(&self, name: &str) {
        let want = self.authority.leaf(name);
        eventually(&format!("{name} is shown"), async || leaf(&self.connect().await) == want).await;
    }

    /// The first line that begins so; lines come when they come.
    async fn told(&self, message: &str) -> Value {
        eventually(message, async || self.proxy.line(message).is_some()).await;
        self.proxy.line(message).expect("just seen")
    }

    async fn reloads(&self, outcome: &str) -> usize {
        count(self.proxy.health, &format!("{RELOADS}{{outcome=\"{outcome}\"}}")).await
    }

    async fn page(&self) -> Vec<Value> {
        let page: Answer = get(self.proxy.admin, "/certificates").await;
        assert_eq!((page.status.as_u16(), page.header("cache-control")), (200, "no-store"));
        assert!(!page.text().contains("PRIVATE"), "{}", page.text());
        page.json()["certificates"].as_array().expect("a list").clone()
    }
}

#[tokio::test]
async fn files_that_change_are_used_and_connections_go_on() {
    let stage = Stage::with(Authority::with_one(), &["a"]).await;
    let mut running = stage.connect().await;
    assert!(ask(&mut running, &head("/before")).await.contains("200 OK"));
    let client = stage.authority.http1();
    let before = stage.authority.leaf("a");
    let mut ticket = client.connect(binary_door(&stage.proxy)).await;
    ask(&mut ticket, &head("/")).await;

    stage.authority.issue_until("a", &[HOST], 2500);
    assert_ne!(stage.authority.leaf("a"), before);
    stage.shows("a").await;
    eventually("it is counted", async || stage.reloads("ok").await > 0).await;
    assert!(ask(&mut running, &head("/after")).await.contains("200 OK"));
    let again = client.connect(binary_door(&stage.proxy)).await;
    assert_eq!(again.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Resumed), "tickets outlive it");

    let loaded = stage.told("certificate loaded").await;
    assert_eq!(loaded["until"], "2500-01-01T00:00:00Z");
    let page = &stage.page().await[0];
    assert_eq!((&page["names"], &page["notAfter"]), (&json!([HOST]), &json!("2500-01-01T00:00:00Z")));
    assert_eq!((&page["expired"], &page["problem"]), (&json!(false), &json!(null)));
    assert_eq!(page["sha256"].as_str().map(str::len), Some(32 * 3 - 1));
    let expiry = format!(
        "client_proxy_tls_certificate_expiry_timestamp_seconds{{file=\"{}\"}}",
        stage.authority.path("a.pem").display()
    );
    assert!((metric(stage.proxy.health, &expiry).await - 16_725_225_600.0).abs() < 1.0, "2500-01-01");
}

#[tokio::test]
async fn a_pair_that_does_not_fit_changes_nothing_until_it_does() {
    let stage = Stage::with(Authority::with_one(), &["a"]).await;
    let good = stage.authority.leaf("a");
    let files =
        ["a.pem", "a.key"].map(|file| (file, std::fs::read_to_string(stage.authority.path(file)).expect("a file")));
    for (file, text, words) in [
        ("a.key", stage.authority.pair(&[HOST], 2600).1, "another certificate's"),
        ("a.key", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n".into(), "no key for TLS"),
        ("a.key", String::new(), "no private key"),
        ("a.pem", "nonsense".into(), "no certificate"),
        ("a.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(), "X.509"),
    ] {
        let failed = stage.reloads("failed").await;
        stage.authority.write(file, &text);
        eventually(words, async || {
            stage.page().await[0]["problem"].as_str().is_some_and(|problem| problem.contains(words))
        })
        .await;
        assert!(stage.reloads("failed").await > failed);
        assert_eq!(leaf(&stage.connect().await), good, "{words}");
        for (file, text) in &files {
            stage.authority.write(file, text);
        }
        eventually("it is well again", async || stage.page().await[0]["problem"].is_null()).await;
        // Told, and not again and again.
        let times = || {
            let told = stage.proxy.lines_of("certificate not reloaded");
            told.iter().filter(|line| line["problem"].to_string().contains(words)).count()
        };
        eventually("a line", async || times() > 0).await;
        assert_eq!(times(), 1);
    }
    stage.authority.write("a.key", "");
    // At SIGHUP too, and all that was wrong is told there.
    let told = stage.proxy.reload(&stage.config(&["a"])).await;
    let told = told["message"].as_str().expect("text");
    assert!(told.starts_with("configuration not reloaded, nothing changed"), "{told}");
    assert!(told.contains("server.tls.certificates[0].key = ") && told.contains("no private key"), "{told}");
    assert_eq!(leaf(&stage.connect().await), good);

    std::fs::remove_file(stage.authority.path("a.pem")).expect("it was there");
    stage.authority.issue("a", &[HOST]);
    stage.shows("a").await;
    assert_eq!(stage.page().await[0]["problem"], json!(null));
    let key = std::fs::read_to_string(stage.authority.path("a.key")).expect("a key");
    let secret = key.lines().nth(1).expect("a line of it").to_owned();
    let written = stage.proxy.last_words().await;
    assert!(!written.contains(&secret) && !written.contains("c2VjcmV0") && !written.contains("PRIVATE KEY"));
}

#[tokio::test]
async fn links_that_are_swapped_are_seen() {
    // As Kubernetes mounts secrets: the files are links through `..data` to a folder of one version.
    let authority = Authority::new();
    let folder = authority.folder().to_owned();
    let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, folder.join(from)).expect("a link");
    for version in ["v1", "v2"] {
        std::fs::create_dir(folder.join(version)).expect("a folder");
        authority.issue(&format!("{version}/a"), &[HOST]);
    }
    link("v1", "..data");
    link("..data/a.pem", "a.pem");
    link("..data/a.key", "a.key");
    let stage = Stage::with(authority, &["a"]).await;
    stage.shows("v1/a").await;
    link("v2", "..next");
    std::fs::rename(folder.join("..next"), folder.join("..data")).expect("a swap");
    stage.shows("v2/a").await;
    eventually("it is counted", async || stage.reloads("ok").await == 1).await;
}

#[tokio::test]
async fn sighup_takes_another_list() {
    let authority = Authority::with_one();
    authority.issue("b", &[HOST]);
    let stage = Stage::with(authority, &["a"]).await;
    let told = stage.proxy.reload(&stage.config(&["b", "a"])).await;
    assert_eq!(
        (&told["message"], &told["changed"]),
        (&json!("configuration reloaded"), &json!("server.tls.certificates"))
    );
    assert_eq!(leaf(&stage.connect().await), stage.authority.leaf("b"), "at once");
    let files: Vec<_> = stage.page().await.iter().map(|one| one["file"].to_string()).collect();
    assert!(files[0].contains("b.pem") && files[1].contains("a.pem"), "{files:?}");
    assert_eq!(stage.reloads("ok").await, 1, "the other is the same as before");
    // What is new in an old file does not wait for somebody to look.
    stage.authority.issue("b", &[HOST]);
    stage.proxy.reload(&stage.config(&["b", "a"])).await;
    assert_eq!(leaf(&stage.connect().await), stage.authority.leaf("b"));
    // One that is gone from the list is nobody's concern any more.
    stage.proxy.reload(&stage.config(&["a"])).await;
    let exposition = get(stage.proxy.health, "/metrics").await.text();
    let of = |file: &str| exposition.lines().find(|line| line.contains("expiry") && line.contains(file));
    assert!(of("b.pem").is_some_and(|line| line.ends_with(" NaN")), "{:?}", of("b.pem"));
    assert!(of("a.pem").is_some_and(|line| !line.ends_with(" NaN")), "{:?}", of("a.pem"));
    // Listeners stay where they are.
    let listen =
        stage.config(&["a"]).replace("server.tls.listen", "server.proxy_protocol = \"off\"\nserver.tls.listen");
    let moved = listen.replace("server.tls.listen = [\"127.0.0.1:0\"]", "server.tls.listen = [\"127.0.0.2:0\"]");
    stage.proxy.reload(&moved).await;
    stage.told("server.tls.listen is another than at the start").await;
    let told = stage.proxy.reload(&node_mode(stage.upstream.address, "")).await;
    assert_eq!(told["changed"], json!(""), "what is not done is not told as done");
    stage.told("server.tls.certificates is another than at the start").await;
    assert_eq!(leaf(&stage.connect().await), stage.authority.leaf("a"), "a listener without certificates is none");
}
