//! The README's reference of metrics is what `/metrics` shows, name by name and label by label.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{
    Raw, Server, answer,
    binary::Binary,
    collector::Collector,
    control_plane::{ControlPlane, Step},
    count, eventually, get, nodes_at, request, send,
};
use crate::tls::{Authority, binary_door};

/// A metric and the names of its labels.
type Metrics = BTreeMap<String, BTreeSet<String>>;

/// The names in the first column of the README's table, written as `name{label,label}`.
fn documented(readme: &str) -> Metrics {
    let rows =
        readme.lines().skip_while(|line| !line.starts_with("| metric |")).take_while(|line| line.starts_with('|'));
    let cells: Vec<&str> = rows.skip(2).filter_map(|row| row.split('|').nth(1)).collect();
    assert!(!cells.is_empty(), "the README has a table of metrics");
    let names: Vec<&str> = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let metrics: Metrics = names
        .iter()
        .map(|name| {
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
            (name.to_owned(), labels.map(str::to_owned).collect())
        })
        .collect();
    assert_eq!(metrics.len(), names.len(), "each once: {names:?}");
    metrics
}

/// What the exposition shows; a histogram's parts are one metric, and their `le` is none of its labels.
fn exposed(exposition: &str) -> Metrics {
    let kinds: BTreeMap<&str, &str> = told(exposition, "# TYPE ");
    let helps: BTreeMap<&str, &str> = told(exposition, "# HELP ");
    assert_eq!(kinds.keys().collect::<Vec<_>>(), helps.keys().collect::<Vec<_>>(), "each has its words");
    let mut metrics = Metrics::new();
    for line in exposition.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, _) = line.rsplit_once(' ').expect("a name and a number");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
        let whole = parts.into_iter().find(|whole| kinds.get(whole) == Some(&"histogram")).unwrap_or(name);
        assert!(kinds.contains_key(whole), "{line}");
        let labels = labels.trim_end_matches('}').split("\",").filter_map(|pair| Some(pair.split_once('=')?.0));
        let known = metrics.entry(whole.to_owned()).or_default();
        known.extend(labels.filter(|label| *label != "le").map(str::to_owned));
    }
    metrics
}

fn told<'t>(exposition: &'t str, what: &str) -> BTreeMap<&'t str, &'t str> {
    exposition.lines().filter_map(|line| line.strip_prefix(what)?.split_once(' ')).collect()
}

/// The upper ends of a histogram's buckets, without infinity.
fn buckets(exposition: &str, name: &str) -> Vec<f64> {
    let begin = format!("{name}_bucket{{le=\"");
    let ends = exposition.lines().filter_map(|line| line.strip_prefix(&begin)?.split('"').next());
    ends.filter(|end| *end != "+Inf").map(|end| end.parse().expect("a number")).collect()
}

#[tokio::test]
async fn every_metric_of_the_readme_is_exposed_and_every_exposed_one_is_in_the_readme() {
    let (collector, control) = (Collector::start().await, ControlPlane::start().await);
    let node = Server::start(async |_| answer(200, "hello")).await;
    let authority = Authority::with_one();
    let config = collector.config(&control.config(&nodes_at(node.address.port())));
    let headers = "server.proxy_protocol = \"optional\"\nserver.trusted_proxies = [\"127.0.0.1/32\"]\n";
    let config = format!("{headers}{}{config}", authority.config(&["a"]));
    let proxy = Binary::start_in(&config, &[("OTEL_BSP_SCHEDULE_DELAY", "20")]).await;
    // Woken; moved in between, which is a dial in vain and a resend; unknown.
    control.sandbox("asleep").paused("127.0.0.1").wakes([Step::Truly]);
    let moved = control.sandbox("moved");
    moved.running("127.0.0.3");
    let elsewhere = Step::Truly.doing({
        let moved = moved.clone();
        move || {
            moved.running("127.0.0.1");
        }
    });
    moved.looks_up([Step::Truly, elsewhere]);
    for (sandbox, status) in [("asleep", 200), ("moved", 200), ("nobody", 502)] {
        let request = request("GET", 8000, sandbox, "/").body(http_body_util::Full::default());
        let answer = send(proxy.address, request.expect("a request")).await;
        assert_eq!(answer.status, status, "{sandbox}: {}", answer.text());
    }
    authority.http1().connect(binary_door(&proxy)).await;
    authority.issue("a", &[]);
    eventually("it is read again", async || {
        count(proxy.health, "client_proxy_tls_certificate_reloads_total{outcome=\"ok\"}").await > 0
    })
    .await;
    let mut nonsense = Raw::connect(proxy.address).await;
    nonsense.write("PROXY nonsense\r\n").await;
    nonsense.is_left().await;
    eventually("spans are told", async || {
        count(proxy.health, "client_proxy_spans_total{outcome=\"exported\"}").await > 0
    })
    .await;
    for gauge in ["client_proxy_held_requests", "client_proxy_connections{protocol=\"http1\"}"] {
        eventually(&format!("{gauge} is back at 0"), async || count(proxy.health, gauge).await == 0).await;
    }

    let readme = include_str!("../../README.md");
    let exposition = get(proxy.health, "/metrics").await.text();
    assert_eq!(exposed(&exposition), documented(readme));

    let stated = readme.lines().find_map(|line| line.strip_prefix("Histograms count up to ")).expect("the buckets");
    let stated: Vec<f64> =
        stated.split([',', ' ']).filter(|end| !end.is_empty()).map_while(|end| end.parse().ok()).collect();
    for (name, _) in told(&exposition, "# TYPE ").into_iter().filter(|(_, kind)| *kind == "histogram") {
        assert_eq!(buckets(&exposition, name), stated, "{name}");
    }
    let value = |name: &str| {
        let line = exposition.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {exposition}")).parse::<f64>().expect("a number")
    };
    assert!(value("process_cpu_seconds_total") > 0.0 && value("process_resident_memory_bytes") > 1e6);
    assert!((4.0..1000.0).contains(&value("process_open_fds")) && value("process_threads") >= 4.0);
}
