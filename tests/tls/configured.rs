//! What the configuration says of certificates and load balancers, and what is wrong with it.

use std::process::Command;

use client_proxy::config::{Config, Environment, Fault, Faults, Loaded, Place};

use crate::{support::wire::HOST, tls::Authority};

fn load(text: &str) -> Result<Loaded, Vec<Fault>> {
    Config::load(text.as_bytes(), &Environment::default()).map_err(|Faults(faults)| faults)
}

/// Fault by fault: key, line, and words of what is wrong and what is right.
#[track_caller]
fn faults(text: &str, want: &[(&str, usize, &str, &str)]) {
    let found = load(text).err().unwrap_or_else(|| panic!("no fault in {text}"));
    assert_eq!(found.len(), want.len(), "{text}: {found:?}");
    for (fault, (key, line, wrong, remedy)) in found.iter().zip(want) {
        assert_eq!((fault.key.as_str(), &fault.place), (*key, &Place::Line(*line)), "{fault}");
        assert!(fault.wrong.contains(wrong) && fault.remedy.contains(remedy), "{fault}");
    }
}

#[test]
fn files_that_are_no_pair_are_faults_all_at_once_with_file_and_line() {
    let authority = Authority::with_one();
    authority.issue("b", &["b.test"]);
    authority.write("empty", "");
    authority.write("broken", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    authority.write("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    authority.write("large", &"x".repeat(1024 * 1024 + 1));
    let path = |file: &str| authority.path(file).display().to_string();
    let pair = |cert: &str, key: &str| format!("  {{ cert = '{}', key = '{}' }},\n", path(cert), path(key));
    let pairs = [
        pair("nowhere.pem", "nowhere.key"),
        pair("a.pem", "b.key"),
        pair("a.key", "a.pem"),
        pair("empty", "encrypted"),
        pair("broken", "a.key"),
        pair("", "large"),
        pair("a.pem", "a.key"),
    ];
    let text = format!("[server.tls]\nlisten = ['127.0.0.1:1']\ncertificates = [\n{}]\n", pairs.concat());
    let (no_file, whole, clear) = ("file that this process may read", "whole chain", "not encrypted");
    let key = |at: usize, part: &str| format!("server.tls.certificates[{at}].{part}");
    let want = [
        (key(0, "cert"), 4, "No such file", no_file),
        (key(0, "key"), 4, "No such file", no_file),
        (key(1, "key"), 5, "another certificate's", "this certificate's"),
        (key(2, "cert"), 6, "no certificate in it", whole),
        (key(2, "key"), 6, "no private key in it", clear),
        (key(3, "cert"), 7, "no certificate in it", whole),
        (key(3, "key"), 7, "no private key in it", clear),
        (key(4, "cert"), 8, "not PEM", whole),
        (key(5, "cert"), 9, "no file", no_file),
        (key(5, "key"), 9, "1 MiB", no_file),
    ];
    let want: Vec<_> = want.iter().map(|(key, line, wrong, remedy)| (&**key, *line, *wrong, *remedy)).collect();
    faults(&text, &want);
    let told = load(&text).expect_err("faults")[0].to_string();
    assert!(told.contains(&path("nowhere.pem")), "{told}");
}

#[test]
fn a_list_of_something_else_is_a_fault() {
    let example = "[{ cert = \"…\", key = \"…\" }]";
    for (value, key, wrong, remedy) in [
        ("'a.pem'", "", "is a string", example),
        ("['a.pem']", "[0]", "is a string", example),
        ("[{ cert = 'a.pem' }]", "[0].key", "missing", "key = "),
        ("[{ cert = 5, key = 'k' }]", "[0].cert", "is an integer", "quotes"),
        ("[{ cert = 'c', key = 'k', password = 'a5ecret' }]", "[0].password", "unknown key", "cert, key"),
        ("[{ cert = '${NOWHERE}', key = 'k' }]", "[0].cert", "NOWHERE is not set", "NOWHERE"),
    ] {
        let text = format!("server.tls.certificates = {value}");
        let found = load(&text).err().unwrap_or_else(|| panic!("no fault in {text}"));
        let one = &found[0];
        assert_eq!((found.len(), &*one.key), (1, &*format!("server.tls.certificates{key}")), "{found:?}");
        assert!(one.wrong.contains(wrong) && one.remedy.contains(remedy), "{one}");
        assert!(!one.to_string().contains("a5ecret"), "{one}");
    }
}

#[test]
fn listeners_need_certificates_and_headers_somebody_to_trust() {
    let certificates = ("server.tls.certificates", "nothing to show", "cert = ");
    let proxies = ("server.proxy_protocol", "nobody's header", "server.trusted_proxies");
    for (text, (key, wrong, remedy)) in [
        ("server.tls.listen = ['127.0.0.1:1']", certificates),
        ("server.tls = { listen = ['127.0.0.1:1'], certificates = [] }", certificates),
        ("server.proxy_protocol = 'optional'", proxies),
        ("server.proxy_protocol = 'required'", proxies),
        ("server.proxy_protocol = 'v2'", ("server.proxy_protocol", "no such choice", "required")),
        ("server.listen = []", ("server.listen", "nowhere to listen", "0.0.0.0:3002")),
    ] {
        let found = load(text).err().unwrap_or_else(|| panic!("no fault in {text}"));
        assert_eq!((found.len(), &*found[0].key), (1, key), "{found:?}");
        assert!(found[0].wrong.contains(wrong) && found[0].remedy.contains(remedy), "{}", found[0]);
    }
    // On one port both cannot be.
    let authority = Authority::with_one();
    let same = authority.config(&["a"]).replace("127.0.0.1:0", "127.0.0.1:3002");
    faults(
        &format!("server.listen = ['127.0.0.1:3002']\n{same}"),
        &[("server.tls.listen", 2, "is taken by 127.0.0.1:3002 of server.listen", "own port")],
    );
    // TLS alone is enough.
    let loaded = load(&format!("server.listen = []\n{}", authority.config(&["a"]))).expect("no fault");
    assert_eq!(loaded.config.server.tls.certificates[0].names, [HOST]);
}

#[test]
fn what_clients_will_not_like_is_a_warning() {
    let authority = Authority::new();
    authority.issue_until("old", &["old.test"], 2020);
    authority.issue("nameless", &[]);
    let loaded = load(&authority.config(&["old", "nameless"])).expect("no fault");
    let warned = |words: &str| loaded.warnings.iter().any(|warning| warning.contains(words));
    assert!(warned("old.pem\": it expired at 2020-01-01T00:00:00Z"), "{:?}", loaded.warnings);
    assert!(warned("nameless.pem\": it has no DNS name"), "{:?}", loaded.warnings);
    let unused = authority.config(&["old"]).replace("server.tls.listen", "# ");
    let loaded = load(&unused).expect("no fault");
    assert!(loaded.warnings.iter().any(|warning| warning.contains("nobody sees them")), "{:?}", loaded.warnings);
}

#[test]
fn check_prints_certificates_and_what_is_wrong_with_them() {
    let authority = Authority::with_one();
    let check = |text: &str| {
        authority.write("config.toml", text);
        let mut command = Command::new(env!("CARGO_BIN_EXE_client-proxy"));
        // Relative paths begin where the process was started.
        command.env_clear().current_dir(authority.folder()).args(["check", "--config", "config.toml"]);
        let output = command.output().expect("starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let tls = "[server.tls]\nlisten = [\"127.0.0.1:1\"]\n";
    let pair = "certificates = [{ cert = \"a.pem\", key = \"a.key\" }]\n";
    let (code, out, _) = check(&format!("{tls}{pair}"));
    assert_eq!(code, Some(0));
    assert!(out.contains(&format!("\n{tls}{pair}")), "{out}");
    assert!(!out.contains("PRIVATE"));
    // It can be read again as it was printed.
    assert_eq!(check(&out).1, out);
    let (code, _, wrong) = check(&format!("{tls}[[server.tls.certificates]]\ncert = \"a.pem\"\nkey = \"b.key\"\n"));
    assert_eq!(code, Some(2));
    assert!(wrong.contains("line 5: server.tls.certificates[0].key = \"b.key\": cannot be read"), "{wrong}");
}
