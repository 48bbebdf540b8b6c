//! A person who waits: `wake.page_after`.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    asking::{BOTH, Fields, Over, ask, get, outcome},
    support::{
        Answer, Proxy, World,
        control_plane::{Gate, Step},
        eventually,
    },
};

const NAVIGATION: Fields<'static> = &[("sec-fetch-mode", "navigate"), ("accept", "text/html")];
const FETCH: Fields<'static> = &[("sec-fetch-mode", "cors"), ("accept", "*/*")];

async fn navigate(proxy: &Proxy, over: Over, method: &str) -> Answer {
    ask(proxy, over, (method, 8000, "abc", "/a?b=c"), NAVIGATION).await
}

#[tokio::test]
async fn a_navigation_gets_a_page_that_loads_itself_again_and_a_script_waits() {
    let world = World::new("wake.page_after = \"200ms\"\n").await;
    let gate = Gate::closed();
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    for over in BOTH {
        let asked = Instant::now();
        let page = navigate(&world.proxy, over, "GET").await;
        assert!(asked.elapsed() >= Duration::from_millis(200));
        assert_eq!((outcome(&page), page.header("content-type")), ((503, "waking"), "text/html; charset=utf-8"));
        assert_eq!(page.header("cache-control"), "no-store");
        let after: u64 = page.header("retry-after").parse().expect("seconds");
        let text = page.text();
        assert!(
            text.contains(&format!("<meta http-equiv=\"refresh\" content=\"{};url=/./a?b=c\">", after.clamp(2, 10))),
            "{text}"
        );
        assert!(text.contains("<title>The sandbox is waking up</title>"), "{text}");
        let head = navigate(&world.proxy, over, "HEAD").await;
        assert_eq!((outcome(&head), head.body.len()), ((503, "waking"), 0));
    }
    let waiting = async {
        // A script, a form that was sent; not what was told to come again.
        world.proxy.metric_becomes("client_proxy_held_requests", 2.0).await;
        gate.open();
    };
    let fetch = ask(&world.proxy, Over::Http1, ("GET", 8000, "abc", "/"), FETCH);
    let (fetch, form, ()) = tokio::join!(fetch, navigate(&world.proxy, Over::Http2, "POST"), waiting);
    assert_eq!((fetch.status.as_u16(), form.status.as_u16(), sandbox.connects()), (200, 200, 1));
    let again = navigate(&world.proxy, Over::Http1, "GET").await;
    assert_eq!((again.status.as_u16(), again.text()), (200, "hello".into()));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn the_page_comes_also_where_the_wake_waits_for_its_turn_and_goes_on() {
    let world = World::new("wake.page_after = \"50ms\"\nresume.max_concurrent = 1\n").await;
    let gate = Gate::closed();
    world.control.sandbox("first").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let sandbox = world.control.sandbox("abc");
    sandbox.paused("127.0.0.1").wakes([Step::Truly]);
    let first = ask(&world.proxy, Over::Http1, ("GET", 8000, "first", "/"), &[("x-sandbox-wake", "async")]).await;
    assert_eq!(outcome(&first), (503, "waking"));
    assert_eq!(outcome(&navigate(&world.proxy, Over::Http1, "GET").await), (503, "waking"));
    assert_eq!(sandbox.connects(), 0);
    gate.open();
    eventually("it runs", async || navigate(&world.proxy, Over::Http1, "GET").await.status == 200).await;
    assert_eq!(sandbox.connects(), 1);
    world.proxy.is_idle().await;
}

/// A person's request is held until its sandbox is awake, whatever has happened meanwhile.
async fn is_held(world: &World, method: &str, meanwhile: impl Future<Output = ()>) {
    let gate = Gate::closed();
    world.control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let later = async {
        world.proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
        meanwhile.await;
        gate.open();
    };
    let (answer, ()) = tokio::join!(navigate(&world.proxy, Over::Http1, method), later);
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello".into()));
    world.proxy.is_idle().await;
}

#[tokio::test]
async fn by_default_a_navigation_is_held_like_all() {
    let world = World::new("").await;
    is_held(&world, "GET", async {
        // It has waited longer than one that came later, and whose time is over.
        let brief = get(&world.proxy, "abc", &[("x-sandbox-wake", "wait=0.3")]).await;
        assert_eq!(outcome(&brief), (504, "hold_timeout"));
    })
    .await;
}

/// What loads itself again is not sent again: a form would be lost.
#[tokio::test]
async fn a_form_that_was_sent_is_held_like_all() {
    let world = World::new("wake.page_after = \"50ms\"\n").await;
    is_held(&world, "POST", async {
        // By now the form has waited longer than a navigation may.
        assert_eq!(outcome(&navigate(&world.proxy, Over::Http2, "GET").await), (503, "waking"));
    })
    .await;
}

#[tokio::test]
async fn what_a_page_shows_is_only_text() {
    let world = World::new("").await;
    // A Host that a browser would not send, but anybody may link to through another program.
    let mut client = crate::support::Raw::connect(world.proxy.address).await;
    client
        .write(
            "GET /<b>?</p> HTTP/1.1\r\nHost: <script>alert(1)</script>&\"'.example.test\r\nSec-Fetch-Mode: navigate\r\n\
             X-Request-Id: <i>\"x\"&\r\n\r\n",
        )
        .await;
    let message = client.message().await;
    let text = message.text();
    assert_eq!(message.head.status(), 400, "{text}");
    for bad in ["<script", "<i>", "<b>"] {
        assert!(!text.contains(bad), "{text}");
    }
    let told = world.control.sandbox("full");
    told.paused("127.0.0.1").wakes([Step::error(429, "<img src=x onerror=alert(1)> & more")]);
    let page = ask(&world.proxy, Over::Http1, ("GET", 8000, "full", "/"), NAVIGATION).await.text();
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt; &amp; more") && !page.contains("<img"), "{page}");
}
