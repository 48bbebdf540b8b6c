//! The variables of E2B's client-proxy, and the file that says the same.

use client_proxy::config::{Catalog, Config, Faults, Loaded, Place, RedisCatalog, Resumer};

const FILE: &str = include_str!("../../config/e2b.toml");

fn try_load(env: &[(&str, &str)]) -> Result<Loaded, Faults> {
    Config::load_e2b(&env.iter().copied().collect())
}

fn load(env: &[(&str, &str)]) -> Loaded {
    try_load(env).unwrap_or_else(|faults| panic!("{faults}"))
}

fn redis(env: &[(&str, &str)]) -> RedisCatalog {
    match load(env).config.catalog {
        Catalog::Redis(redis) => redis,
        other => panic!("{other:?}"),
    }
}

/// A certificate in Base64.
pub(super) fn authority() -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let pair = rcgen::generate_simple_self_signed(["redis.test".to_owned()]).expect("a certificate");
    STANDARD.encode(pair.cert.pem())
}

#[test]
fn the_file_and_the_variables_come_to_the_same() {
    let (redis, api) = ("10.0.0.5:6379", "api.service.consul:5009");
    let env = load(&[("REDIS_URL", redis), ("API_INTERNAL_GRPC_ADDRESS", api)]);
    let variables = [("REDIS_URL", &*format!("redis://{redis}")), ("API_INTERNAL_GRPC_ADDRESS", api)];
    let file =
        Config::load(FILE.as_bytes(), &variables.into_iter().collect()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(env.effective, file.effective);
    assert!(env.warnings.is_empty() && file.warnings.is_empty(), "{:?} {:?}", env.warnings, file.warnings);
    assert_eq!(env.remarks, ["the configuration is E2B's environment: REDIS_URL, API_INTERNAL_GRPC_ADDRESS"]);
}

#[test]
fn every_variable_has_its_place() {
    let ca = authority();
    let loaded = load(&[
        ("PROXY_PORT", "4002"),
        ("HEALTH_PORT", "4003"),
        ("REDIS_CLUSTER_URL", "seed:7000"),
        ("REDIS_URL", "nonsense, and not looked at"),
        ("REDIS_TLS_ENABLED", "true"),
        ("REDIS_TLS_CA_BASE64", &ca),
        ("REDIS_PASSWORD", "p@ss/w"),
        ("REDIS_POOL_SIZE", "40"),
        ("API_EDGE_GRPC_ADDRESS", "dns:///api.example.com"),
        ("API_EDGE_GRPC_OAUTH_CLIENT_ID", "me"),
        ("API_EDGE_GRPC_OAUTH_CLIENT_SECRET", "s3cret"),
        ("API_EDGE_GRPC_OAUTH_TOKEN_URL", "https://u:s3cret@auth.example.com/token"),
        ("OTEL_COLLECTOR_GRPC_ENDPOINT", "otel:4317"),
    ]);
    let Config { server, health, catalog, resume, otlp, .. } = loaded.config;
    assert_eq!(
        (server.listen[0].to_string(), health.listen.to_string()),
        ("0.0.0.0:4002".into(), "0.0.0.0:4003".into())
    );
    assert!(server.trusted_proxies.iter().any(|net| net.to_string() == "10.0.0.0/8"));
    let Catalog::Redis(redis) = catalog else { panic!("{catalog:?}") };
    assert!(redis.cluster && redis.ca.is_some());
    let url = &redis.urls[0];
    assert_eq!((url.host.as_str(), url.port, url.tls), ("seed", 7000, true));
    assert!(url.password.as_ref().is_some_and(|password| password.matches(b"p@ss/w")));
    let Resumer::Grpc(grpc) = resume.resumer else { panic!("{resume:?}") };
    assert_eq!((grpc.address.as_str(), grpc.tls), ("api.example.com:443", true));
    let shown_too = format!("{grpc:?}");
    assert_eq!(grpc.oauth.expect("told").client_id, "me");
    assert_eq!(otlp.endpoint.expect("told").as_str(), "http://otel:4317/");
    let shown = format!("{} {:?} {:?} {shown_too}", loaded.effective, loaded.remarks, redis);
    assert!(!shown.contains("s3cret") && !shown.contains("p@ss") && !shown.contains("p%40ss"), "{shown}");
    assert!(loaded.remarks.iter().any(|remark| remark.contains("REDIS_POOL_SIZE has no effect")));
}

#[test]
#[rustfmt::skip] // one case a line
fn redis_is_reached_as_its_variables_say() {
    let ca = authority();
    for (env, want) in [
        (&[("REDIS_URL", "h:1")][..], ("h", 1, false, false)),
        (&[("REDIS_URL", "redis://h:1")], ("h", 1, false, false)),
        (&[("REDIS_URL", "rediss://h:1")], ("h", 1, true, false)),
        (&[("REDIS_URL", "redis://h:1"), ("REDIS_TLS_ENABLED", "true")], ("h", 1, true, false)),
        (&[("REDIS_URL", "h:1"), ("REDIS_TLS_CA_BASE64", &ca)], ("h", 1, true, false)),
        (&[("REDIS_URL", "h:1"), ("REDIS_TLS_CA_BASE64", &ca), ("REDIS_TLS_ENABLED", "0")], ("h", 1, false, false)),
        (&[("REDIS_URL", "h:1"), ("REDIS_CLUSTER_URL", "")], ("h", 1, false, false)),
        (&[("REDIS_URL", "redis://:o,d@h:1")], ("h", 1, false, false)),
        (&[("REDIS_URL", "redis://:old@h:1"), ("REDIS_PASSWORD", "new")], ("h", 1, false, false)),
        (&[("REDIS_URL", "h:1"), ("REDIS_CLUSTER_URL", "c:2")], ("c", 2, false, true)),
    ] {
        let redis = redis(env);
        let url = &redis.urls[0];
        assert_eq!((url.host.as_str(), url.port, url.tls, redis.cluster), want, "{env:?}");
        let new = env.iter().any(|(name, _)| *name == "REDIS_PASSWORD");
        assert_eq!(url.password.as_ref().is_some_and(|password| password.matches(b"new")), new, "{env:?}");
    }
}

#[test]
fn an_internal_api_wins_and_is_asked_in_the_clear_without_a_token() {
    let loaded = load(&[
        ("REDIS_URL", "h:1"),
        ("API_INTERNAL_GRPC_ADDRESS", "a:5009"),
        ("API_EDGE_GRPC_ADDRESS", "b:443"),
        ("API_EDGE_GRPC_OAUTH_CLIENT_ID", "only this"),
    ]);
    let Resumer::Grpc(grpc) = loaded.config.resume.resumer else { panic!("not by gRPC") };
    assert_eq!((grpc.address.as_str(), grpc.tls, grpc.oauth.is_none()), ("a:5009", false, true));
}

#[test]
fn without_an_api_nobody_is_woken_and_that_is_said() {
    let loaded = load(&[("REDIS_URL", "h:1")]);
    assert!(matches!(loaded.config.resume.resumer, Resumer::None));
    assert!(loaded.warnings[0].contains("no paused sandbox is woken"), "{:?}", loaded.warnings);
}

#[test]
fn own_overrides_apply_on_top() {
    let loaded = load(&[
        ("REDIS_URL", "h:1"),
        ("PROXY_PORT", "4002"),
        ("CLIENT_PROXY__SERVER__LISTEN", "[\"127.0.0.1:1\"]"),
        ("CLIENT_PROXY__CATALOG__REDIS__TIMEOUT", "2s"),
    ]);
    assert_eq!(loaded.config.server.listen[0].to_string(), "127.0.0.1:1");
    assert!(matches!(loaded.config.catalog, Catalog::Redis(redis) if redis.timeout.as_secs() == 2));
}

#[test]
fn a_fault_names_its_variable_and_no_secret() {
    for (env, variable, wrong) in [
        (&[("REDIS_URL", "h:1"), ("PROXY_PORT", "x")][..], Some("PROXY_PORT"), "not an IP address and port"),
        (&[("REDIS_URL", "http://h:1")], Some("REDIS_URL"), "not a redis"),
        (&[("REDIS_URL", "h:0")], Some("REDIS_URL"), "port"),
        (&[("REDIS_URL", "h:1"), ("REDIS_TLS_ENABLED", "s3cret")], Some("REDIS_TLS_ENABLED"), "no such choice"),
        (&[("REDIS_URL", "h:1"), ("REDIS_TLS_CA_BASE64", "no, not!")], Some("REDIS_TLS_CA_BASE64"), "Base64"),
        (&[("REDIS_URL", ":s3cret@")], Some("REDIS_URL"), "URL"),
        (&[("PROXY_PORT", "1")], None, "neither REDIS_URL nor REDIS_CLUSTER_URL"),
        (
            &[("REDIS_URL", "h:1"), ("API_EDGE_GRPC_ADDRESS", "b:1"), ("API_EDGE_GRPC_OAUTH_CLIENT_SECRET", "s3cret")],
            None,
            "belong together",
        ),
        (
            &[("REDIS_URL", "h:1"), ("CLIENT_PROXY__SERVER__WORKER", "1")],
            Some("CLIENT_PROXY__SERVER__WORKER"),
            "unknown",
        ),
    ] {
        let Faults(faults) = try_load(env).expect_err(wrong);
        let [fault] = &faults[..] else { panic!("{env:?}: {faults:?}") };
        let place = variable.map_or(Place::Unset, |name| Place::Variable(name.into()));
        assert_eq!(fault.place, place, "{fault}");
        assert!(fault.wrong.contains(wrong), "{fault}");
        assert!(!fault.to_string().contains("s3cret"), "{fault}");
    }
}
