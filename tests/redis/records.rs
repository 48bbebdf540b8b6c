//! What the catalog holds, and what comes of it.

use super::{
    Nodes, becomes, pushes,
    server::{Redis, key, record},
    support::{Proxy, eventually},
    who,
};

const NOBODY: &str = "resume.kind = \"none\"";

#[tokio::test]
async fn a_record_is_a_route_and_what_is_none_is_told_apart_from_none_at_all() {
    let (redis, nodes) = (Redis::start().await, Nodes::start().await);
    let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
    redis.put("known", "127.0.0.1", "e").await;
    redis.put("spaces", " 127.0.0.2 ", "e").await;
    redis.put("empty", "", "e").await;
    redis.put("nonsense", "no host", "e").await;
    redis.command::<()>("SET", &[&key("broken"), "{\"orchestrator_ip\": \"127.0.0.1\""]).await;
    redis.command::<()>("SET", &[&key("text"), "127.0.0.1"]).await;
    redis.command::<()>("SET", &[&key("huge"), &record("127.0.0.1", &"e".repeat(100_000))]).await;
    redis.command::<()>("RPUSH", &[&key("list"), "127.0.0.1"]).await;
    redis.command::<()>("SET", &[&key("old"), "{\"orchestrator_ip\":\"127.0.0.3\"}"]).await;
    for (sandbox, want) in [
        ("known", "127.0.0.1"),
        ("spaces", "127.0.0.2"),
        ("old", "127.0.0.3"),
        ("empty", "503 node_unavailable"),
        ("nonsense", "503 control_plane_unavailable"),
        ("broken", "503 control_plane_unavailable"),
        ("text", "503 control_plane_unavailable"),
        ("huge", "503 control_plane_unavailable"),
        ("list", "503 control_plane_unavailable"),
        ("nobody", "502 sandbox_not_found"),
    ] {
        assert_eq!(who(&proxy, sandbox).await, want, "{sandbox}");
    }
}

#[tokio::test]
async fn a_known_sandbox_costs_redis_nothing() {
    let (redis, nodes) = (Redis::start().await, Nodes::start().await);
    let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
    redis.put("abc", "127.0.0.1", "e").await;
    pushes(&proxy, true).await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    // On a busy machine a ping may come late, and it is asked for once more.
    eventually("200 requests without a lookup", async || {
        redis.command::<()>("CONFIG", &["RESETSTAT"]).await;
        for _ in 0..200 {
            assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
        }
        // Others' changes are none of its.
        redis.put("other", "127.0.0.2", "e").await;
        assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
        redis.lookups().await == 0
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_changes_a_second_of_others_disturb_nobody() {
    let (redis, nodes) = (Redis::start().await, Nodes::start().await);
    let proxy = Proxy::start(&redis.config(nodes.port, NOBODY));
    redis.put("abc", "127.0.0.1", "e").await;
    pushes(&proxy, true).await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    redis.command::<()>("CONFIG", &["RESETSTAT"]).await;
    let mut writer = redis.connect().await.expect("a connection");
    for round in 0..20 {
        let mut pipe = redis::pipe();
        for n in 0..1000 {
            pipe.cmd("SET").arg(key(&format!("other{n}"))).arg(record("127.0.0.2", &round.to_string())).ignore();
        }
        pipe.query_async::<()>(&mut writer).await.expect("written");
        assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    }
    // A ping may come late meanwhile, and it is asked for once more; not for every change.
    assert!(redis.lookups().await <= 3);
    // And of all of that the last is what counts.
    assert_eq!(who(&proxy, "other7").await, "127.0.0.2");
    redis.put("other7", "127.0.0.3", "e").await;
    becomes(&proxy, "other7", "127.0.0.3").await;
}
