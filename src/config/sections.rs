//! The tables of the file, key by key. Whoever adds a key adds a line here and one in
//! `config/default.toml`.

use std::sync::Arc;

use super::{
    AccessLog, Admin, Cache, Catalog, Certificate, CertificateFiles, Config, Health, Log, LogFormat, Mode, Otlp,
    ProxyProtocol, RestCatalog, RestResume, Resume, Server, Shutdown, Tls, Upstream, UpstreamProtocol, kinds,
    table::Table,
};
use crate::types::{Port, Secret};

/// What bounds on memory may be at most: more is a typing error.
const MANY: usize = 100_000_000;

/// What stands in for the API's key where none is written.
const API_KEY: &str = "${E2B_API_KEY}";

/// What tells every OpenTelemetry program where its traces go; the first that is set counts.
const COLLECTOR: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// What tells every OpenTelemetry program that there are to be none, each with the word that says so.
const NO_TRACES: [(&str, &str); 2] = [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")];

/// Who wakes.
#[derive(Clone, Copy, PartialEq)]
enum Resumer {
    Nobody,
    Rest,
}

/// Who knows where a sandbox runs.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Static,
    Rest,
}

pub(crate) fn read(mut root: Table<'_>) -> Config {
    let server = server(root.table("server", true));
    let health = root.table("health", true).text("listen", "0.0.0.0:3003", kinds::socket);
    let admin = admin(root.table("admin", true));
    let catalog_table = root.table("catalog", true);
    let cache = cache(root.table("cache", true));
    let mut resume_table = root.table("resume", true);
    // First of all: the wake reads its answers with the catalog's pointer.
    let resumer = resume_table.choice("kind", &[("none", Resumer::Nobody), ("rest", Resumer::Rest)]);
    let (catalog, node_pointer) = catalog(catalog_table, resumer);
    let resume = resume(resume_table, resumer, node_pointer);
    Config {
        server,
        health: Health { listen: health },
        admin,
        catalog,
        cache,
        resume,
        upstream: upstream(root.table("upstream", true)),
        shutdown: shutdown(root.table("shutdown", true)),
        otlp: otlp(root.table("otlp", true)),
        log: log(root.table("log", true)),
    }
}

fn server(mut table: Table<'_>) -> Server {
    use ProxyProtocol::{Off, Optional, Required};
    Server {
        listen: table.list("listen", &["0.0.0.0:3002"], kinds::socket),
        workers: table.integer("workers", 0, 0..=1024),
        domains: table.list("domains", &[], kinds::domain),
        header_hosts: table.list("header_hosts", &[], kinds::domain),
        default_port: Port::new(table.integer("default_port", 0, 0..=u16::MAX)),
        max_connections: table.integer("max_connections", 16384, 1..=MANY),
        header_read_timeout: table.text("header_read_timeout", "30s", kinds::positive),
        idle_timeout: table.text("idle_timeout", "620s", kinds::positive),
        proxy_protocol: table.choice("proxy_protocol", &[("off", Off), ("optional", Optional), ("required", Required)]),
        trusted_proxies: table.list("trusted_proxies", &[], kinds::network),
        tls: tls(table.table("tls", true)),
    }
}

fn tls(mut table: Table<'_>) -> Tls {
    Tls {
        listen: table.list("listen", &[], kinds::socket),
        certificates: table.records("certificates", ["cert", "key"], |[cert, key]| {
            let read = Certificate::load(&CertificateFiles { cert: cert.into(), key: key.into() });
            read.map(Arc::new)
                .map_err(|wrongs| wrongs.into_iter().map(|(part, wrong)| (part as usize, wrong)).collect())
        }),
    }
}

fn admin(mut table: Table<'_>) -> Admin {
    Admin {
        listen: table.text("listen", "127.0.0.1:3004", kinds::socket_or_off),
        token: table.secret("token", "", false),
    }
}

fn catalog(mut table: Table<'_>, resumer: Resumer) -> (Catalog, String) {
    let source = table.choice("kind", &[("static", Source::Static), ("rest", Source::Rest)]);
    let nodes = table.pairs("static", source == Source::Static, kinds::placement);
    let mut rest = table.table("rest", source == Source::Rest);
    let url = rest.text("url", "http://127.0.0.1:3000", kinds::url);
    let api_key = rest.secret("api_key", API_KEY, true);
    let timeout = rest.text("timeout", "5s", kinds::positive);
    rest.live |= resumer == Resumer::Rest;
    let node_pointer = rest.text("node_pointer", "/nodeIP", kinds::pointer);
    let catalog = match source {
        Source::Static => Catalog::Static(nodes),
        Source::Rest => {
            Catalog::Rest(RestCatalog { url, api_key: or_faulty(api_key), timeout, node_pointer: node_pointer.clone() })
        }
    };
    (catalog, node_pointer)
}

fn cache(mut table: Table<'_>) -> Cache {
    Cache {
        ttl: table.text("ttl", "1s", kinds::positive),
        stale_if_error: table.text("stale_if_error", "60s", kinds::duration),
        negative_ttl: table.text("negative_ttl", "1s", kinds::positive),
        max_entries: table.integer("max_entries", 1_000_000, 1..=MANY),
    }
}

fn resume(mut table: Table<'_>, resumer: Resumer, node_pointer: String) -> Resume {
    let hold_timeout = table.text("hold_timeout", "50s", kinds::positive);
    let call_timeout = table.text("call_timeout", "120s", kinds::positive);
    let max_held = table.integer("max_held", 10_000, 1..=MANY);
    let max_held_per_sandbox = table.integer("max_held_per_sandbox", 2000, 1..=MANY);
    let mut rest = table.table("rest", resumer == Resumer::Rest);
    let call = RestResume {
        url: rest.text("url", "http://127.0.0.1:3000", kinds::url),
        api_key: or_faulty(rest.secret("api_key", API_KEY, true)),
        sandbox_timeout: rest.text("sandbox_timeout", "300s", kinds::time_to_live),
        node_pointer,
    };
    Resume {
        rest: (resumer == Resumer::Rest).then_some(call),
        hold_timeout,
        call_timeout,
        max_held,
        max_held_per_sandbox,
    }
}

fn upstream(mut table: Table<'_>) -> Upstream {
    let mode = table.choice("mode", &[("node", Mode::Node), ("direct", Mode::Direct)]);
    let address = match mode {
        Mode::Node => "{node}:5007",
        Mode::Direct => "{node}:{port}",
    };
    Upstream {
        mode,
        address: table.text("address", address, kinds::address),
        protocol: table.choice(
            "protocol",
            &[("auto", UpstreamProtocol::Auto), ("http1", UpstreamProtocol::Http1), ("h2c", UpstreamProtocol::H2c)],
        ),
        connect_timeout: table.text("connect_timeout", "2s", kinds::positive),
        connect_attempts: table.integer("connect_attempts", 5, 1..=20),
        idle_timeout: table.text("idle_timeout", "600s", kinds::positive),
        response_header_timeout: table.text("response_header_timeout", "off", kinds::positive_or_off),
        max_connections_per_sandbox: table.integer("max_connections_per_sandbox", 0, 0..=MANY),
        allow_loopback: table.boolean("allow_loopback", false),
        rewrite_shared_host: table.boolean("rewrite_shared_host", true),
    }
}

fn shutdown(mut table: Table<'_>) -> Shutdown {
    Shutdown {
        drain_delay: table.text("drain_delay", "15s", kinds::duration),
        drain_timeout: table.text("drain_timeout", "24h", kinds::duration),
    }
}

fn otlp(mut table: Table<'_>) -> Otlp {
    table.overrule("endpoint", "off", &NO_TRACES);
    Otlp { endpoint: table.text_or_variable("endpoint", &COLLECTOR, kinds::url_or_off) }
}

fn log(mut table: Table<'_>) -> Log {
    use AccessLog::{All, Errors, Off};
    use LogFormat::{Auto, Json, Text};
    Log {
        format: table.choice("format", &[("auto", Auto), ("text", Text), ("json", Json)]),
        filter: table.text("filter", "info", kinds::filter),
        access: table.choice("access", &[("all", All), ("errors", Errors), ("off", Off)]),
    }
}

/// A required secret is missing only together with a fault, which keeps the value from use.
fn or_faulty(secret: Option<Secret>) -> Secret {
    secret.unwrap_or_else(|| Secret::new(""))
}
