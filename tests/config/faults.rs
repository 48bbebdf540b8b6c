//! What is wrong with a configuration: each fault with its key, place and remedy, all of them at once.

use client_proxy::config::{Config, Environment, Fault, Faults, Place};

fn faults(file: &[u8], env: &[(&str, &str)]) -> Vec<Fault> {
    match Config::load(file, &env.iter().copied().collect()) {
        Ok(loaded) => panic!("no fault in {file:?}\n{}", loaded.effective),
        Err(Faults(faults)) => faults,
    }
}

/// Exactly one fault, of this key, at this line, and these words in what is wrong and what is right.
#[track_caller]
fn one(file: &str, key: &str, line: usize, wrong: &str, remedy: &str) {
    let found = faults(file.as_bytes(), &[]);
    assert_eq!(found.len(), 1, "{file:?}: {}", Faults(found));
    let fault = &found[0];
    assert_eq!((fault.key.as_str(), &fault.place), (key, &Place::Line(line)), "{file:?}: {fault}");
    assert!(fault.wrong.contains(wrong), "{file:?}: {fault}");
    assert!(fault.remedy.contains(remedy), "{file:?}: {fault}");
}

#[test]
#[rustfmt::skip] // one case a line
fn values_of_the_wrong_kind_are_faults() {
    for (file, key, wrong, remedy) in [
        ("server.workers = '4'", "server.workers", "is a string", "integer from 0 to 1024"),
        ("server.workers = 1.5", "server.workers", "is a float", "integer"),
        ("server.workers = 1979-05-27", "server.workers", "is a date", "integer"),
        ("server.workers = [1]", "server.workers", "is a list", "integer"),
        ("server.workers = {}", "server.workers", "is a table", "integer"),
        ("server.listen = '0.0.0.0:1'", "server.listen", "is a string", "[\"0.0.0.0:1\"]"),
        ("server.listen = [3002]", "server.listen[0]", "is an integer", "\"0.0.0.0:3002\""),
        ("server.idle_timeout = 30", "server.idle_timeout", "is an integer", "\"620s\""),
        ("health.listen = true", "health.listen", "is a boolean", "\"0.0.0.0:3003\""),
        ("upstream.allow_loopback = 'yes'", "upstream.allow_loopback", "is a string", "true"),
        ("admin.token = 5", "admin.token", "is an integer", "quotes"),
        ("catalog = { kind = 'static', static.a = {} }", "catalog.static.a", "is a table", "string"),
        ("catalog.redis.urls = 'redis://a'", "catalog.redis.urls", "is a string", "[\"redis://a\"]"),
        ("resume.grpc.tls = 1", "resume.grpc.tls", "is an integer", "true"),
        ("server = 5", "server", "is an integer", "[server]"),
        ("catalog.rest = 'x'", "catalog.rest", "is a string", "[catalog.rest]"),
        ("[[server]]", "server", "is a list", "[server]"),
    ] {
        one(file, key, 1, wrong, remedy);
    }
}

#[test]
#[rustfmt::skip] // one case a line
fn values_out_of_their_range_or_form_are_faults() {
    for (key, value, wrong, remedy) in [
        ("server.workers", "-1", "out of range", "from 0 to 1024"),
        ("server.workers", "99999999999999999999", "out of range", "from 0 to 1024"),
        ("server.workers", &"9".repeat(60), "out of range", "from 0 to 1024"),
        ("server.default_port", "65536", "out of range", "65535"),
        ("server.max_connections", "0", "out of range", "from 1"),
        ("cache.max_entries", "0", "out of range", "from 1"),
        ("resume.max_held", "0", "out of range", "from 1"),
        ("upstream.connect_attempts", "0", "out of range", "from 1"),
        ("resume.max_concurrent", "0", "out of range", "from 1"),
        ("resume.release_rate", "-1", "out of range", "from 0"),
        ("resume.grpc.address", "'https://api.example.com'", "not a URL", "leave out the scheme"),
        ("wake.page_after", "'0s'", "zero", "\"off\""),
        ("server.idle_timeout", "'30'", "not a duration", "\"30s\""),
        ("server.idle_timeout", "'s'", "not a duration", "\"30s\""),
        ("server.idle_timeout", "''", "not a duration", "\"30s\""),
        ("server.idle_timeout", "'-1s'", "not a duration", "\"30s\""),
        ("server.idle_timeout", "'1 h'", "not a duration", "\"30s\""),
        ("server.idle_timeout", "'1.5s'", "not a duration", "\"30s\""),
        ("server.idle_timeout", "'1s2'", "not a duration", "\"30s\""),
        ("server.idle_timeout", "'1w'", "not a duration", "ms, s, m, h, d"),
        ("server.idle_timeout", "'0s'", "zero", "1ms"),
        ("server.idle_timeout", "'366d'", "too long", "365d"),
        ("server.idle_timeout", "'99999999999999999999999d'", "too long", "365d"),
        ("upstream.response_header_timeout", "'never'", "not a duration", "\"off\""),
        ("health.listen", "'localhost:3003'", "not an IP address", "\"0.0.0.0:3002\""),
        ("health.listen", "':3003'", "not an IP address", "\"0.0.0.0:3002\""),
        ("health.listen", "''", "not an IP address", "\"0.0.0.0:3002\""),
        ("admin.listen", "'off'", "not an IP address", "\"\" for none"),
        ("admin.token", "'a b'", "a space", "visible"),
        ("admin.token", "\"a\\n\"", "a line end", "visible"),
        ("catalog.kind", "'sql'", "no such choice", "\"redis\" or \"rest\" or \"static\""),
        ("resume.kind", "'sql'", "no such choice", "\"grpc\" or \"rest\" or \"none\""),
        ("upstream.mode", "'Node'", "no such choice", "\"node\" or \"direct\""),
        ("log.format", "''", "no such choice", "\"auto\" or \"text\" or \"json\""),
        ("log.filter", "'a=b=c'", "not a log filter", "\"info\""),
        ("upstream.address", "'{node}'", "no port", "\"{node}:5007\""),
        ("upstream.address", "'{node}:{prot}'", "\"{prot}\"", "{node}, {port} and {sandbox}"),
        ("upstream.address", "'{node:80'", "brace", "{node}, {port} and {sandbox}"),
        ("upstream.address", "'{node}:0'", "port", "\"{node}:5007\""),
        ("upstream.address", "'{node}:99999'", "port", "\"{node}:5007\""),
        ("upstream.address", "'{node}:{sandbox}'", "no port", "\"{node}:5007\""),
        ("upstream.address", "'http://{node}:80'", "not a host", "\"{node}:5007\""),
        ("upstream.address", "'[{node}]:80'", "not a host", "\"{node}:5007\""),
        ("upstream.address", "'fd00::1:80'", "not a host", "\"{node}:5007\""),
        ("upstream.address", "' {node}:80'", "not a host", "\"{node}:5007\""),
    ] {
        one(&format!("\n{key} = {value}"), key, 2, wrong, remedy);
    }
}

#[test]
#[rustfmt::skip] // one case a line
fn elements_of_lists_have_their_own_lines() {
    for (key, value, wrong, remedy) in [
        ("server.listen", "x", "not an IP address", "\"[::]:3002\""),
        ("server.domains", "*.example.com", "not a domain", "\"example.com\""),
        ("server.domains", ".example.com", "not a domain", "\"example.com\""),
        ("server.domains", "Example.com:443", "not a domain", "\"example.com\""),
        ("server.domains", "https://example.com/", "not a domain", "\"example.com\""),
        ("server.domains", "bücher.example", "not a domain", "xn--"),
        ("server.domains", "", "not a domain", "\"example.com\""),
        ("server.header_hosts", "a..b", "not a domain", "\"example.com\""),
        ("server.trusted_proxies", "10.0.0.1", "an address", "\"10.0.0.1/32\""),
        ("server.trusted_proxies", "fd00::1", "an address", "\"fd00::1/128\""),
        ("server.trusted_proxies", "10.0.0.0/33", "not a network", "\"10.0.0.0/8\""),
        ("wake.ignore_paths", "favicon.ico", "not a path", "\"/favicon.ico\""),
        ("wake.ignore_paths", "/a?b=1", "no query", "\"/favicon.ico\""),
        ("wake.ignore_paths", "/a*b", "at the end only", "\"/favicon.ico\""),
        ("wake.ignore_user_agents", " ", "every text", "UptimeRobot"),
    ] {
        one(&format!("{key} = [\n\n{value:?}]"), &format!("{key}[0]"), 3, wrong, remedy);
    }
}

#[test]
#[rustfmt::skip] // one case a line
fn values_of_the_tables_in_use_are_checked() {
    let file = "resume.kind = 'rest'\ncatalog.kind = 'rest'\nresume.rest.api_key = 'k'\n";
    for (key, value, wrong, remedy) in [
        ("url", "", "not a URL", "http://127.0.0.1:3000"),
        ("url", "127.0.0.1:3000", "not a URL", "http://127.0.0.1:3000"),
        ("url", "unix:/run/api", "not an http", "http://127.0.0.1:3000"),
        ("url", "ftp://host", "not an http", "http://127.0.0.1:3000"),
        ("url", "http://host/?team=1", "no query", "leave out"),
        ("url", "http://***@host/", "a mask", "the secret itself"),
        ("node_pointer", "nodeIP", "RFC 6901", "/nodeIP"),
        ("node_pointer", "/a~b", "RFC 6901", "~0"),
        ("node_pointer", "", "no answer names a node", "without {node}"),
        ("api_key", "", "empty", "the key"),
        ("api_key", "***", "a mask", "the secret itself"),
        ("api_key", "${UNSET_1}", "UNSET_1 is not set", "set UNSET_1"),
        ("api_key", "a${UNSET_1", "not followed", "${NAME}"),
        ("api_key", "${}", "not followed", "$${"),
    ] {
        let given = if key == "api_key" { "" } else { "catalog.rest.api_key = 'k'" };
        let file = format!("{file}{given}\ncatalog.rest.{key} = {value:?}");
        one(&file, &format!("catalog.rest.{key}"), 5, wrong, remedy);
    }
    for (value, remedy) in [("299s", "300s"), ("300500ms", "\"300s\"")] {
        let file =
            format!("{file}catalog.rest.api_key = 'k'\nresume.rest.sandbox_timeout = {value:?}");
        one(&file, "resume.rest.sandbox_timeout", 5, "", remedy);
    }
    one("catalog = { kind = 'static', static.A = 'host' }", "catalog.static.A", 1, "sandbox id", "lower-case");
    one(
        "catalog = { kind = 'static', static.a = 'host:80' }",
        "catalog.static.a",
        1,
        "not a host",
        "without scheme and port",
    );
}

#[test]
fn a_key_that_nothing_gives_is_not_set() {
    let found = faults(b"catalog.kind = 'rest'", &[]);
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "not set: catalog.rest.api_key: the environment variable E2B_API_KEY is not set; \
         set E2B_API_KEY, or write the value itself"
    );
}

#[test]
#[rustfmt::skip] // one case a line
fn unknown_names_name_the_nearest_known() {
    for (file, key, remedy) in [
        ("server.wokers = 1", "server.wokers", "did you mean server.workers?"),
        ("[serve]\nworkers = 1", "serve", "did you mean server?"),
        ("server.hold_timeout = '1s'", "server.hold_timeout", "did you mean resume.hold_timeout?"),
        ("workers = 1", "workers", "did you mean server.workers?"),
        ("[rest]", "rest", "did you mean catalog.rest?"),
        ("catalog.redis.url = ''", "catalog.redis.url", "did you mean"),
        ("catalog.sql = {}", "catalog.sql", "known here: kind, redis, static, rest"),
        ("[metrics]\npath = ''", "metrics", "known here: server, health, admin, catalog"),
        ("server.quic = {}", "server.quic", "known here: listen, workers"),
        // A table that nothing uses is still looked through.
        ("catalog.rest.timeuot = 1", "catalog.rest.timeuot", "did you mean catalog.rest.timeout?"),
        ("resume.rest.'a b' = 1", "resume.rest.\"a b\"", "known here: url, api_key"),
        ("\"a\\nb\" = 1", "\"a\\nb\"", "known here: server"),
    ] {
        one(file, key, 1, "unknown", remedy);
    }
}

#[test]
#[rustfmt::skip] // one case a line
fn keys_that_cannot_stand_together_are_faults() {
    for (file, key, line, wrong, remedy) in [
        ("admin.listen = '0.0.0.0:1'", "admin.listen", 1, "not set", "admin.token"),
        ("admin.listen = '10.0.0.1:1'", "admin.listen", 1, "not set", "admin.token"),
        ("\nserver.listen = []", "server.listen", 2, "nowhere", "\"0.0.0.0:3002\""),
        ("\nhealth.listen = '0.0.0.0:3002'", "health.listen", 2, "server.listen", "its own port"),
        ("health.listen = '127.0.0.1:3002'", "health.listen", 1, "server.listen", "its own port"),
        ("admin.listen = '127.0.0.1:3003'", "admin.listen", 1, "health.listen", "its own port"),
        ("server.listen = ['[::1]:1', '[::1]:1']", "server.listen", 1, "[::1]:1", "its own port"),
        ("catalog.redis.urls = []", "catalog.redis.urls", 1, "no server", "redis://"),
        ("catalog.redis.urls = ['redis://a', 'redis://b']", "catalog.redis.urls", 1, "one address", "cluster = true"),
        ("catalog.redis = { cluster = true, urls = ['redis://a/1'] }", "catalog.redis.urls", 1, "no databases", ""),
        ("catalog.redis = { cluster = true, urls = ['redis://a', 'rediss://b'] }", "catalog.redis.urls", 1, "TLS", ""),
    ] {
        one(file, key, line, wrong, remedy);
    }
    for file in [
        "admin = { listen = '0.0.0.0:1', token = 't' }",
        "admin.listen = '[::1]:1'",
        "server.listen = ['127.0.0.1:0', '127.0.0.1:0']\nhealth.listen = '127.0.0.1:0'",
        "server.listen = ['0.0.0.0:1', '[::]:1']",
        "server.listen = ['127.0.0.1:1', '127.0.0.2:1']",
        "[catalog.rest]\nnode_pointer = ''",
    ] {
        let loaded = Config::load(file.as_bytes(), &[("", ""); 0].into_iter().collect());
        assert!(loaded.is_ok(), "{file}: {loaded:?}");
    }
    // A fault in one of the keys is the only thing to say about them.
    one("admin.token = ' '\nadmin.listen = '0.0.0.0:1'", "admin.token", 1, "a space", "");
    one("server.listen = ['x']\nhealth.listen = '0.0.0.0:3002'", "server.listen[0]", 1, "", "");
}

#[test]
#[rustfmt::skip] // one case a line
fn variables_are_named_in_their_faults() {
    for (name, value, key, wrong, remedy) in [
        ("SERVER__WORKERS", "many", "server.workers", "is a string", "integer"),
        ("SERVER__WORKERS", "", "server.workers", "is a string", "integer"),
        ("SERVER__LISTEN", "0.0.0.0:1", "server.listen", "is a string", "[\"0.0.0.0:1\"]"),
        ("SERVER__LISTEN", "['0.0.0.0']", "server.listen[0]", "not an IP", "0.0.0.0:3002"),
        ("SERVER", "x", "server", "is a string", "[server]"),
        ("SERVER__WORKRES", "1", "server.workres", "unknown", "CLIENT_PROXY__SERVER__WORKERS?"),
        ("SERVER__WORKERS__X", "1", "server.workers", "is a table", "integer"),
        ("LOG__FILTER__X", "1", "log.filter.x", "is a string (line 1)", "unset"),
        ("METRICS__X", "1", "metrics", "unknown table", "known here"),
        ("", "1", "\"\"", "unknown", "known here"),
        ("SERVER__", "1", "server.\"\"", "unknown", "known here"),
        ("server__workers", "1", "server.workers", "upper-case", "CLIENT_PROXY__SERVER__WORKERS"),
    ] {
        let name = format!("CLIENT_PROXY__{name}");
        let found = faults(b"log.filter = 'info'", &[(&name, value)]);
        assert_eq!(found.len(), 1, "{name}: {}", Faults(found));
        let fault = &found[0];
        assert_eq!((fault.key.as_str(), &fault.place), (key, &Place::Variable(name)));
        assert!(fault.wrong.contains(wrong), "{fault}");
        assert!(fault.remedy.contains(remedy), "{fault}");
    }
    // Each variable of an unknown table is to be corrected.
    let env = [("CLIENT_PROXY__TLS__A", "1"), ("CLIENT_PROXY__TLS__B", "2")];
    assert_eq!(faults(b"", &env).len(), 2);
}

#[test]
fn all_faults_come_at_once_in_the_order_of_the_file() {
    let file = br#"
[upstream]
mode = "sideways"
[server]
workers = -1
listen = ["0.0.0.0:1", "x", "y"]
trusted = []
[wakes]
[catalog]
kind = "static"
static = { "A" = "10.0.0.1", b = "" }
"#;
    let env = [("CLIENT_PROXY__LOG__ACCESS", "some"), ("CLIENT_PROXY__NOTHING", "1")];
    let found = faults(file, &env);
    let seen: Vec<_> = found.iter().map(|fault| format!("{}: {}", fault.place, fault.key)).collect();
    assert_eq!(
        seen,
        [
            "line 3: upstream.mode",
            "line 5: server.workers",
            "line 6: server.listen[1]",
            "line 6: server.listen[2]",
            "line 7: server.trusted",
            "line 8: wakes",
            "line 11: catalog.static.A",
            "line 11: catalog.static.b",
            "variable CLIENT_PROXY__LOG__ACCESS: log.access",
            "variable CLIENT_PROXY__NOTHING: nothing",
        ]
    );
    assert_eq!(found[0].value.as_deref(), Some("\"sideways\""));
    assert_eq!(
        found[1].to_string(),
        "line 5: server.workers = -1: is out of range; write an integer from 0 to 1024, such as 0"
    );
    assert_eq!(Faults(found).to_string().lines().count(), seen.len());
}

#[test]
#[rustfmt::skip] // one case a line
fn what_is_not_toml_is_told_with_its_line() {
    for (file, line, wrong) in [
        (&b"[server]\nworkers = "[..], 2, "not TOML"),
        (b"[server]\nworkers == 1\n", 2, "not TOML"),
        (b"[server\nworkers = 1", 1, "not TOML"),
        (b"\n[log]\nfilter = info", 3, "not TOML"),
        (b"\n[log]\nfilter = \"info", 3, "not TOML"),
        (b"a = 1 b = 2", 1, "not TOML"),
        (b"a\0b = 1", 1, "not TOML"),
        (b"[log]\naccess = 'all'\naccess = 'off'", 3, "\"access\" is written twice"),
        (b"[log]\n\n[log]", 3, "\"log\" is written twice"),
        (b"[server]\nworkers = 012", 2, "not TOML"),
        (b"\n\n\xff\xfe", 3, "not UTF-8"),
        (b"\xff\xfea\0=\0", 1, "not UTF-8"),
        (b"\xef\xbb\xbf\n[log]\nx", 3, "not TOML"),
    ] {
        let found = faults(file, &[]);
        let fault = &found[0];
        assert_eq!((fault.key.as_str(), &fault.place), ("", &Place::Line(line)), "{fault}");
        assert!(fault.wrong.contains(wrong), "{fault}");
        assert_eq!(found.len(), 1, "{}", Faults(found));
    }
    // Deep nesting ends, in the parser's own limit.
    let deep = format!("a = {}", "[".repeat(100_000));
    assert!(!faults(deep.as_bytes(), &[]).is_empty());
    // Independent slips are all told.
    assert_eq!(faults(b"a = \nb = 1\nc = \n", &[]).len(), 2);
}

#[test]
fn a_variable_that_is_not_text_is_a_fault_only_where_it_is_used() {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};
    let odd = || OsString::from_vec(vec![0xff]);
    let env = |name: &str| [(OsString::from(name), odd())].into_iter().collect::<Environment>();
    assert!(Config::load(b"", &env("ELSEWHERE")).is_ok());
    for (file, name) in [("", "CLIENT_PROXY__LOG__FILTER"), ("log.filter = '${X}'", "X")] {
        let faults = Config::load(file.as_bytes(), &env(name)).expect_err("not text");
        assert_eq!(faults.0.len(), 1, "{faults}");
        assert_eq!(faults.0[0].key, "log.filter");
        assert!(faults.0[0].wrong.contains("not UTF-8"), "{faults}");
    }
}

#[test]
fn strange_values_of_any_key_are_that_keys_fault_or_none() {
    let api = [("CLIENT_PROXY__CATALOG__KIND", "rest"), ("CLIENT_PROXY__RESUME__KIND", "rest"), ("E2B_API_KEY", "k")];
    let env = || api.into_iter().collect::<Environment>();
    let loaded = Config::load(b"", &env()).expect("the defaults");
    let tables: toml::Table = loaded.effective.parse().expect("TOML");
    let mut keys = Vec::new();
    for (table, entries) in &tables {
        for (key, value) in entries.as_table().expect("a table") {
            keys.push(format!("{table}.{key}"));
            let inner = value.as_table().into_iter().flat_map(toml::Table::keys);
            keys.extend(inner.map(|inner| format!("{table}.{key}.{inner}")));
        }
    }
    let long = format!("'{}'", "x".repeat(100_000));
    let mut seen = 0;
    for key in &keys {
        #[rustfmt::skip]
        let strange = [
            "1979-05-27T07:32:00Z", "[]", "[[]]", "[{ a = 1 }]", "{ a = 1 }", "''", "' '", "'${'", "nan",
            r#""\u202Eé\u007F\n""#, "-9223372036854775808", "1e999", "true", &long,
        ];
        for value in strange {
            let file = format!("{key} = {value}");
            let Err(Faults(faults)) = Config::load(file.as_bytes(), &env()) else {
                continue;
            };
            for fault in faults {
                seen += 1;
                assert!(fault.key.starts_with(key.as_str()), "{file}: {fault}");
                assert!(fault.to_string().len() < 600, "{key}: {fault}");
                assert!(!fault.remedy.is_empty() && !fault.to_string().contains('\n'), "{fault}");
            }
        }
    }
    assert!(keys.len() > 35 && seen > 9 * keys.len(), "{seen} of {}", keys.len());
}
