//! The tables of the file, key by key. Whoever adds a key adds a line here and one in
//! `config/default.toml`.

use std::sync::Arc;

use super::{
    AccessLog, Admin, Certificate, CertificateFiles, Config, Health, Log, LogFormat, Mode, Otlp, ProxyProtocol, Server,
    Shutdown, Tls, Upstream, UpstreamProtocol, Wake, kinds, table::Table,
};
use crate::types::Port;

mod control;

/// What bounds on memory may be at most: more is a typing error.
const MANY: usize = 100_000_000;

/// What tells every OpenTelemetry program where its traces go; the first that is set counts.
const COLLECTOR: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// What tells every OpenTelemetry program that there are to be none, each with the word that says so.
const NO_TRACES: [(&str, &str); 2] = [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")];

pub(crate) fn read(mut root: Table<'_>) -> Config {
    let server = server(root.table("server", true));
    let health = root.table("health", true).text("listen", "0.0.0.0:3003", kinds::socket);
    let admin = admin(root.table("admin", true));
    let (catalog, cache, resume) = control::read(&mut root);
    Config {
        server,
        health: Health { listen: health },
        admin,
        catalog,
        cache,
        resume,
        wake: wake(root.table("wake", true)),
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

fn wake(mut table: Table<'_>) -> Wake {
    Wake {
        health_probe: table.boolean("health_probe", true),
        ignore_paths: table.list("ignore_paths", &[], kinds::path_rule),
        ignore_user_agents: table.list("ignore_user_agents", &[], kinds::words),
        max_per_client_per_minute: table.integer("max_per_client_per_minute", 0, 0..=MANY),
        answer_preflight: table.boolean("answer_preflight", true),
        page_after: table.text("page_after", "off", kinds::positive_or_off),
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
