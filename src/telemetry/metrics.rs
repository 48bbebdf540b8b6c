//! Every metric and label name of this proxy. Handles are made once and kept; the recorder is the
//! process's own object, not a global, so that two proxies in one process do not share numbers.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use dashmap::DashMap;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder as _, SharedString, Unit};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_process::Collector;
use tokio::time::Instant;

use super::log;

const HERE: Metadata<'static> = Metadata::new("client_proxy", Level::INFO, None);

/// Seconds; from what this proxy alone takes, over the longest hold, to a terminal that is open for an hour.
const BUCKETS: [f64; 20] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 3600.0,
];

/// hyper passes on three digits.
const STATUSES: usize = 1000;

/// The handles.
pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// What sandboxes answered, by status: nearly all requests.
    answered: Box<[OnceLock<Counter>]>,
    requests: DashMap<(Origin, u16, &'static str), Counter>,
    pub(crate) request_duration: Histogram,
    pub(crate) time_to_first_byte: Histogram,
    pub(crate) held_requests: Gauge,
    pub(crate) hold_duration: Histogram,
    pub(crate) wake_duration: Histogram,
    pub(crate) coalesced_requests: Counter,
    pub(crate) cache_hits: Counter,
    pub(crate) catalog_push_up: Gauge,
    pub(crate) wakes_suspended: Gauge,
    pub(crate) queued_wakes: Gauge,
    pub(crate) upstream_connections: Gauge,
    pub(crate) connections: Connections,
    pub(crate) tunnels: Gauge,
    log_lines_dropped: Counter,
    process: Collector,
    /// When the process's own figures were read last.
    looked: Mutex<Option<Instant>>,
}

/// Clients' connections, by what they speak.
pub(crate) struct Connections {
    /// They have not said enough yet.
    pub(crate) unknown: Gauge,
    pub(crate) http1: Gauge,
    pub(crate) http2: Gauge,
}

/// The process's own figures are read from /proc, descriptor by descriptor: no more often than this, however often
/// somebody scrapes.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Who made an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Proxy,
    Sandbox,
}

impl Origin {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Sandbox => "sandbox",
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Result<Arc<Self>, BuildError> {
        let suffix = Matcher::Suffix("_seconds".into());
        let recorder = PrometheusBuilder::new().set_buckets_for_metric(suffix, &BUCKETS)?.build_recorder();
        describe(&recorder);
        let key = |name| Key::from_static_name(name);
        let histogram = |name| recorder.register_histogram(&key(name), &HERE);
        let counter = |name| recorder.register_counter(&key(name), &HERE);
        let gauge = |name| recorder.register_gauge(&key(name), &HERE);
        let clients = |protocol| {
            let key = Key::from_parts("client_proxy_connections", vec![Label::new("protocol", protocol)]);
            recorder.register_gauge(&key, &HERE)
        };
        let version =
            Key::from_parts("client_proxy_build_info", vec![Label::new("version", env!("CARGO_PKG_VERSION"))]);
        recorder.register_gauge(&version, &HERE).set(1.0);
        Ok(Arc::new(Self {
            request_duration: histogram("client_proxy_request_duration_seconds"),
            time_to_first_byte: histogram("client_proxy_time_to_first_byte_seconds"),
            held_requests: gauge("client_proxy_held_requests"),
            hold_duration: histogram("client_proxy_hold_duration_seconds"),
            wake_duration: histogram("client_proxy_wake_duration_seconds"),
            coalesced_requests: counter("client_proxy_coalesced_requests_total"),
            cache_hits: counter("client_proxy_cache_hits_total"),
            catalog_push_up: gauge("client_proxy_catalog_push_up"),
            wakes_suspended: gauge("client_proxy_wakes_suspended"),
            queued_wakes: gauge("client_proxy_queued_wakes"),
            upstream_connections: gauge("client_proxy_upstream_connections"),
            connections: Connections { unknown: clients("unknown"), http1: clients("http1"), http2: clients("http2") },
            tunnels: gauge("client_proxy_tunnels"),
            log_lines_dropped: counter("client_proxy_log_lines_dropped_total"),
            answered: (0..STATUSES).map(|_| OnceLock::new()).collect(),
            requests: DashMap::new(),
            process: Collector::default(),
            looked: Mutex::new(None),
            handle: recorder.handle(),
            recorder,
        }))
    }

    /// `client_proxy_requests_total{origin,status,error}`; status 499: the client left before an answer.
    pub(crate) fn request(&self, origin: Origin, status: u16, error: &'static str) {
        if let (Origin::Sandbox, "", Some(counter)) = (origin, error, self.answered.get(usize::from(status))) {
            return counter.get_or_init(|| self.requests(origin, status, error)).increment(1);
        }
        let key = (origin, status, error);
        if let Some(counter) = self.requests.get(&key) {
            return counter.increment(1);
        }
        let counter = self.requests(origin, status, error);
        counter.increment(1);
        self.requests.insert(key, counter);
    }

    fn requests(&self, origin: Origin, status: u16, error: &'static str) -> Counter {
        let labels = vec![
            Label::new("origin", origin.as_str()),
            Label::new("status", status.to_string()),
            Label::new("error", error),
        ];
        self.labelled("client_proxy_requests_total", labels)
    }

    /// `client_proxy_wakes_total{outcome}`: one per call to the control plane.
    pub(crate) fn wake(&self, outcome: &'static str, took: Duration) {
        self.labelled("client_proxy_wakes_total", vec![Label::new("outcome", outcome)]).increment(1);
        self.wake_duration.record(took);
    }

    /// `client_proxy_lookups_total{outcome}`
    pub(crate) fn lookup(&self, outcome: &'static str) {
        self.labelled("client_proxy_lookups_total", vec![Label::new("outcome", outcome)]).increment(1);
    }

    /// `client_proxy_retries_total{reason}`
    pub(crate) fn retry(&self, reason: &'static str) {
        self.labelled("client_proxy_retries_total", vec![Label::new("reason", reason)]).increment(1);
    }

    /// `client_proxy_upstream_connections_total{result}`
    pub(crate) fn dial(&self, result: &'static str) {
        self.labelled("client_proxy_upstream_connections_total", vec![Label::new("result", result)]).increment(1);
    }

    /// `client_proxy_spans_total{outcome}`: spans of traces, by what became of them.
    pub(crate) fn spans(&self, outcome: &'static str) -> Counter {
        self.labelled("client_proxy_spans_total", vec![Label::new("outcome", outcome)])
    }

    /// `client_proxy_tls_handshakes_total{result}`
    pub(crate) fn handshake(&self, result: &'static str) {
        self.labelled("client_proxy_tls_handshakes_total", vec![Label::new("result", result)]).increment(1);
    }

    /// `client_proxy_tls_certificate_reloads_total{outcome}`
    pub(crate) fn certificate_reload(&self, outcome: &'static str) {
        self.labelled("client_proxy_tls_certificate_reloads_total", vec![Label::new("outcome", outcome)]).increment(1);
    }

    /// `client_proxy_tls_certificate_expiry_timestamp_seconds{file}`, Unix time; NaN for one that is in use no more.
    pub(crate) fn certificate_expiry(&self, file: String, at: f64) {
        let label = vec![Label::new("file", file)];
        let key = Key::from_parts("client_proxy_tls_certificate_expiry_timestamp_seconds", label);
        self.recorder.register_gauge(&key, &HERE).set(at);
    }

    /// `client_proxy_proxy_protocol_refused_total{reason}`
    pub(crate) fn proxy_header_refused(&self, reason: &'static str) {
        self.labelled("client_proxy_proxy_protocol_refused_total", vec![Label::new("reason", reason)]).increment(1);
    }

    fn labelled(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        self.recorder.register_counter(&Key::from_parts(name, labels), &HERE)
    }

    /// The Prometheus exposition.
    pub(crate) fn render(&self) -> String {
        // Counted where it happens, for the whole process: nothing here can be asked from there.
        self.log_lines_dropped.absolute(log::lines_dropped());
        self.look_at_process();
        self.handle.render()
    }

    fn look_at_process(&self) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.is_none_or(|at| at.elapsed() >= LOOK_AGAIN) {
            metrics::with_local_recorder(&self.recorder, || self.process.collect());
            *looked = Some(Instant::now());
        }
    }

    /// Moves recorded samples into their buckets: memory stays bounded when nobody scrapes. Every few
    /// seconds.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

fn describe(recorder: &PrometheusRecorder) {
    metrics::with_local_recorder(recorder, || Collector::default().describe());
    let counters = [
        ("client_proxy_requests_total", "Requests that ended, by who answered, status and error code"),
        ("client_proxy_coalesced_requests_total", "Requests that waited for a lookup or wake of another request"),
        ("client_proxy_wakes_total", "Calls to the control plane to wake a sandbox, by outcome"),
        ("client_proxy_lookups_total", "Calls to the catalog, by outcome"),
        ("client_proxy_cache_hits_total", "Requests whose sandbox was known without asking"),
        ("client_proxy_retries_total", "Requests sent again, by reason"),
        ("client_proxy_upstream_connections_total", "Dials, by result"),
        ("client_proxy_log_lines_dropped_total", "Log lines that stderr did not take in time"),
        ("client_proxy_tls_handshakes_total", "TLS handshakes that ended, by result"),
        ("client_proxy_tls_certificate_reloads_total", "Certificates that were read again, by outcome"),
        ("client_proxy_proxy_protocol_refused_total", "Connections refused for their PROXY header, by reason"),
        ("client_proxy_spans_total", "Spans of traces, by what became of them"),
    ];
    let gauges = [
        ("client_proxy_held_requests", "Requests that wait for their sandbox now"),
        ("client_proxy_upstream_connections", "Connections to nodes and sandboxes now"),
        ("client_proxy_connections", "Client connections now, by protocol"),
        ("client_proxy_catalog_push_up", "1 while every change of the catalog is pushed, 0 otherwise"),
        ("client_proxy_wakes_suspended", "1 while an operator has switched waking off, 0 otherwise"),
        ("client_proxy_queued_wakes", "Wakes that wait for their turn to call the control plane now"),
        ("client_proxy_tunnels", "Connections that were switched to another protocol than HTTP, now"),
        ("client_proxy_tls_certificate_expiry_timestamp_seconds", "When a certificate expires, Unix time"),
        ("client_proxy_build_info", "1; the version is a label"),
    ];
    let histograms = [
        ("client_proxy_request_duration_seconds", "Head received to last byte sent"),
        ("client_proxy_time_to_first_byte_seconds", "Head received to answer's head"),
        ("client_proxy_hold_duration_seconds", "Time that held requests were held"),
        ("client_proxy_wake_duration_seconds", "One call to wake"),
    ];
    let text = |text: &'static str| SharedString::const_str(text);
    for (name, help) in counters {
        recorder.describe_counter(KeyName::from_const_str(name), None, text(help));
    }
    for (name, help) in gauges {
        recorder.describe_gauge(KeyName::from_const_str(name), None, text(help));
    }
    for (name, help) in histograms {
        recorder.describe_histogram(KeyName::from_const_str(name), Some(Unit::Seconds), text(help));
    }
}

/// One more in a gauge until dropped: a cancelled request counts down like a finished one.
pub(crate) struct Gauged(Gauge);

impl Gauged {
    pub(crate) fn new(gauge: &Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge.clone())
    }
}

impl Drop for Gauged {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_process_is_looked_at_once_a_second_however_often_somebody_scrapes() {
        let metrics = Metrics::new().expect("metrics");
        let descriptors = || {
            let text = metrics.render();
            let line = text.lines().find_map(|line| line.strip_prefix("process_open_fds "));
            line.expect("a sample").to_owned()
        };
        let first = descriptors();
        let mut files = Vec::new();
        for _ in 0..50 {
            files.push(std::fs::File::open("/dev/null").expect("a file"));
            assert_eq!(descriptors(), first);
        }
        while descriptors() == first {
            files.push(std::fs::File::open("/dev/null").expect("a file"));
            tokio::time::advance(LOOK_AGAIN).await;
        }
    }
}
