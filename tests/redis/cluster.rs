//! A Redis Cluster: three masters, each with a replica.

use super::{
    Nodes, becomes, pushes,
    server::Cluster,
    support::{Proxy, eventually},
    who,
};

const NOBODY: &str = "resume.kind = \"none\"\ncache.ttl_with_push = \"1h\"";

async fn world() -> (Cluster, Nodes, Proxy) {
    let (cluster, nodes) = (Cluster::start().await, Nodes::start().await);
    let proxy = Proxy::start(&cluster.config(nodes.port, NOBODY));
    pushes(&proxy, true).await;
    (cluster, nodes, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_on_any_master_count_at_once_and_known_sandboxes_cost_nothing() {
    let (cluster, _nodes, proxy) = world().await;
    let sandboxes: Vec<_> = (0..30).map(|n| format!("s{n}")).collect();
    for sandbox in &sandboxes {
        cluster.put(sandbox, "127.0.0.1", "a").await;
        assert_eq!(who(&proxy, sandbox).await, "127.0.0.1");
    }
    // On a busy machine a ping may come late, and all are asked for once more.
    eventually("a round without a lookup", async || {
        for node in &cluster.nodes {
            node.command::<()>("CONFIG", &["RESETSTAT"]).await;
        }
        for sandbox in &sandboxes {
            assert_eq!(who(&proxy, sandbox).await, "127.0.0.1");
        }
        let mut lookups = 0;
        for node in &cluster.nodes {
            lookups += node.lookups().await;
        }
        lookups == 0
    })
    .await;
    for sandbox in &sandboxes {
        cluster.put(sandbox, "127.0.0.2", "b").await;
        becomes(&proxy, sandbox, "127.0.0.2").await;
    }
    assert_eq!(who(&proxy, "nobody").await, "502 sandbox_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_moves_is_followed() {
    let (cluster, _nodes, proxy) = world().await;
    cluster.put("abc", "127.0.0.1", "a").await;
    becomes(&proxy, "abc", "127.0.0.1").await;
    let halfway = async || {
        // Its key has moved, which was pushed: whoever asks is told to ask elsewhere, for once.
        assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    };
    let to = cluster.migrate("abc", halfway).await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    to.put("abc", "127.0.0.2", "b").await;
    becomes(&proxy, "abc", "127.0.0.2").await;
    to.delete("abc").await;
    becomes(&proxy, "abc", "502 sandbox_not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_is_asked_for_loses_nothing() {
    let (cluster, _nodes, proxy) = world().await;
    cluster.put("abc", "127.0.0.1", "a").await;
    becomes(&proxy, "abc", "127.0.0.1").await;
    let (master, replica) = cluster.of("abc").await;
    replica.command::<()>("CLUSTER", &["FAILOVER"]).await;
    eventually("the replica is master", async || cluster.of("abc").await.0.port == replica.port).await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1");
    replica.put("abc", "127.0.0.2", "b").await;
    becomes(&proxy, "abc", "127.0.0.2").await;
    assert_ne!(master.port, replica.port);
    pushes(&proxy, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_killed_takes_no_route_with_it_and_its_replica_is_heard() {
    let (cluster, _nodes, proxy) = world().await;
    cluster.put("abc", "127.0.0.1", "a").await;
    becomes(&proxy, "abc", "127.0.0.1").await;
    let (master, replica) = cluster.of("abc").await;
    master.kill();
    pushes(&proxy, false).await;
    assert_eq!(who(&proxy, "abc").await, "127.0.0.1", "from memory");
    eventually("the replica is master", async || {
        let role: redis::Value = replica.command("ROLE", &[]).await;
        format!("{role:?}").contains("master")
    })
    .await;
    replica.put("abc", "127.0.0.2", "b").await;
    becomes(&proxy, "abc", "127.0.0.2").await;
    // Once the others no longer name it, all that they name are heard.
    pushes(&proxy, true).await;
    replica.put("abc", "127.0.0.3", "c").await;
    becomes(&proxy, "abc", "127.0.0.3").await;
}
