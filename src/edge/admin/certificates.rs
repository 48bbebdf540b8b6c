//! `GET /certificates`: what is shown to clients that speak TLS.

use std::{sync::Arc, time::SystemTime};

use axum::{Json, Router, extract::State, routing::get};
use serde_json::{Value, json};

use crate::{
    config::Certificate,
    edge::tls::{Certificates, Shown},
};

/// The page.
pub(crate) fn pages(certificates: Arc<Certificates>) -> Router {
    Router::new().route("/certificates", get(all)).with_state(certificates)
}

async fn all(State(certificates): State<Arc<Certificates>>) -> Json<Value> {
    let all: Vec<_> = certificates.shown().iter().map(one).collect();
    Json(json!({ "certificates": all }))
}

fn one(Shown { certificate, problem }: &Shown) -> Value {
    let Certificate { files, names, not_before, not_after, serial, fingerprint, loaded, .. } = &**certificate;
    let time = |at: SystemTime| humantime::format_rfc3339_seconds(at).to_string();
    json!({
        "file": files.cert.display().to_string(),
        "names": names,
        "notBefore": time(*not_before),
        "notAfter": time(*not_after),
        "expired": *not_after < SystemTime::now(),
        "serial": serial,
        "sha256": fingerprint,
        "loadedAt": time(*loaded),
        "problem": problem,
    })
}
