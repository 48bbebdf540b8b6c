//! Spans on their way to the collector: a bounded queue, batches, and a word in the log when it takes none.
//! The SDK's batches run on a thread of their own; the connection lives on the control runtime. A collector
//! that is slow, hangs or is gone costs spans, and nothing else.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use metrics::Counter;
use opentelemetry::Context;
use opentelemetry_otlp::SpanExporter as Exporter;
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor},
};
use tokio::time::Instant;

use crate::telemetry::Metrics;

/// Spans that may wait; a request makes two or three.
const ROOM: usize = 4096;
/// A collector that is away for a day is no news each second.
const SILENCE: Duration = Duration::from_mins(1);

/// Where ended spans wait.
#[derive(Debug)]
pub(super) struct Queue {
    batches: BatchSpanProcessor,
    waiting: Arc<AtomicUsize>,
    dropped: Counter,
}

impl Queue {
    pub(super) fn new(exporter: Exporter, metrics: &Metrics) -> Self {
        let waiting = Arc::new(AtomicUsize::new(0));
        let courier = Courier {
            exporter,
            waiting: waiting.clone(),
            exported: metrics.spans("exported"),
            failed: metrics.spans("failed"),
            told: Mutex::new(None),
        };
        // The room is counted here, where what does not fit is seen; there it is never exceeded.
        let config = BatchConfigBuilder::default().with_max_queue_size(ROOM).build();
        let batches = BatchSpanProcessor::builder(courier).with_batch_config(config).build();
        Self { batches, waiting, dropped: metrics.spans("dropped") }
    }
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.waiting.fetch_add(1, Relaxed) < ROOM {
            self.batches.on_end(span);
        } else {
            self.waiting.fetch_sub(1, Relaxed);
            self.dropped.increment(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Takes a batch to the collector.
#[derive(Debug)]
struct Courier {
    exporter: Exporter,
    waiting: Arc<AtomicUsize>,
    exported: Counter,
    failed: Counter,
    /// When the log last heard of a batch that was lost.
    told: Mutex<Option<Instant>>,
}

impl SpanExporter for Courier {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        self.waiting.fetch_sub(count, Relaxed);
        let outcome = self.exporter.export(batch).await;
        let counter = if outcome.is_ok() { &self.exported } else { &self.failed };
        counter.increment(count as u64);
        if let Err(error) = &outcome {
            self.tell(error, count);
        }
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl Courier {
    fn tell(&self, error: &OTelSdkError, lost: usize) {
        let now = Instant::now();
        let Ok(mut told) = self.told.lock() else { return };
        if told.is_none_or(|told| now >= told + SILENCE) {
            *told = Some(now);
            tracing::warn!(%error, lost, "the collector took no spans; more of this is told once a minute at most");
        }
    }
}
