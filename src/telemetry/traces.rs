//! Traces: what happened to a request and when, told to an OpenTelemetry collector by OTLP/gRPC. Spans are
//! made of facts that are known anyway; who works on a request neither carries them nor enters them. Without
//! a collector there is none of this.

use std::{env, net::IpAddr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, header::AUTHORIZATION, request::Parts};
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter, WithExportConfig as _, WithTonicConfig as _,
    tonic_types::{metadata::MetadataMap, transport::ClientTlsConfig},
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkError,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{SdkTracer, SdkTracerProvider},
};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use tokio::time::Instant;

pub(crate) use self::request::{Cause, Ending, RequestTrace};
use super::Metrics;

mod delivery;
mod parent;
mod request;

/// Makes spans and delivers them; one for the process.
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// To be called inside the runtime that is to carry the connection. Nothing is dialled before there is a
    /// span. What OpenTelemetry's own variables say of sampling, headers, the resource and batches holds, but for
    /// the size of the queue (`OTEL_BSP_MAX_QUEUE_SIZE`), which is this proxy's own.
    pub(crate) fn start(collector: &Url, metrics: &Metrics) -> Result<Self, ExporterBuildError> {
        let mut address = collector.clone();
        // Neither can fail for an http URL.
        let _ = address.set_username("");
        let _ = address.set_password(None);
        let mut exporter = SpanExporter::builder().with_tonic().with_endpoint(address.as_str());
        if address.scheme() == "https" {
            exporter = exporter.with_tls_config(ClientTlsConfig::new().with_native_roots());
        }
        if let Some(credentials) = basic(collector) {
            let headers = [(AUTHORIZATION, credentials)].into_iter().collect();
            exporter = exporter.with_metadata(MetadataMap::from_headers(headers));
        }
        let provider = SdkTracerProvider::builder()
            .with_span_processor(delivery::Queue::new(exporter.build()?, metrics))
            .with_resource(resource())
            .build();
        Ok(Self { tracer: provider.tracer("client-proxy"), provider })
    }

    /// The trace of one request, which began `now`; it goes on the caller's trace where the caller has one.
    pub(crate) fn request(&self, head: &Parts, client: IpAddr, now: Instant) -> RequestTrace {
        RequestTrace::begin(&self.tracer, head, client, now)
    }

    /// Delivers what waits, and makes no more spans. Blocks, but not for longer than `limit`.
    pub(crate) fn end(&self, limit: Duration) {
        match self.provider.shutdown_with_timeout(limit) {
            Ok(()) | Err(OTelSdkError::AlreadyShutdown) => {}
            Err(error) => tracing::warn!(%error, "the last spans may not have reached the collector"),
        }
    }
}

/// Who speaks: what the environment does not say otherwise.
fn resource() -> Resource {
    let ours = Resource::builder_empty()
        .with_service_name("client-proxy")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    match env::var("OTEL_SERVICE_NAME") {
        Ok(name) if !name.is_empty() => ours.with_service_name(name).build(),
        _ => ours.build(),
    }
}

/// User and password of a URL as `Authorization` (RFC 7617).
fn basic(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair: Vec<u8> = percent_decode_str(url.username()).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(url.password().unwrap_or_default()));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}
