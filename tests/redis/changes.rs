//! Redis tells of every change, and it counts at once.

use std::time::Duration;

use super::{
    Nodes, becomes, pushes,
    server::{Redis, key},
    support::{Proxy, eventually},
    who,
};

const NOBODY: &str = "resume.kind = \"none\"\ncache.ttl_with_push = \"1h\"";
/// On a busy machine; the median is below a millisecond.
const AT_ONCE: Duration = Duration::from_millis(500);

async fn world() -> (Redis, Nodes, Proxy) {
    let (redis, nodes) = (Redis::start().await, Nodes::start().await);
    let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
    pushes(&proxy, true).await;
    (redis, nodes, proxy)
}

#[tokio::test]
async fn a_move_a_deletion_and_a_flush_count_at_once() {
    let (redis, _nodes, proxy) = world().await;
    let gone = "502 sandbox_not_found";
    redis.put("abc", "127.0.0.1", "a").await;
    assert!(becomes(&proxy, "abc", "127.0.0.1").await < AT_ONCE);
    redis.put("abc", "127.0.0.2", "b").await;
    assert!(becomes(&proxy, "abc", "127.0.0.2").await < AT_ONCE);
    for command in ["DEL", "UNLINK", "GETDEL"] {
        redis.put("abc", "127.0.0.1", "c").await;
        assert!(becomes(&proxy, "abc", "127.0.0.1").await < AT_ONCE);
        redis.command::<redis::Value>(command, &[&key("abc")]).await;
        assert!(becomes(&proxy, "abc", gone).await < AT_ONCE, "{command}");
    }
    for command in ["FLUSHALL", "FLUSHDB"] {
        redis.put("abc", "127.0.0.1", "d").await;
        redis.put("def", "127.0.0.2", "d").await;
        assert!(becomes(&proxy, "abc", "127.0.0.1").await + becomes(&proxy, "def", "127.0.0.2").await < AT_ONCE);
        redis.command::<()>(command, &[]).await;
        assert!(becomes(&proxy, "abc", gone).await + becomes(&proxy, "def", gone).await < AT_ONCE, "{command}");
    }
    redis.put("abc", "127.0.0.1", "e").await;
    assert!(becomes(&proxy, "abc", "127.0.0.1").await < AT_ONCE);
    redis.command::<()>("RENAME", &[&key("abc"), &key("def")]).await;
    assert!(becomes(&proxy, "abc", gone).await + becomes(&proxy, "def", "127.0.0.1").await < AT_ONCE);
    // Nothing of it was the end of a term by mistake: pushes never stopped.
    assert!(proxy.metric("client_proxy_catalog_push_up").await > 0.5);
}

#[tokio::test]
async fn a_record_that_expires_is_used_no_longer_than_it_lasts() {
    // Redis tells of an expiry when it comes across it: here, never by itself.
    let redis = Redis::start_with(&["--enable-debug-command", "local"]).await;
    let nodes = Nodes::start().await;
    let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
    pushes(&proxy, true).await;
    redis.command::<()>("DEBUG", &["SET-ACTIVE-EXPIRE", "0"]).await;
    redis.put_for("abc", "127.0.0.1", "a", 700).await;
    let began = tokio::time::Instant::now();
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    becomes(&proxy, "abc", "502 sandbox_not_found").await;
    let lasted = began.elapsed();
    assert!((Duration::from_millis(600)..Duration::from_secs(1)).contains(&lasted), "{lasted:?}");
}

#[tokio::test]
async fn another_execution_on_the_same_node_is_another_life() {
    let (redis, _nodes, proxy) = world().await;
    redis.put("abc", "127.0.0.1", "a").await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    let generation = async || {
        let page = super::support::get(proxy.admin, "/sandboxes/abc").await.json();
        page["route"]["generation"].as_u64().expect("a generation")
    };
    let first = generation().await;
    redis.put("abc", "127.0.0.1", "a").await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    assert_eq!(generation().await, first, "written again, and the same");
    redis.put("abc", "127.0.0.1", "b").await;
    eventually("it is another life", async || {
        who(&proxy, "abc").await;
        generation().await != first
    })
    .await;
}

/// From the write to the first answer of the new place, in microseconds; printed with `--nocapture`.
#[tokio::test]
async fn from_a_write_to_its_effect_it_takes_a_few_milliseconds() {
    let (redis, _nodes, proxy) = world().await;
    let mut writer = redis.connect().await.expect("a connection");
    let mut took = Vec::new();
    for round in 0..200 {
        let node = ["127.0.0.1", "127.0.0.2"][round % 2];
        let record = super::server::record(node, &round.to_string());
        let began = tokio::time::Instant::now();
        redis::cmd("SET").arg(key("abc")).arg(record).query_async::<()>(&mut writer).await.expect("written");
        while who(&proxy, "abc").await != node {
            assert!(began.elapsed() < AT_ONCE, "round {round}");
        }
        took.push(began.elapsed().as_micros());
    }
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    println!("write to effect in µs: p50 {} p90 {} p99 {} max {}", at(50), at(90), at(99), at(100));
    assert!(at(50) < 50_000);
}
