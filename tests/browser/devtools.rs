//! The browser's own remote control (the Chrome `DevTools` Protocol): a page looked at without a script in it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::{
    LIMIT,
    chromium::Browser,
    support::{self, eventually},
};

/// One tab.
pub(crate) struct Tab {
    socket: WebSocketStream<TcpStream>,
    calls: u64,
    /// What it fetched since it last went somewhere.
    fetched: Vec<String>,
}

impl Tab {
    /// The first one of this browser.
    pub(crate) async fn of(browser: &Browser) -> Self {
        let address = ([127, 0, 0, 1], browser.devtools_port().await).into();
        let mut url = None;
        eventually("there is a tab", async || {
            let tabs = support::get(address, "/json/list").await.json();
            let page = tabs.as_array().and_then(|tabs| tabs.iter().find(|tab| tab["type"] == "page").cloned());
            url = page.and_then(|page| page["webSocketDebuggerUrl"].as_str().map(str::to_owned));
            url.is_some()
        })
        .await;
        let socket = TcpStream::connect(address).await.expect("a connection");
        let (socket, _) = client_async(url.expect("just seen"), socket).await.expect("a tab that listens");
        let mut this = Self { socket, calls: 0, fetched: Vec::new() };
        this.call("Page.enable", json!({})).await;
        this.call("Network.enable", json!({})).await;
        this
    }

    /// What the method returns.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let call = json!({ "id": self.calls, "method": method, "params": params });
        self.socket.send(Message::text(call.to_string())).await.expect("a tab that listens");
        loop {
            let mut said = self.hears().await;
            if said["id"] == self.calls {
                assert_eq!(said["error"], Value::Null, "{method}");
                return said["result"].take();
            }
        }
    }

    async fn hears(&mut self) -> Value {
        let said = timeout(LIMIT, self.socket.next()).await.expect("a word in time").expect("a word").expect("a word");
        let said: Value = serde_json::from_slice(&said.into_data()).expect("JSON");
        if said["method"] == "Network.requestWillBeSent" {
            self.fetched.push(said["params"]["request"]["url"].as_str().expect("a URL").to_owned());
        }
        said
    }

    /// Goes there, and waits until all of it has loaded.
    pub(crate) async fn goes(&mut self, url: &str) {
        self.fetched.clear();
        let gone = self.call("Page.navigate", json!({ "url": url })).await;
        assert_eq!(gone["errorText"], Value::Null, "{url}");
        while self.evaluate("document.readyState").await != "complete" || self.evaluate("location.href").await != url {}
    }

    /// All that was fetched since.
    pub(crate) fn fetched(&self) -> &[String] {
        &self.fetched
    }

    /// What this is in the page, whatever the page allows.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let mut told = self.call("Runtime.evaluate", params).await;
        assert_eq!(told["exceptionDetails"], Value::Null, "{expression}");
        told["result"]["value"].take()
    }

    /// Looks like a screen of this width from now on, in this scheme of colours.
    pub(crate) async fn looks(&mut self, width: u32, scheme: &str) {
        let (height, phone) = if width < 500 { (740, true) } else { (800, false) };
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", screen).await;
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", scheme).await;
    }

    /// A picture of what it shows, as PNG.
    pub(crate) async fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        STANDARD.decode(picture["data"].as_str().expect("a picture")).expect("base64")
    }
}
