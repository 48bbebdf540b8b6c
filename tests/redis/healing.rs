//! The node that the catalog named does not have the sandbox: it is looked up once more, woken if need be, and the same
//! request is sent again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use tokio::net::TcpStream;

use super::{
    grpc_api::{GrpcApi, Say},
    server::Redis,
    support::{Answer, Proxy, Server, answer, eventually, get, request},
    told,
};

/// Without pushes, and with a long memory: as if a change were not known yet.
const LATE: &str = "catalog.redis.push = false\ncache.ttl = \"1h\"\n";
const NOT_FOUND: &str = r#"{"sandboxId":"abc","message":"The sandbox was not found","code":502}"#;

/// As a node says it that does not have it any more; and as an application may forge it.
async fn disowns(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let _ = request.into_body().collect().await;
    let mut answer = answer(502, NOT_FOUND);
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/json; charset=utf-8"));
    answer
}

async fn echoes(request: Request<Incoming>) -> Response<Full<Bytes>> {
    match request.into_body().collect().await {
        Ok(body) => answer(200, [&b"2:"[..], &body.to_bytes()].concat()),
        Err(_) => answer(500, "half a body"),
    }
}

struct World {
    redis: Arc<Redis>,
    api: GrpcApi,
    old: Option<Server>,
    new: Server,
    proxy: Proxy,
}

impl World {
    /// The proxy knows the sandbox to be on 127.0.0.1, whose node does not have it any more.
    async fn new() -> Self {
        let has_it = Arc::new(AtomicBool::new(true));
        let has = has_it.clone();
        let old = Server::start(move |request| {
            let has = has.load(SeqCst);
            async move { if has { answer(200, "1:") } else { disowns(request).await } }
        })
        .await;
        let port = old.address.port();
        let new = Server::on(&format!("127.0.0.2:{port}"), echoes);
        let (redis, api) = (Arc::new(Redis::start().await), GrpcApi::start([]));
        let proxy = Proxy::start(&redis.config(port, &(api.config() + LATE)));
        redis.put("abc", "127.0.0.1", "a").await;
        assert_eq!(told(&proxy.get(8000, "abc", "/").await), "1:");
        has_it.store(false, SeqCst);
        Self { redis, api, old: Some(old), new, proxy }
    }

    /// The node is gone altogether.
    async fn refuses(&mut self) {
        let address = self.old.take().expect("it runs").address;
        eventually("nobody listens", async || TcpStream::connect(address).await.is_err()).await;
    }

    async fn post(&self) -> Answer {
        let body = Bytes::from_static(b"the same body");
        self.proxy.send(request("POST", 8000, "abc", "/").body(Full::new(body)).expect("a request")).await
    }
}

#[tokio::test]
async fn a_sandbox_that_moved_is_followed_with_the_same_request() {
    for refuses in [false, true] {
        let mut world = World::new().await;
        world.redis.put("abc", "127.0.0.2", "b").await;
        if refuses {
            world.refuses().await;
        }
        assert_eq!(told(&world.post().await), "2:the same body", "refused: {refuses}");
        assert_eq!(told(&world.post().await), "2:the same body");
        assert_eq!(world.old.as_ref().map_or(2, Server::requests), 2, "the old one is not asked again");
        assert_eq!(world.new.requests(), 2);
    }
}

#[tokio::test]
async fn a_sandbox_that_was_paused_is_woken_for_the_same_request() {
    for refuses in [false, true] {
        let mut world = World::new().await;
        world.redis.delete("abc").await;
        if refuses {
            world.refuses().await;
        }
        let redis = world.redis.clone();
        world.api.says([Say::Node("127.0.0.2").doing(move || {
            let redis = redis.clone();
            async move { redis.put("abc", "127.0.0.2", "woken").await }
        })]);
        assert_eq!(told(&world.post().await), "2:the same body", "refused: {refuses}");
        assert_eq!(world.api.calls().len(), 1);
    }
}

#[tokio::test]
async fn a_node_that_the_catalog_still_names_is_believed_or_unavailable() {
    let mut world = World::new().await;
    // It may be the application that says so: nothing is sent twice, and its words pass.
    let answer = world.post().await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (502, NOT_FOUND));
    assert_eq!(world.old.as_ref().expect("it runs").requests(), 2);
    assert!(answer.header("proxy-status").is_empty());
    // Gone, and named again.
    world.refuses().await;
    assert_eq!(told(&world.post().await), "503 node_unavailable");
    assert!(world.api.calls().is_empty(), "nobody is woken for that");
}

#[tokio::test]
async fn what_a_wake_says_beats_a_lookup_that_began_before() {
    let world = World::new().await;
    world.redis.delete("abc").await;
    // The record that it writes names the place, too, and comes late; another run's delete comes later still.
    let redis = world.redis.clone();
    world.api.says([Say::Node("127.0.0.2").doing(move || {
        let redis = redis.clone();
        async move { redis.put("abc", "127.0.0.2", "woken").await }
    })]);
    assert_eq!(told(&world.post().await), "2:the same body");
    let page = get(world.proxy.admin, "/sandboxes/abc").await.json();
    assert_eq!(page["route"]["node"], "127.0.0.2", "{page}");
    assert_eq!(page["wakes"], 1, "{page}");
}
