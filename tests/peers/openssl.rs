//! `openssl s_client`: which certificate, and sessions that are taken up again.

use crate::{
    counting,
    support::{
        Proxy,
        wire::{HOST, node_mode},
    },
    tls::{Authority, door},
    tools::{Running, Said},
};

/// One request, after which the proxy ends the connection. Its output ends when that does.
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: 8000-abc.example.test\r\nConnection: close\r\n\r\n";

async fn s_client(proxy: &Proxy, more: &[&str]) -> Said {
    let address = door(proxy).to_string();
    let all = [&["s_client", "-connect", &address, "-ign_eof"], more].concat();
    Running::start_with("openssl", &all, REQUEST).end().await
}

/// The first certificate in a text.
fn certificate(text: &str) -> &str {
    let start = text.find("-----BEGIN CERTIFICATE-----").expect("a certificate");
    let end = "-----END CERTIFICATE-----";
    &text[start..text.find(end).expect("its end") + end.len()]
}

#[tokio::test]
async fn openssl_sees_the_certificate_for_the_name_that_it_asks_for() {
    let (node, authority) = (counting().await, Authority::new());
    authority.issue("first", &["first.test"]);
    authority.issue("wild", &["*.example.test"]);
    let proxy = Proxy::start(&node_mode(node.address, &authority.config(&["first", "wild"])));
    let trusted = authority.path("wild.pem").display().to_string();
    for (name, want) in [(HOST, "wild"), ("first.test", "first"), ("nobody.test", "first"), ("", "first")] {
        let named = if name.is_empty() { vec!["-noservername"] } else { vec!["-servername", name] };
        let said = s_client(&proxy, &[&named[..], &["-alpn", "h2,http/1.1"]].concat()).await;
        let pem = std::fs::read_to_string(authority.path(&format!("{want}.pem"))).expect("a file");
        assert_eq!(certificate(&said.out), certificate(&pem.replace("\r\n", "\n")), "{name}");
        assert_eq!(said.lines("ALPN protocol: "), ["h2"], "{said:#?}");
        assert!(said.out.contains("TLSv1.3"), "{said:#?}");
    }
    let verified = ["-servername", HOST, "-verify_hostname", HOST, "-verify_return_error", "-CAfile", &trusted];
    let said = s_client(&proxy, &verified).await.well();
    assert!(said.out.contains("Verify return code: 0 (ok)") && said.out.contains("HTTP/1.1 200 OK"), "{said:#?}");
    for (version, code) in [("-tls1_1", 1), ("-tls1", 1)] {
        let said = s_client(&proxy, &[version, "-cipher", "DEFAULT@SECLEVEL=0"]).await;
        assert_eq!(said.code, Some(code), "{version}: {said:#?}");
    }
}

#[tokio::test]
async fn openssl_takes_its_session_up_again() {
    let (node, authority) = (counting().await, Authority::with_one());
    let proxy = Proxy::start(&node_mode(node.address, &authority.config(&["a"])));
    for version in ["TLSv1.2", "TLSv1.3"] {
        let flag = version.replace("TLSv1.", "-tls1_");
        let ticket = authority.path(&format!("{version}.ticket")).display().to_string();
        let said = s_client(&proxy, &[&flag, "-servername", HOST, "-sess_out", &ticket]).await.well();
        assert!(said.out.contains(&format!("New, {version}")) && said.out.contains("200 OK"), "{said:#?}");
        let said = s_client(&proxy, &[&flag, "-servername", HOST, "-sess_in", &ticket]).await.well();
        assert!(said.out.contains(&format!("Reused, {version}")) && said.out.contains("200 OK"), "{said:#?}");
    }
    // Six connections, five of them short.
    let said = s_client(&proxy, &["-tls1_2", "-servername", HOST, "-reconnect"]).await.well();
    assert_eq!((said.lines("New, TLSv1.2").len(), said.lines("Reused, TLSv1.2").len()), (1, 5), "{said:#?}");
    proxy.metric_becomes("client_proxy_tls_handshakes_total{result=\"resumed\"}", 7.0).await;
    proxy.metric_becomes("client_proxy_tls_handshakes_total{result=\"ok\"}", 3.0).await;
}
