//! Direct mode: the last hop is this proxy's. Ports that are closed, open late, or belong to a frozen process.

use std::time::Duration;

use crate::support::{
    self, DIRECT, Proxy, REMEMBER, Server, answer,
    control_plane::{ControlPlane, Step},
    free_port, own_ip,
};

async fn world(more: &str) -> (ControlPlane, Proxy) {
    let control = ControlPlane::start().await;
    let proxy = Proxy::start(&control.config(&format!("{DIRECT}{more}")));
    (control, proxy)
}

#[tokio::test]
async fn a_closed_port_is_told_and_looked_at_once() {
    let ip = own_ip();
    let (control, proxy) = world(REMEMBER).await;
    let sandbox = control.sandbox("abc");
    sandbox.running(&ip).looks_up([Step::Truly, Step::Truly]);
    let (port, other) = (free_port(&ip), free_port(&ip));
    for port in [port, port, port, other] {
        let answer = proxy.get(port, "abc", "/").await;
        assert_eq!((answer.status.as_u16(), answer.error()), (502, "port_closed".into()));
        let body = answer.json();
        assert_eq!((&body["port"], &body["sandboxId"]), (&port.into(), &"abc".into()));
        assert_eq!(answer.header("retry-after"), "");
        assert!(body["message"].as_str().expect("a message").contains("port is not open"), "{body}");
        assert!(!answer.text().contains(&ip), "an address is nobody's business: {body}");
    }
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_closed_port_is_looked_at_again_in_another_life() {
    let (ip, elsewhere) = (own_ip(), own_ip());
    let (control, proxy) = world("cache.negative_ttl = \"60s\"\ncache.ttl = \"50ms\"\n").await;
    let sandbox = control.sandbox("abc");
    sandbox.running(&ip);
    let port = free_port(&ip);
    assert_eq!(proxy.get(port, "abc", "/").await.error(), "port_closed");
    assert_eq!(sandbox.lookups(), 2);
    // Paused and woken elsewhere: the next life has a doubt of its own.
    sandbox.running(&elsewhere);
    let server = Server::on(&format!("{elsewhere}:{port}"), async |_| answer(200, "hello"));
    support::eventually("it is followed", async || proxy.get(port, "abc", "/").await.status == 200).await;
    assert!(server.requests() >= 1);
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_port_that_opens_a_moment_after_the_wake_costs_no_error() {
    let ip = own_ip();
    let (control, proxy) = world(REMEMBER).await;
    let sandbox = control.sandbox("abc");
    sandbox.paused(&ip).looks_up([Step::Truly]).wakes([Step::Truly]);
    let port = free_port(&ip);
    let opens = async {
        proxy.metric_becomes("client_proxy_wakes_total", 1.0).await;
        // What the application takes to start: nothing waits for it, and it is knocked at meanwhile.
        tokio::time::sleep(Duration::from_millis(250)).await;
        Server::on(&format!("{ip}:{port}"), async |_| answer(200, "late"))
    };
    let (answer, server) = tokio::join!(proxy.get(port, "abc", "/"), opens);
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "late".into()));
    assert_eq!((server.requests(), sandbox.connects()), (1, 1));
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn the_ladder_after_a_wake_ends_and_says_that_the_port_is_closed() {
    let ip = own_ip();
    let (control, proxy) = world(&format!("upstream.connect_attempts = 3\n{REMEMBER}")).await;
    let sandbox = control.sandbox("abc");
    sandbox.paused(&ip).looks_up([Step::Truly, Step::Truly]).wakes([Step::Truly]);
    let start = tokio::time::Instant::now();
    let answer = proxy.get(free_port(&ip), "abc", "/").await;
    assert_eq!((answer.status.as_u16(), answer.error()), (502, "port_closed".into()));
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn the_ladder_stays_inside_the_hold_budget() {
    let ip = own_ip();
    // Twenty steps would take 19 s.
    let (control, proxy) =
        world(&format!("upstream.connect_attempts = 20\nresume.hold_timeout = \"500ms\"\n{REMEMBER}")).await;
    control.sandbox("abc").paused(&ip).wakes([Step::Truly]);
    let answer = proxy.get(free_port(&ip), "abc", "/").await;
    assert_eq!((answer.status.as_u16(), answer.error()), (502, "port_closed".into()));
    proxy.is_idle_upstream_too().await;
}

#[tokio::test]
async fn a_sandbox_paused_again_before_its_port_is_dialled_is_woken_once_more_at_most() {
    let ip = own_ip();
    let (control, proxy) = world(&format!("upstream.connect_attempts = 1\n{REMEMBER}")).await;
    let sandbox = control.sandbox("abc");
    sandbox.paused(&ip).wakes([Step::Briefly, Step::Briefly]);
    let answer = proxy.get(free_port(&ip), "abc", "/").await;
    assert_eq!((answer.status.as_u16(), answer.error()), (503, "node_unavailable".into()));
    proxy.is_idle_upstream_too().await;
}
