//! What a configuration comes to: values, defaults, variables, overrides, masks.

use std::time::Duration;

use client_proxy::{
    config::{AccessLog, Catalog, Config, Fault, Faults, Loaded, LogFormat, Mode, Place, Resumer, UpstreamProtocol},
    types::{Node, Port, SandboxId},
};

const DEFAULT: &str = include_str!("../../config/default.toml");

fn try_load(file: &str, env: &[(&str, &str)]) -> Result<Loaded, Faults> {
    Config::load(file.as_bytes(), &env.iter().copied().collect())
}

fn load(file: &str, env: &[(&str, &str)]) -> Loaded {
    try_load(file, env).unwrap_or_else(|faults| panic!("{file}\n{faults}"))
}

fn faults(file: &str, env: &[(&str, &str)]) -> Vec<Fault> {
    match try_load(file, env) {
        Ok(loaded) => panic!("no fault in {file}\n{}", loaded.effective),
        Err(faults) => faults.0,
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The paths of all keys in a TOML text, with their values. An empty table counts as a key.
fn leaves(text: &str) -> Vec<(String, String)> {
    fn walk(path: &str, value: &toml::Value, leaves: &mut Vec<(String, String)>) {
        match value {
            toml::Value::Table(table) if !table.is_empty() => {
                for (key, value) in table {
                    walk(&format!("{path}.{key}"), value, leaves);
                }
            }
            value => leaves.push((path.to_owned(), value.to_string())),
        }
    }
    let table: toml::Table = text.parse().expect("TOML");
    let mut all = Vec::new();
    walk("", &toml::Value::Table(table), &mut all);
    all
}

#[test]
fn the_default_file_holds_every_key_with_its_default_and_no_other() {
    let api = [("E2B_API_KEY", "k"), ("CLIENT_PROXY__CATALOG__KIND", "rest"), ("CLIENT_PROXY__RESUME__KIND", "rest")];
    let fixed = [("CLIENT_PROXY__CATALOG__KIND", "static")];
    let all = [&[][..], &api[..], &fixed[..]];
    for env in all {
        assert_eq!(load(DEFAULT, env).effective, load("", env).effective);
    }
    let mut written = leaves(DEFAULT);
    // Everything that reading asks for is in use in one of them.
    let mut read = all.map(|env| leaves(&load("", env).effective)).concat();
    let names = |leaves: &mut Vec<(String, String)>| {
        leaves.sort();
        leaves.dedup_by(|one, other| one.0 == other.0);
        leaves.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut written), names(&mut read));
}

#[test]
fn the_default_file_explains_every_key() {
    let (mut keys, mut explained) = (0, false);
    for line in DEFAULT.lines() {
        match line.chars().next() {
            Some('#') => explained = true,
            // What is said of a table is said of its first key.
            Some('[') => {}
            Some(_) => {
                assert!(explained, "no comment above {line:?}");
                (keys, explained) = (keys + 1, false);
            }
            None => explained = false,
        }
    }
    // All but catalog.static, a table of the operator's own keys.
    assert_eq!(keys, leaves(DEFAULT).len() - 1);
}

#[test]
fn the_readme_names_every_table() {
    let rows = include_str!("../../README.md").lines().skip_while(|line| !line.starts_with("| table |"));
    let cells = rows.skip(2).map_while(|row| row.strip_prefix("| `[")?.split_once("]` |"));
    let named: Vec<_> = cells.map(|(name, _)| name).collect();
    let written = DEFAULT.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
    assert_eq!(named, written.filter(|name| !name.contains('.')).collect::<Vec<_>>());
}

#[test]
fn nothing_written_means_the_defaults() {
    for file in ["", "\n", "# only a comment", "[server]\n[catalog.rest]\n", "\u{feff}"] {
        let config = load(file, &[]).config;
        assert_eq!(config.grace(), secs(86_417));
        let Config { server, health, admin, catalog, cache, resume, upstream, shutdown, otlp, log, wake } = config;
        assert_eq!((shutdown.drain_delay, shutdown.drain_timeout), (secs(15), secs(86_400)));
        assert_eq!(server.listen, ["0.0.0.0:3002".parse().expect("address")]);
        assert_eq!((server.workers, server.default_port), (0, None));
        assert_eq!((server.header_read_timeout, server.idle_timeout), (secs(30), secs(620)));
        assert_eq!(health.listen.to_string(), "0.0.0.0:3003");
        assert_eq!(admin.listen.expect("on").to_string(), "127.0.0.1:3004");
        assert!(admin.token.is_none());
        let Catalog::Redis(redis) = catalog else { panic!("{catalog:?}") };
        let [url] = &redis.urls[..] else { panic!("{redis:?}") };
        assert_eq!((url.host.as_str(), url.port, url.tls, url.database), ("127.0.0.1", 6379, false, 0));
        assert!(redis.push && !redis.cluster && redis.ca.is_none() && redis.timeout == secs(1));
        assert_eq!((cache.ttl, cache.ttl_with_push, cache.stale_if_error), (secs(1), secs(60), secs(60)));
        let Resumer::Grpc(grpc) = resume.resumer else { panic!("{resume:?}") };
        assert_eq!((grpc.address.as_str(), grpc.tls, grpc.oauth.is_none()), ("127.0.0.1:5009", false, true));
        assert_eq!((resume.max_held, resume.max_held_per_sandbox), (10_000, 2000));
        assert_eq!((resume.max_held_per_client, resume.max_concurrent, resume.release_rate), (0, 256, 0));
        assert!(wake.health_probe && wake.answer_preflight && wake.page_after.is_none());
        assert!(wake.ignore_paths.is_empty() && wake.ignore_user_agents.is_empty());
        assert_eq!(wake.max_per_client_per_minute, 0);
        assert_eq!((upstream.mode, upstream.protocol), (Mode::Node, UpstreamProtocol::Auto));
        assert_eq!(upstream.response_header_timeout, None);
        assert!(upstream.rewrite_shared_host && !upstream.allow_loopback);
        assert!(otlp.endpoint.is_none());
        assert_eq!((log.format, log.access), (LogFormat::Auto, AccessLog::All));
    }
}

#[test]
fn values_of_the_file_arrive() {
    let file = r#"
        server.listen = ["127.0.0.1:0", "[::1]:8080"]
        server.domains = ["E2B.app"]
        server.default_port = 0xC33F
        server.trusted_proxies = ["10.1.2.3/8", "fd00::/8"]
        admin = { listen = "" }
        catalog.kind = "static"
        [catalog.static]
        i7d1 = "fd00::1"
        b = "Node-1"
        [upstream]
        mode = "direct"
        protocol = "h2c"
        response_header_timeout = "1m30s"
        [cache]
        ttl = "250ms"
        stale_if_error = "0s"
    "#;
    let config = load(file, &[]).config;
    let listen: Vec<_> = config.server.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["127.0.0.1:0", "[::1]:8080"]);
    assert_eq!(config.server.domains, ["e2b.app"]);
    assert_eq!(config.server.default_port, Some(Port::ENVD));
    let trusted: Vec<_> = config.server.trusted_proxies.iter().map(ToString::to_string).collect();
    assert_eq!(trusted, ["10.0.0.0/8", "fd00::/8"]);
    assert!(config.admin.listen.is_none());
    let Catalog::Static(nodes) = &config.catalog else { panic!("{:?}", config.catalog) };
    let nodes: Vec<_> = nodes.iter().map(|(id, node)| (id.as_str(), node.as_str())).collect();
    assert_eq!(nodes, [("b", "node-1"), ("i7d1", "[fd00::1]")]);
    assert_eq!(config.upstream.protocol, UpstreamProtocol::H2c);
    assert_eq!(config.upstream.response_header_timeout, Some(secs(90)));
    assert_eq!(config.cache.ttl, Duration::from_millis(250));
    assert_eq!(config.cache.stale_if_error, Duration::ZERO);
}

#[test]
#[rustfmt::skip] // one case a line
fn addresses_are_made_of_templates() {
    let (node, port) = (Node::new("10.0.0.5").expect("a node"), Port::new(80).expect("a port"));
    let id = SandboxId::new("abc").expect("an id");
    for (mode, template, want) in [
        ("node", None, "10.0.0.5:5007"),
        ("direct", None, "10.0.0.5:80"),
        ("direct", Some("{sandbox}.svc:{port}"), "abc.svc:80"),
        ("node", Some("[fd00::1]:5007"), "[fd00::1]:5007"),
        ("node", Some("gateway:1"), "gateway:1"),
    ] {
        let address = template.map_or(String::new(), |text| format!("address = {text:?}"));
        let file = format!("[upstream]\nmode = {mode:?}\n{address}");
        let template = load(&file, &[]).config.upstream.address;
        assert_eq!(template.render(Some(&node), port, &id).as_deref(), Some(want));
        assert_eq!(template.render(None, port, &id).is_none(), template.needs_node());
    }
}

#[test]
fn rest_tables_arrive_where_they_are_chosen() {
    let file = r#"
        [catalog]
        kind = "rest"
        rest = { url = "https://api.example.com/v1", api_key = "${KEY}!", node_pointer = "/a~1b" }
        [resume]
        kind = "rest"
        rest.api_key = "$${KEY}"
        rest.sandbox_timeout = "10m"
    "#;
    let config = load(file, &[("KEY", "abc")]).config;
    let Catalog::Rest(catalog) = config.catalog else { panic!("{:?}", config.catalog) };
    assert_eq!(catalog.url.as_str(), "https://api.example.com/v1");
    assert_eq!(catalog.api_key.expose(), b"abc!");
    assert_eq!((catalog.timeout, catalog.node_pointer.as_str()), (secs(5), "/a~1b"));
    let Resumer::Rest(resume) = config.resume.resumer else { panic!("not chosen") };
    assert_eq!(resume.api_key.expose(), b"${KEY}");
    assert_eq!((resume.sandbox_timeout, resume.node_pointer.as_str()), (secs(600), "/a~1b"));
}

#[test]
fn a_resumer_alone_takes_the_pointer_of_the_catalog_table_and_nothing_else_of_it() {
    let file = r#"
        [resume]
        kind = "rest"
        rest.api_key = "k"
        [catalog.rest]
        url = "nonsense"
        api_key = "${UNSET}"
        node_pointer = "/node"
    "#;
    let loaded = load(file, &[]);
    let Resumer::Rest(resume) = loaded.config.resume.resumer else { panic!("not chosen") };
    assert_eq!(resume.node_pointer, "/node");
    assert!(loaded.effective.contains("[catalog.rest]\nnode_pointer = \"/node\"\n"));
    assert!(!loaded.effective.contains("nonsense"));
}

#[test]
#[rustfmt::skip] // one case a line
fn variables_override_the_file() {
    let file = "[server]\nworkers = 1\n[admin]\ntoken = 'old'";
    let env = [
        ("CLIENT_PROXY__SERVER__WORKERS", "4"),
        ("CLIENT_PROXY__SERVER__LISTEN", r#"["127.0.0.1:1", "127.0.0.1:2"]"#),
        ("CLIENT_PROXY__RESUME__HOLD_TIMEOUT", "20s"),
        // Whatever it looks like, a string is wanted.
        ("CLIENT_PROXY__ADMIN__TOKEN", "0123"),
        ("CLIENT_PROXY__CATALOG__REST__API_KEY", "1979"),
        ("CLIENT_PROXY__RESUME__REST__API_KEY", "a${b}"),
        ("CLIENT_PROXY__CATALOG__KIND", "\"rest\""),
        ("CLIENT_PROXY__RESUME__KIND", "rest"),
        ("CLIENT_PROXY__CATALOG__STATIC__ABC", "10.0.0.1"),
        ("CLIENT_PROXY_OTHER", "none of ours"),
    ];
    let config = load(file, &env).config;
    assert_eq!((config.server.workers, config.server.listen.len()), (4, 2));
    assert_eq!(config.resume.hold_timeout, secs(20));
    assert_eq!(config.admin.token.expect("set").expose(), b"0123");
    assert!(matches!(config.catalog, Catalog::Rest(rest) if rest.api_key.expose() == b"1979"));
    assert!(matches!(config.resume.resumer, Resumer::Rest(rest) if rest.api_key.expose() == b"a${b}"));
}

#[test]
fn a_variable_for_a_table_replaces_it_and_one_for_a_key_adds_to_it() {
    let file = "catalog.kind = 'static'\n[catalog.static]\na = '10.0.0.1'\nb = '10.0.0.2'";
    let ids = |env: &[(&str, &str)]| match load(file, env).config.catalog {
        Catalog::Static(nodes) => nodes.keys().map(ToString::to_string).collect::<String>(),
        other => panic!("not chosen: {other:?}"),
    };
    let table = ("CLIENT_PROXY__CATALOG__STATIC", "{ c = '10.0.0.3' }");
    let key = ("CLIENT_PROXY__CATALOG__STATIC__D", "10.0.0.4");
    assert_eq!(ids(&[table]), "c");
    assert_eq!(ids(&[key]), "abd");
    assert_eq!(ids(&[table, key]), "cd");
}

#[test]
fn secrets_show_nowhere() {
    let file = r#"
        [admin]
        token = "s3cret-1"
        [catalog]
        kind = "rest"
        rest = { url = "http://user:s3cret-2@host:1/x", api_key = "${KEY}" }
        [resume]
        kind = "rest"
    "#;
    let env = [("KEY", "s3cret-3"), ("CLIENT_PROXY__RESUME__REST__API_KEY", "s3cret-4")];
    let loaded = load(file, &env);
    let all = format!("{loaded:?}");
    assert!(loaded.effective.contains("url = \"http://***@host:1/x\""), "{}", loaded.effective);
    assert_eq!(loaded.effective.matches("= \"***\"").count(), 3, "{}", loaded.effective);
    assert!(!all.contains("s3cret"), "{all}");

    let broken = r#"
        [admin]
        token = ["s3cret"]
        tokne = "s3cret"
        [catalog]
        kind = "rest"
        rest = { url = "http://user:s3cret@host:x/?key=s3cret", api_key = " s3cret" }
        redis = { url = "redis://:s3cret@host" }
        [resume]
        kind = "rest"
        rest.api_key = "s3cret${UNSET}"
        [upstream]
        address = "http://u:s3cret@host"
    "#;
    let env = [("CLIENT_PROXY__RESUME__REST__URL", "ftp://user:s3cret@host"), ("CLIENT_PROXY__ADMIN", "s3cret")];
    for env in [&env[..1], &env[..]] {
        let faults = try_load(broken, env).expect_err("broken");
        assert!(faults.0.len() >= 7, "{faults}");
        assert!(!format!("{faults}\n{faults:?}").contains("s3cret"), "{faults}");
    }
    let unclosed = try_load("[admin]\ntoken = \"s3cret\nx = 'y", &[]).expect_err("broken");
    assert!(!format!("{unclosed}\n{unclosed:?}").contains("s3cret"), "{unclosed}");
}

#[test]
fn what_was_printed_can_be_read_again_and_means_the_same() {
    let file = r#"
        [server]
        domains = ["A.example"]
        [catalog]
        static = { abc = "fd00::1" }
        [upstream]
        mode = "direct"
        [log]
        filter = 'info,client_proxy[a{b="c"}]=debug'
    "#;
    let first = load(file, &[("CLIENT_PROXY__SERVER__WORKERS", "3")]).effective;
    assert!(first.contains("workers = 3"), "{first}");
    assert_eq!(load(&first, &[]).effective, first);
    // A mask is not a secret: nobody shall run with the token "***".
    let masked = load("admin.token = 'x'", &[]).effective;
    let faults = faults(&masked, &[]);
    assert_eq!((faults.len(), faults[0].key.as_str()), (1, "admin.token"));
    assert!(matches!(faults[0].place, Place::Line(_)));
}

#[test]
#[rustfmt::skip] // one case a line
fn odd_choices_are_warned_of() {
    let ca = super::e2b::authority();
    let oauth = "resume.grpc.address = 'api:1'\nresume.grpc.oauth.client_id = 'a'\n\
                 resume.grpc.oauth.client_secret = 'b'\nresume.grpc.oauth.token_url = ";
    let quiet = "catalog = { kind = 'static', static.a = '10.0.0.1' }\n";
    assert_eq!(load(quiet, &[]).warnings, [""; 0]);
    for (file, want) in [
        ("catalog.kind = 'static'\nresume.kind = 'none'", "every sandbox is unknown"),
        ("cache.ttl_with_push = '500ms'", "cache.ttl_with_push is below cache.ttl"),
        ("catalog.redis.timeout = '50s'", "not below resume.hold_timeout"),
        (&format!("catalog.redis.ca_base64 = '{ca}'"), "catalog.redis.ca_base64 has no effect"),
        (&format!("resume.grpc.ca_base64 = '{ca}'"), "resume.grpc.ca_base64 has no effect"),
        (&format!("{oauth}'https://a'"), "in the clear"),
        (&format!("resume.grpc.tls = true\n{oauth}'http://a'"), "resume.grpc.oauth.token_url"),
        ("upstream = { mode = 'direct', allow_loopback = true }", "services of this machine"),
        ("upstream.allow_loopback = true", "no effect in node mode"),
        ("upstream = { mode = 'direct', address = '{node}:80' }", "no {port}"),
        ("server.trusted_proxies = ['0.0.0.0/0']", "forge"),
        ("resume.max_held = 10", "max_held_per_sandbox"),
        ("resume.max_held_per_client = 10", "all clients are one"),
        ("wake.max_per_client_per_minute = 10", "all clients are one"),
    ] {
        let warnings = load(file, &[]).warnings;
        assert!(warnings.iter().any(|warning| warning.contains(want)), "{file}: {warnings:?}");
    }
}
