//! The channel over TLS: whom it believes, and whom not.

use std::sync::Arc;

use client_proxy::control::SetupError;
use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    version::{TLS12, TLS13},
};

use super::{LONG, anybody, fault, node, resume, runs, settings, try_resumer};
use crate::{
    support::{grpc_api::GrpcApi, own_ip},
    tls::{Authority, VERSIONS},
};

/// An API with a certificate of this authority for these names.
async fn api_of(authority: &Authority, ip: &str, names: &[&str], alpn: &[&str]) -> GrpcApi {
    with_versions(authority, ip, names, alpn, &VERSIONS).await
}

async fn with_versions(
    authority: &Authority,
    ip: &str,
    names: &[&str],
    alpn: &[&str],
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> GrpcApi {
    let (chain, key) = authority.pair(names, 2999);
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("certificates"), key)
        .expect("a certificate");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    GrpcApi::with_tls(config, ip).await
}

/// What a resumer is told that believes this authority.
async fn outcome(
    api: &GrpcApi,
    authority: &Authority,
) -> Result<client_proxy::types::Placement, client_proxy::sandbox::ports::WakeError> {
    let mut settings = settings(api.address);
    settings.tls = true;
    settings.ca = Some(authority.pem().into_bytes());
    let resumer = try_resumer(&settings, LONG).expect("a resumer");
    resume(&resumer, &anybody()).await
}

#[tokio::test]
async fn a_server_of_the_configured_authority_is_believed() {
    let authority = Authority::new();
    let ip = own_ip();
    for versions in [&[&TLS12][..], &[&TLS13], &VERSIONS] {
        let api = with_versions(&authority, &ip, &[&ip], &["h2"], versions).await;
        api.resumes("abc", [runs()]);
        assert_eq!(node(&outcome(&api, &authority).await), Some("10.0.0.5"));
    }
}

#[tokio::test]
async fn any_of_several_authorities_will_do() {
    let (first, second) = (Authority::new(), Authority::new());
    let ip = own_ip();
    let api = api_of(&second, &ip, &[&ip], &["h2"]).await;
    api.resumes("abc", [runs()]);
    let mut settings = settings(api.address);
    settings.tls = true;
    settings.ca = Some((first.pem() + &second.pem()).into_bytes());
    let resumer = try_resumer(&settings, LONG).expect("a resumer");
    assert_eq!(node(&resume(&resumer, &anybody()).await), Some("10.0.0.5"));
}

#[tokio::test]
async fn no_other_server_hears_of_a_call() {
    let (authority, other) = (Authority::new(), Authority::new());
    let ip = own_ip();
    // Another authority; another name; no HTTP/2.
    for (issuer, names, alpn, want) in [
        (&other, [&*ip], &["h2"][..], "invalid peer certificate"),
        (&authority, ["api.example.test"], &["h2"], "not valid for name"),
        (&authority, [&*ip], &["http/1.1"], "TLS"),
        (&authority, [&*ip], &[], "ALPN"),
    ] {
        let api = api_of(issuer, &ip, &names, alpn).await;
        let text = fault(outcome(&api, &authority).await);
        assert!(text.contains("no connection: TLS: ") && text.contains(want), "{text}");
        assert!(api.calls().is_empty());
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_a_fault_and_so_is_one_that_does_where_none_is_wanted() {
    let authority = Authority::new();
    let plain = GrpcApi::start().await;
    let text = fault(outcome(&plain, &authority).await);
    assert!(text.contains("no connection: TLS: "), "{text}");

    let ip = own_ip();
    let api = api_of(&authority, &ip, &[&ip], &["h2"]).await;
    let resumer = try_resumer(&settings(api.address), LONG).expect("a resumer");
    let text = fault(resume(&resumer, &anybody()).await);
    assert!(text.contains("broke"), "{text}");
    assert!(plain.calls().is_empty() && api.calls().is_empty());
}

#[tokio::test]
async fn the_systems_authorities_do_not_sign_for_ours() {
    let authority = Authority::new();
    let ip = own_ip();
    let api = api_of(&authority, &ip, &[&ip], &["h2"]).await;
    let mut settings = settings(api.address);
    settings.tls = true;
    match try_resumer(&settings, LONG) {
        Ok(resumer) => {
            let text = fault(resume(&resumer, &anybody()).await);
            assert!(text.contains("UnknownIssuer"), "{text}");
        }
        // A machine without any.
        Err(error) => assert!(error.to_string().contains("the system has no certificate"), "{error}"),
    }
}

#[tokio::test]
async fn unfit_settings_are_told() {
    for (address, tls, ca) in [
        ("a b:1", false, None),
        ("", false, None),
        ("host:99999", false, None),
        ("host:1", true, Some("")),
        ("host:1", true, Some("garbage")),
        ("host:1", true, Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
        ("host:1", true, Some("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")),
    ] {
        let mut settings = settings(address);
        (settings.tls, settings.ca) = (tls, ca.map(|pem| pem.as_bytes().to_vec()));
        let error = try_resumer(&settings, LONG).expect_err("unfit");
        assert!(matches!(&error, SetupError::Grpc(text) if text.contains("resume.grpc.")), "{address:?}: {error}");
    }
}
