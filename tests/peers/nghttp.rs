//! nghttp shows each frame.

use rustix::process::Signal;

use crate::{
    Stage, counting,
    support::{
        binary::Binary,
        control_plane::{ControlPlane, Gate, Step},
        count, eventually, nodes_at,
        wire::HOST,
    },
    tls::{Authority, binary_door, door},
    tools::{Running, run},
};

fn arguments(url: &str) -> Vec<String> {
    let mut all = vec!["--verbose".to_owned(), "--no-dep".into()];
    all.extend(["--header".into(), format!(":authority: {HOST}"), url.into()]);
    all
}

#[tokio::test]
async fn nghttp_sees_the_settings_and_an_answer() {
    let stage = Stage::new("").await;
    for url in [format!("https://{}/", door(&stage.proxy)), format!("http://{}/", stage.proxy.address)] {
        let said = run("nghttp", &arguments(&url)).await.well();
        for setting in ["[SETTINGS_ENABLE_CONNECT_PROTOCOL(0x08):1]", "[SETTINGS_MAX_CONCURRENT_STREAMS(0x03):"] {
            assert!(said.out.contains(setting), "{setting}: {}", said.out);
        }
        assert!(said.out.contains(":status: 200") && said.out.contains("GET 0"), "{}", said.out);
        assert_eq!(said.out.contains("The negotiated protocol: h2"), url.starts_with("https"), "{}", said.out);
    }
}

#[tokio::test]
async fn nghttp_is_told_to_go_elsewhere_and_answered() {
    let (node, control) = (counting().await, ControlPlane::start().await);
    let (authority, gate) = (Authority::with_one(), Gate::closed());
    control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let lines = format!("{}shutdown.drain_delay = \"0s\"\n{}", nodes_at(node.address.port()), authority.config(&["a"]));
    let mut proxy = Binary::start(&control.config(&lines)).await;
    let nghttp = Running::start("nghttp", &arguments(&format!("https://{}/", binary_door(&proxy))));
    eventually("it is held", async || count(proxy.health, "client_proxy_held_requests").await == 1).await;
    proxy.signal(Signal::TERM);
    nghttp.writes("recv GOAWAY frame").await;
    assert!(!nghttp.written().contains(":status:"));
    gate.open();
    let said = nghttp.end().await.well();
    assert!(said.out.contains("error_code=NO_ERROR(0x00)") && said.out.contains(":status: 200"), "{}", said.out);
    assert!(said.out.contains("GET 0"), "{}", said.out);
    assert_eq!(proxy.end().await.code(), Some(0));
    assert_eq!(proxy.line("stopped").expect("a last line")["everything_finished"], true);
}
