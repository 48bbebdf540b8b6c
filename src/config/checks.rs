//! What is wrong, or odd, between keys that are each well-formed.

use std::{net::SocketAddr, time::SystemTime};

use super::{
    AddressPart, Catalog, Certificate, Config, Environment, Mode, ProxyProtocol, Resumer, fault::shown,
    reading::Reading,
};

/// Reports keys that cannot stand together.
pub(crate) fn faults(config: &Config, reading: &Reading<'_>) {
    listeners(config, reading);
    if let Some(listen) = config.admin.listen
        && !listen.ip().is_loopback()
        && config.admin.token.is_none()
        && reading.sound(&["admin.listen", "admin.token"])
    {
        reading.fault(
            "admin.listen",
            "others can reach this address, and admin.token is not set",
            "set admin.token, or listen on a loopback address such as \"127.0.0.1:3004\"",
        );
    }
    if config.server.proxy_protocol != ProxyProtocol::Off
        && config.server.trusted_proxies.is_empty()
        && reading.sound(&["server.proxy_protocol", "server.trusted_proxies"])
    {
        reading.fault(
            "server.proxy_protocol",
            "server.trusted_proxies is empty: nobody's header would be believed",
            "write the networks of your load balancer into server.trusted_proxies, or \"off\" here",
        );
    }
    redis(config, reading);
    let pointer = match (&config.catalog, &config.resume.resumer) {
        (Catalog::Rest(rest), _) => Some(&rest.node_pointer),
        (_, Resumer::Rest(rest)) => Some(&rest.node_pointer),
        _ => None,
    };
    if pointer.is_some_and(String::is_empty)
        && config.upstream.address.needs_node()
        && reading.sound(&["catalog.rest.node_pointer", "upstream.address"])
    {
        reading.fault(
            "catalog.rest.node_pointer",
            "without it no answer names a node, and upstream.address needs one",
            "write such as \"/nodeIP\", or an upstream.address without {node}",
        );
    }
}

fn redis(config: &Config, reading: &Reading<'_>) {
    let Catalog::Redis(redis) = &config.catalog else { return };
    if !reading.sound(&["catalog.redis.urls", "catalog.redis.cluster"]) {
        return;
    }
    let tell = |wrong, remedy| reading.fault("catalog.redis.urls", wrong, remedy);
    match redis.urls.as_slice() {
        [] => tell("there is no server to ask", "write such as [\"redis://127.0.0.1:6379\"]"),
        [_, _, ..] if !redis.cluster => {
            tell("one server has one address", "write one URL, or catalog.redis.cluster = true for a Redis Cluster");
        }
        [first, others @ ..] if others.iter().any(|url| !first.is_of_one_cluster_with(url)) => {
            tell("the nodes of a cluster differ in TLS, user or password", "write the same for all");
        }
        urls if redis.cluster && urls.iter().any(|url| url.database != 0) => {
            tell("a Redis Cluster has no databases", "leave out the number at the end");
        }
        _ => {}
    }
}

fn listeners(config: &Config, reading: &Reading<'_>) {
    let tls = &config.server.tls;
    if !tls.listen.is_empty()
        && tls.certificates.is_empty()
        && reading.sound(&["server.tls.listen", "server.tls.certificates"])
    {
        reading.fault(
            "server.tls.certificates",
            "server.tls.listen has nothing to show to its clients",
            "write such as [{ cert = \"wild.pem\", key = \"wild.key\" }]",
        );
    }
    if config.server.listen.is_empty()
        && tls.listen.is_empty()
        && reading.sound(&["server.listen", "server.tls.listen"])
    {
        let remedy = "write at least one address, such as \"0.0.0.0:3002\"";
        reading.fault("server.listen", "there is nowhere to listen", remedy);
    }
    let server = config.server.listen.iter().map(|address| ("server.listen", *address));
    let secure = tls.listen.iter().map(|address| ("server.tls.listen", *address));
    let health = [("health.listen", config.health.listen)];
    let admin = config.admin.listen.map(|address| ("admin.listen", address));
    let all: Vec<_> = server.chain(secure).chain(health).chain(admin).collect();
    for (at, (key, address)) in all.iter().enumerate() {
        let twin = all[..at].iter().find(|(_, other)| collide(*address, *other));
        if let Some((other_key, other)) = twin
            && reading.sound(&[key, other_key])
        {
            let wrong = format!("{address} is taken by {other} of {other_key}");
            reading.fault(key, &wrong, "give each listener its own port");
        }
    }
}

/// Whether the system refuses to listen on both. IPv4 and IPv6 wildcards can stand side by side.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let wildcard = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (wildcard || one.ip() == other.ip())
}

/// What is allowed, and still likely not meant.
pub(crate) fn warnings(config: &Config, env: &Environment) -> Vec<String> {
    let upstream = &config.upstream;
    let direct = upstream.mode == Mode::Direct;
    let no_sandboxes = matches!(&config.catalog, Catalog::Static(nodes) if nodes.is_empty());
    let everybody = config.server.trusted_proxies.iter().any(|net| net.prefix_len() == 0);
    let fixed_port = !upstream.address.parts.contains(&AddressPart::Port);
    let resume = &config.resume;
    let nobody_wakes = matches!(resume.resumer, Resumer::None);
    let patient = matches!(&config.catalog, Catalog::Rest(rest) if rest.timeout >= resume.hold_timeout);
    let redis = match &config.catalog {
        Catalog::Redis(redis) => Some(redis),
        _ => None,
    };
    let bounded = [resume.max_held_per_client, config.wake.max_per_client_per_minute];
    let one_client = config.server.trusted_proxies.is_empty() && bounded.iter().any(|bound| *bound > 0);
    let all = [
        (no_sandboxes && nobody_wakes, "catalog.static is empty and resume.kind is \"none\": every sandbox is unknown"),
        (everybody, "server.trusted_proxies holds every address: any client can forge X-Forwarded-For"),
        (
            direct && upstream.allow_loopback,
            "upstream.allow_loopback: whoever controls the catalog reaches services of this machine",
        ),
        (
            one_client,
            "server.trusted_proxies is empty: behind a load balancer all clients are one to \
             resume.max_held_per_client and wake.max_per_client_per_minute",
        ),
        (!direct && upstream.allow_loopback, "upstream.allow_loopback has no effect in node mode"),
        (direct && fixed_port, "upstream.address has no {port}: in direct mode every port of a sandbox is this one"),
        (
            !nobody_wakes && resume.hold_timeout.as_secs() >= 60,
            "resume.hold_timeout: SDKs give up after 60 s, before the answer comes",
        ),
        (patient, "catalog.rest.timeout is not below resume.hold_timeout: a slow catalog looks like a slow wake"),
        (
            redis.is_some_and(|redis| redis.timeout >= resume.hold_timeout),
            "catalog.redis.timeout is not below resume.hold_timeout: a slow catalog looks like a slow wake",
        ),
        (
            redis.is_some_and(|redis| redis.ca.is_some() && redis.urls.iter().all(|url| !url.tls)),
            "catalog.redis.ca_base64 has no effect: no URL is rediss://",
        ),
        (
            redis.is_some_and(|redis| redis.push) && config.cache.ttl_with_push < config.cache.ttl,
            "cache.ttl_with_push is below cache.ttl: pushes make the catalog be asked more often",
        ),
        (
            resume.max_held_per_sandbox > resume.max_held,
            "resume.max_held_per_sandbox is above resume.max_held and has no effect",
        ),
    ];
    let odd = all.into_iter().filter(|(odd, _)| *odd).map(|(_, warning)| warning.to_owned());
    odd.chain(grpc(&resume.resumer)).chain(protocol(config, env)).chain(certificates(config)).collect()
}

/// What gives secrets away, or does nothing.
fn grpc(resumer: &Resumer) -> Vec<String> {
    let Resumer::Grpc(grpc) = resumer else { return Vec::new() };
    let local = |host: Option<&str>| host.is_some_and(|host| matches!(host, "127.0.0.1" | "[::1]" | "localhost"));
    let (host, _) = grpc.address.rsplit_once(':').unwrap_or_default();
    let plain = grpc.oauth.as_ref().filter(|oauth| oauth.token_url.scheme() == "http");
    let all = [
        (grpc.ca.is_some() && !grpc.tls, "resume.grpc.ca_base64 has no effect: resume.grpc.tls is false"),
        (
            grpc.oauth.is_some() && !grpc.tls && !local(Some(host)),
            "resume.grpc.oauth: its tokens travel in the clear, resume.grpc.tls is false",
        ),
        (
            plain.is_some_and(|oauth| !local(oauth.token_url.host_str())),
            "resume.grpc.oauth.token_url is http: the client's secret travels in the clear",
        ),
    ];
    all.into_iter().filter(|(odd, _)| *odd).map(|(_, warning)| warning.to_owned()).collect()
}

/// What clients will not like about certificates; they may be put right while it runs.
fn certificates(config: &Config) -> Vec<String> {
    let tls = &config.server.tls;
    let now = SystemTime::now();
    let mut odd = Vec::new();
    if tls.listen.is_empty() && !tls.certificates.is_empty() {
        odd.push("server.tls.certificates: nobody sees them, server.tls.listen is empty".to_owned());
    }
    for (at, certificate) in tls.certificates.iter().enumerate() {
        let Certificate { files, names, not_before, not_after, .. } = &**certificate;
        let mut tell = |wrong: &str| {
            let file = shown(&files.cert.to_string_lossy());
            odd.push(format!("server.tls.certificates[{at}].cert = {file}: {wrong}"));
        };
        if *not_after < now {
            tell(&format!("it expired at {}", humantime::format_rfc3339_seconds(*not_after)));
        }
        if *not_before > now {
            tell(&format!("it is good from {} only", humantime::format_rfc3339_seconds(*not_before)));
        }
        if names.is_empty() {
            tell("it has no DNS name (subjectAltName)");
        }
    }
    odd
}

/// Traces speak gRPC, whatever else the environment asks for.
fn protocol(config: &Config, env: &Environment) -> Option<String> {
    let (name, _) = env.first(&["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"])?;
    let ignored = config.otlp.endpoint.is_some() && !env.says(name, "grpc");
    ignored.then(|| format!("{name} is not grpc, which is all that traces speak: otlp.endpoint must take that"))
}
