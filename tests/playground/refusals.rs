//! Why a sandbox is not woken, told by the proxy to whoever may have to do something about it.

use serde_json::Value;

use crate::{house::House, playground_support::Sandbox};

const TOKEN: &str = "X-Access-Token";
const ALLOW_LIST: &str = "not allow-listed";

/// Status, code and words of an error.
async fn told(request: reqwest::RequestBuilder) -> (u16, String, String) {
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    let error: Value = answer.json().await.expect("JSON");
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (status, text("error"), text("message"))
}

async fn asleep(house: &House) -> Sandbox {
    let sandbox = house.ground.api.sleeper("counter").await;
    assert_eq!(sandbox.post("pause").await.status, 204);
    sandbox
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_not_allow_listed_hears_that_and_nothing_of_tokens() {
    let house = House::start_with(&["--deny"]).await;
    let sandbox = asleep(&house).await;
    let port = house.ground.api.client.get(format!("http://{}/", house.proxy));
    let port = port.header("Host", format!("8000-{}.localhost", sandbox.id));
    for request in [house.envd(&sandbox, "GET", "/files?path=a"), port] {
        let (status, code, message) = told(request).await;
        assert_eq!((status, code.as_str()), (403, "access_denied"), "{message}");
        assert!(message.contains(ALLOW_LIST) && !message.contains(TOKEN), "{message}");
    }
    assert_eq!(sandbox.state().await, "paused");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_shows_no_token_or_a_wrong_one_hears_that_and_nothing_of_accounts() {
    let house = House::start().await;
    let sandbox = asleep(&house).await;
    for wrong in [house.bare(&sandbox, "GET", "/metrics"), house.bare(&sandbox, "GET", "/metrics").header(TOKEN, "x")] {
        let (status, code, message) = told(wrong).await;
        assert_eq!((status, code.as_str()), (403, "access_denied"), "{message}");
        assert!(message.contains(TOKEN) && !message.contains(ALLOW_LIST), "{message}");
    }
    assert_eq!(sandbox.state().await, "paused");
    house.end().await;
}
