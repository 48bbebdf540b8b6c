//! Web pages are kept out, also those whose name leads here: contexts want no token.

use serde_json::{Value, json};

use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn foreign_hosts_and_pages_are_refused() {
    let stage = Stage::set().await;
    let interpreter = stage.interpreter().await;
    let id = interpreter.context(json!({})).await;
    let (ip, context) = (interpreter.sandbox.ip, format!("/contexts/{id}"));
    let own = format!("{ip}:49999");
    let call = async |method: &str, path: &str, fields: &[(&str, &str)]| {
        let request = stage.api.client.request(method.parse().expect("a method"), format!("http://{own}{path}"));
        let request = fields.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = if method == "POST" { request.json(&json!({})) } else { request };
        request.send().await.expect("an answer").status().as_u16()
    };
    let host = ("Host", own.as_str());
    for foreign in [
        &[("Host", "evil.example:49999")][..],
        &[("Host", "49999-i1.evil.example")],
        &[host, ("Origin", "http://evil.example")],
        &[host, ("Origin", "null")],
        &[host, ("Sec-Fetch-Site", "cross-site")],
        &[host, ("Sec-Fetch-Site", "same-site")],
    ] {
        for (method, path) in [
            ("GET", "/health"),
            ("GET", "/contexts"),
            ("POST", "/contexts"),
            ("DELETE", context.as_str()),
            ("POST", "/execute"),
        ] {
            assert_eq!(call(method, path, foreign).await, 403, "{method} {path} {foreign:?}");
        }
    }
    let (_, all) = interpreter.call("GET", "/contexts", Value::Null).await;
    assert!(all.as_array().expect("a list").iter().any(|context| context["id"] == id.as_str()), "{all}");
    let name = format!("49999-{}.localhost:{}", interpreter.sandbox.id, stage.proxy.port());
    for fields in [&[host][..], &[("Host", name.as_str())], &[host, ("Origin", &format!("http://{own}"))]] {
        assert_eq!(call("GET", "/contexts", fields).await, 200, "{fields:?}");
    }
}
