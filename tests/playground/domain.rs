//! `--tls`: one domain for the control API and all sandboxes, and the authority that vouches for it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use client_proxy::dev::Playground;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};
use rustls::{RootCertStore, client::WebPkiServerVerifier, client::danger::ServerCertVerifier as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::playground_support::{Ground, options, program::Program};

#[tokio::test(flavor = "multi_thread")]
async fn one_domain_has_the_api_and_the_sandboxes() {
    let program = Program::start(&["--tls", "127.0.0.1:0"]).await;
    let domain = program.domain();
    let body = json!({ "templateID": "counter", "autoPause": true, "autoResume": { "enabled": true } });
    let made = domain.call("POST", "/v2/sandboxes", body.clone()).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let made = made.json();
    assert_eq!(made["domain"], program.variable("E2B_DOMAIN"));
    let id = made["sandboxID"].as_str().expect("an id");
    let own = format!("8000-{id}");
    let count = async |label: &str, fields: &[(&str, &str)]| {
        let told = domain.send("GET", label, "/", Value::Null, fields).await;
        assert_eq!(told.status, 200, "{}", told.text);
        told.text.trim().parse::<u64>().expect("a number")
    };
    assert_eq!(count(&own, &[]).await, 1);
    let pause = format!("/sandboxes/{id}/pause");
    assert_eq!(domain.call("POST", &pause, Value::Null).await.status, 204);
    let path = format!("/sandboxes/{id}");
    assert_eq!(domain.call("GET", &path, Value::Null).await.json()["state"], "paused");
    assert_eq!(count(&own, &[]).await, 2, "woken, with its memory");
    let fields = [("e2b-sandbox-id", id), ("e2b-sandbox-port", "8000")];
    assert_eq!(count("sandbox", &fields).await, 3, "the host that all share");
    assert_eq!(domain.call("GET", &path, Value::Null).await.json()["domain"], program.variable("E2B_DOMAIN"));

    // Who calls in the clear is told where that leads.
    let base = program.variable("E2B_API_URL");
    let plain = reqwest::Client::builder().no_proxy().build().expect("a client");
    let told = plain.post(format!("{base}/v2/sandboxes")).header("x-api-key", &domain.key).json(&body).send().await;
    let told: Value = told.expect("an answer").json().await.expect("JSON");
    let proxy = program.variable("E2B_SANDBOX_URL");
    let port = proxy.rsplit(':').next().expect("a port");
    assert_eq!(told["domain"], format!("localhost:{port}"));
    program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_domain_is_no_way_round_the_rules() {
    let program = Program::start(&["--tls", "127.0.0.1:0", "--domain", "e2b.test"]).await;
    let domain = program.domain();
    let list = "/v2/sandboxes";
    let get = async |label: &str, fields: &[(&str, &str)]| domain.send("GET", label, list, Value::Null, fields).await;
    let key = ("x-api-key", domain.key.as_str());
    assert_eq!(get("api", &[]).await.status, 401);
    assert_eq!(get("api", &[key]).await.status, 200);
    let preflight = [("origin", "https://8000-x.e2b.test"), ("access-control-request-method", "POST")];
    let preflight = domain.send("OPTIONS", "api", list, Value::Null, &preflight).await;
    assert_eq!(preflight.status, 401, "nobody is told what a page may do");
    let nobody = get("somebody", &[key]).await;
    assert_eq!((nobody.status.as_u16(), &nobody.json()["error"]), (400, &json!("invalid_host")), "no port is meant");
    let other = get("8000-api", &[key]).await;
    assert_eq!((other.status.as_u16(), &other.json()["error"]), (400, &json!("invalid_host")), "no sandbox's name");
    // In the clear, for names that the listeners do not have.
    let (api, proxy) = (program.variable("E2B_API_URL"), program.variable("E2B_SANDBOX_URL"));
    let plain = reqwest::Client::builder().no_proxy().build().expect("a client");
    let as_host = async |base: &str, host: &str| {
        let request = plain.get(format!("{base}{list}")).header(key.0, key.1).header("host", host);
        request.send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(as_host(&proxy, "8000-x.e2b.example").await, 421);
    for (host, status) in [("api.e2b.test", 200), ("api.e2b.example", 403), ("x.e2b.test", 403), ("e2b.test", 403)] {
        assert_eq!(as_host(&api, host).await, status, "{host}");
    }
    program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_nobodys_business_and_end_with_the_playground() {
    let program = Program::start(&["--tls", "127.0.0.1:0"]).await;
    let folder = program.file("SSL_CERT_FILE").parent().expect("a folder").to_owned();
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<_> = fs::read_dir(&folder).expect("a folder").flatten().map(|file| file.path()).collect();
    let keys: Vec<_> = files.iter().filter(|file| holds_a_key(file)).collect();
    assert_eq!(keys.len(), 1, "the authority's own is not kept: {files:?}");
    assert_eq!(mode(keys[0]), 0o600);
    let said = fs::read_to_string(keys[0]).expect("a file");
    assert!(!program.banner.contains(&said));
    program.end().await;
    assert!(!folder.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_authority_is_trusted_once() {
    let place = TempDir::new().expect("a folder");
    let kept = place.path().join("authority");
    let arguments = ["--tls", "127.0.0.1:0", "--authority", kept.to_str().expect("text")];
    let first = Program::start(&arguments).await;
    let text = fs::read_to_string(kept.join("ca.pem")).expect("a certificate");
    // What was trusted then is good for the next one.
    let trusted = first.domain().client;
    let bundle = first.file("SSL_CERT_FILE");
    assert_eq!((mode(&kept), mode(&kept.join("ca.key"))), (0o700, 0o600));
    first.end().await;
    let second = Program::start(&arguments).await;
    assert_eq!(fs::read_to_string(kept.join("ca.pem")).expect("a certificate"), text);
    assert_eq!(second.file("SSL_CERT_FILE"), bundle);
    let mut domain = second.domain();
    domain.client = trusted;
    let told = domain.send("GET", "api", "/health", Value::Null, &[]).await;
    assert_eq!(told.status, 200);
    let names = fs::read_dir(&kept).expect("a folder").flatten().map(|file| file.file_name());
    assert_eq!(names.count(), 3, "ca.pem, ca.key, bundle.pem");
    second.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_is_of_no_use_is_told_so() {
    let place = TempDir::new().expect("a folder");
    let folder = place.path().to_str().expect("text");
    let start = async |domain: &str| {
        let arguments = ["--tls", "127.0.0.1:0", "--authority", folder, "--domain", domain];
        let started = Playground::start(&options(&arguments)).await;
        started.map(drop).map_err(|error| format!("{error:#}"))
    };
    start("e2b.localhost").await.expect("a first one");
    let (certificate, key) = (place.path().join("ca.pem"), place.path().join("ca.key"));
    assert!(start("other.test").await.expect_err("another domain's").contains("give another folder"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).expect("a mode");
    assert!(start("e2b.localhost").await.expect_err("known to others").contains("chmod 600"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a mode");
    let text = fs::read_to_string(&key).expect("a key");
    fs::write(&key, KeyPair::generate().expect("a key").serialize_pem()).expect("written");
    assert!(start("e2b.localhost").await.expect_err("another key").contains("not the key of"));
    fs::write(&key, text).expect("written");
    fs::write(&certificate, "-----BEGIN").expect("written");
    start("e2b.localhost").await.expect_err("no certificate");
    fs::remove_file(&certificate).expect("removed");
    assert!(start("e2b.localhost").await.expect_err("one alone").contains("one is missing"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_the_authoritys_key_can_vouch_for_its_domain_only() {
    let place = TempDir::new().expect("a folder");
    let arguments = ["--tls", "127.0.0.1:0", "--authority", place.path().to_str().expect("text")];
    let ground = Ground::start(&arguments).await;
    let read = |file: &str| fs::read_to_string(place.path().join(file)).expect("a file");
    let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), KeyPair::from_pem(&read("ca.key")).expect("a key"));
    let issuer = issuer.expect("an authority");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(read("ca.pem").as_bytes()).expect("a certificate")).expect("a root");
    let verifier = WebPkiServerVerifier::builder(roots.into()).build().expect("a verifier");
    for (name, good) in [("x.e2b.localhost", true), ("mail.example", false), ("x.localhost", false)] {
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new([name.to_owned()]).expect("a name").signed_by(&key, &issuer);
        let leaf = leaf.expect("a certificate").der().clone();
        let name = ServerName::try_from(name).expect("a name");
        let outcome = verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now());
        assert_eq!(outcome.is_ok(), good, "{name:?}: {outcome:?}");
    }
    ground.playground.shutdown().await;
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

fn holds_a_key(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.contains("PRIVATE KEY"))
}
