//! The program in place of E2B's own: no arguments, E2B's variables, a real Redis, the nodes' proxy, the API.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::Full;
use rustix::process::{Pid, Signal, kill_process};
use tonic::Code;

use super::{
    grpc_api::{GrpcApi, Say, TRANSITIONING},
    server::{Redis, free_port},
    support::{Answer, Server, answer, control_plane::Gate, eventually, get, request, send},
    told,
};

/// Started as the job does it.
struct Job {
    child: Child,
    address: SocketAddr,
    health: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Job {
    async fn start(variables: &[(&str, &str)]) -> Self {
        let [proxy, health] = [free_port(), free_port()];
        let mut child = Command::new(env!("CARGO_BIN_EXE_client-proxy"))
            .env_clear()
            .envs([("PROXY_PORT", proxy.to_string()), ("HEALTH_PORT", health.to_string())])
            // What the job has no variable for, and two tests at once could not both have.
            .env("CLIENT_PROXY__ADMIN__LISTEN", "")
            .env("CLIENT_PROXY__SHUTDOWN__DRAIN_DELAY", "0s")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (stderr, written) = (child.stderr.take().expect("a pipe"), lines.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                written.lock().expect("no panic").push(line);
            }
        });
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let this = Self { child, address: at(proxy), health: at(health), lines };
        eventually("it serves", async || this.wrote("\"serving;")).await;
        eventually("it is ready", async || get(this.health, "/healthz/ready").await.status == 200).await;
        this
    }

    fn wrote(&self, text: &str) -> bool {
        self.lines.lock().expect("no panic").iter().any(|line| line.contains(text))
    }

    fn get(&self, sandbox: &str) -> impl Future<Output = Answer> + use<> {
        send(self.address, request("GET", 8000, sandbox, "/").body(Full::default()).expect("a request"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    async fn end(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("it ends", async || {
            status = self.child.try_wait().expect("one's own child");
            status.is_some()
        })
        .await;
        status.expect("just seen")
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn the_jobs_file_needs_no_change() {
    // The port of E2B's nodes, which no variable says: a loopback address of this test's own.
    let node = Server::on("127.5.0.7:5007", async |request| {
        let host = request.headers()["host"].to_str().expect("text").to_owned();
        answer(200, format!("node has {host}"))
    });
    let api = GrpcApi::start([]);
    let redis = Redis::start().await;
    let (url, internal) = (redis.address().to_string(), api.address.to_string());
    let variables = [("REDIS_URL", &*url), ("API_INTERNAL_GRPC_ADDRESS", &*internal), ("REDIS_POOL_SIZE", "40")];
    let mut job = Job::start(&variables).await;
    assert!(job.wrote("the configuration is E2B's environment"));
    assert_eq!(get(job.health, "/").await.text(), "healthy");
    assert_eq!(get(job.health, "/whatever").await.status, 200);

    // Route: the node routes by the same Host.
    redis.put("abc", "127.5.0.7", "a").await;
    assert_eq!(told(&job.get("abc").await), "node has 8000-abc.example.test");
    // Wake.
    api.says([TRANSITIONING, Say::Node("127.5.0.7")]);
    assert_eq!(told(&job.get("asleep").await), "node has 8000-asleep.example.test");
    // What E2B's program answers, too: 403, 409, 429, 502.
    api.says([
        Say::Status(Code::PermissionDenied, ""),
        Say::Status(Code::ResourceExhausted, "too many"),
        Say::Status(Code::NotFound, ""),
    ]);
    assert_eq!(told(&job.get("denied").await), "403 access_denied");
    assert_eq!(told(&job.get("exhausted").await), "429 team_limit");
    let gone = job.get("gone").await;
    assert_eq!(told(&gone), "502 sandbox_not_found");
    assert!(gone.text().contains("was not found") && gone.json()["code"] == 502);
    assert_eq!(node.requests(), 2);

    // Drain: what is held is answered.
    let gate = Gate::closed();
    let held = gate.clone();
    api.says([Say::Node("127.5.0.7").doing(move || {
        let gate = held.clone();
        async move { gate.opened().await }
    })]);
    let before = api.calls().len();
    let waiting = tokio::spawn(job.get("last"));
    api.calls_become(before + 1).await;
    job.signal(Signal::TERM);
    eventually("it drains", async || get(job.health, "/").await.status == 503).await;
    gate.open();
    assert_eq!(told(&waiting.await.expect("no panic")), "node has 8000-last.example.test");
    assert!(job.end().await.success());
}

#[tokio::test]
async fn transitioning_to_the_end_is_409_and_without_an_api_nobody_is_woken() {
    let redis = Redis::start().await;
    let url = redis.address().to_string();
    let api = GrpcApi::always(TRANSITIONING);
    let internal = api.address.to_string();
    let short = ("CLIENT_PROXY__RESUME__HOLD_TIMEOUT", "700ms");
    let job = Job::start(&[("REDIS_URL", &url), ("API_INTERNAL_GRPC_ADDRESS", &internal), short]).await;
    assert_eq!(told(&job.get("abc").await), "409 still_transitioning");
    let alone = Job::start(&[("REDIS_URL", &url)]).await;
    assert!(alone.wrote("no paused sandbox is woken"));
    assert_eq!(told(&alone.get("abc").await), "502 sandbox_not_found");
    // A frozen Redis is nobody's end: E2B's own program would answer 502 here.
    redis.freeze();
    let refused = tokio::time::timeout(Duration::from_secs(5), alone.get("def")).await.expect("in time");
    assert_eq!(told(&refused), "503 control_plane_unavailable");
}
