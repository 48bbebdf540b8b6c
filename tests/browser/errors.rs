//! The pages that the proxy itself shows. Where `ERROR_PAGES` names a folder, a picture of each is left there for
//! people to look at.

use serde_json::{Value, json};

use crate::{
    chromium::Browser,
    devtools::Tab,
    support::{
        DIRECT, Proxy, Server, World, answer,
        control_plane::{Gate, Sandbox, Step},
        free_port, own_ip,
    },
};

/// The longest name that a label can hold beside a port.
const LONG: &str = "i7d1k2i7d1k2i7d1k2i7d1k2i7d1k2i7d1k2i7d1k2i7d1k2i7d1k2";

/// A page: where, its title, and words of its message.
struct Shown {
    url: String,
    title: &'static str,
    says: &'static str,
    code: &'static str,
}

fn page(proxy: &Proxy, name: &str, title: &'static str, says: &'static str, code: &'static str) -> Shown {
    let url = format!("http://{name}.example.test:{}/", proxy.address.port());
    Shown { url, title, says, code }
}

fn private(sandbox: &Sandbox) {
    let network = json!({ "allowPublicTraffic": false });
    sandbox.paused("127.0.0.1").set("/network", network).set("/trafficAccessToken", json!("t0ken"));
}

#[tokio::test]
async fn each_page_says_what_happened_and_what_to_do_on_any_screen_and_needs_nothing_else() {
    let world = World::new("wake.page_after = \"10ms\"\n").await;
    let (control, proxy) = (&world.control, &world.proxy);
    let gate = Gate::closed();
    control.sandbox("asleep").paused("127.0.0.1").set("/lifecycle", json!({ "autoResume": false }));
    control.sandbox("waking").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    control.sandbox("full").paused("127.0.0.1").always_wakes(Step::error(
        429,
        "You have reached the maximum number of 20 concurrent sandboxes. Contact support@example.test for more.",
    ));
    control.sandbox("down").always_looks_up(Step::Garbage);
    control.sandbox("killed").always_looks_up(Step::gone("killed"));
    private(&control.sandbox("private"));
    let ip = own_ip();
    control.sandbox("closed").running(&ip);
    let direct = Proxy::start(&control.config(DIRECT));
    let closed = format!("{}-closed", free_port(&ip));
    let pages = [
        page(proxy, &format!("65535-{LONG}"), "Sandbox not found", "Check its id", "502 sandbox_not_found (unknown)"),
        page(proxy, "8000-killed", "Sandbox not found", "Create a new one", "502 sandbox_not_found (killed)"),
        page(
            proxy,
            "8000-asleep",
            "This sandbox is asleep",
            "Connect to it",
            "502 sandbox_not_found (auto_resume_off)",
        ),
        page(proxy, "8000-private", "Access denied", "Send its token", "403 traffic_token_missing"),
        page(&direct, &closed, "Nothing listens on this port", "Start a server on port", "502 port_closed"),
        page(proxy, "8000-full", "Limit reached", "maximum number of 20", "429 team_limit"),
        page(proxy, "8000-waking", "The sandbox is waking up", "in a moment", "503 waking"),
        page(proxy, "8000-down", "Not available right now", "Try again soon", "503 control_plane_unavailable"),
        page(proxy, "0-abc", "This address leads nowhere", "from 1 to 65535", "400 invalid_port"),
    ];
    let browser = Browser::open("about:blank", None);
    let mut tab = Tab::of(&browser).await;
    for shown in &pages {
        let mut grounds = Vec::new();
        for width in [360, 1280] {
            for scheme in ["light", "dark"] {
                tab.looks(width, scheme).await;
                tab.goes(&shown.url).await;
                grounds.push(is_readable(&mut tab, shown, width).await);
                if let Some(folder) = std::env::var_os("ERROR_PAGES") {
                    let name = format!("{}-{width}-{scheme}.png", shown.code.replace([' ', '(', ')'], "-"));
                    let file = std::path::Path::new(&folder).join(name);
                    std::fs::write(file, tab.picture().await).expect("a folder that takes it");
                }
            }
        }
        assert!(grounds[0] == grounds[2] && grounds[1] == grounds[3] && grounds[0] > grounds[1], "{grounds:?}");
    }
    gate.open();
    drop(browser);
    proxy.is_idle().await;
}

/// How bright its ground is.
async fn is_readable(tab: &mut Tab, shown: &Shown, width: u32) -> u64 {
    let Shown { url, title, says, code } = shown;
    assert_eq!(tab.evaluate("document.title").await, *title, "{url}");
    assert_eq!(tab.evaluate("document.querySelector('h1').innerText").await, *title, "{url}");
    let text = tab.evaluate("document.body.innerText").await;
    let text = text.as_str().expect("text");
    assert!(text.contains(says) && text.contains(code), "{url}: {text}");
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    assert!(text.contains(host), "{url}: {text}");
    let root = "document.documentElement";
    assert_eq!(tab.evaluate("innerWidth").await, width, "{url}: it is as wide as the screen");
    let wide = tab.evaluate(&format!("Math.max({root}.scrollWidth, document.body.scrollWidth)")).await;
    assert!(wide.as_u64().is_some_and(|wide| wide <= width.into()), "{url}: {wide} of {width}");
    // Nobody has to bend down: letters of 16 pixels, small print of 13 at least.
    let smallest = "Math.min(...[...document.querySelectorAll('h1, p, dt, dd')]\
        .map((part) => parseFloat(getComputedStyle(part).fontSize)))";
    assert!(tab.evaluate(smallest).await.as_f64().is_some_and(|size| size >= 13.0), "{url}");
    assert_eq!(tab.evaluate("document.scripts.length").await, 0);
    // Else a browser asks the sandbox for one, which wakes it.
    assert_eq!(tab.evaluate("document.querySelector('link[rel=icon]').href").await, "data:,");
    let elsewhere: Vec<_> =
        tab.fetched().iter().filter(|fetched| *fetched != url && !fetched.starts_with("data:")).collect();
    assert!(elsewhere.is_empty(), "{url}: {elsewhere:?}");
    let colours = |what: &str| format!("getComputedStyle({what}).backgroundColor.match(/\\d+/g).map(Number)");
    let ground = tab.evaluate(&colours("document.body")).await;
    ground.as_array().expect("a colour").iter().filter_map(Value::as_u64).sum()
}

#[tokio::test]
async fn the_waking_page_becomes_the_sandboxs_own_by_itself() {
    let control = crate::support::control_plane::ControlPlane::start().await;
    let app = Server::start(async |_| {
        let mut own = answer(200, "<!doctype html><link rel=icon href='data:,'><title>Its own</title>hello");
        own.headers_mut().insert("content-type", http::HeaderValue::from_static("text/html"));
        own
    })
    .await;
    let lines = format!("{}wake.page_after = \"100ms\"\n", crate::support::nodes_at(app.address.port()));
    let proxy = Proxy::start(&control.config(&lines));
    let gate = Gate::closed();
    let sandbox = control.sandbox("abc");
    sandbox.paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
    let browser = Browser::open("about:blank", None);
    let mut tab = Tab::of(&browser).await;
    let url = format!("http://8000-abc.example.test:{}/a?b=c", proxy.address.port());
    tab.goes(&url).await;
    assert_eq!(tab.evaluate("document.title").await, "The sandbox is waking up");
    assert_eq!(
        tab.evaluate("document.querySelector('[role=status]').innerText").await,
        "This page loads again by itself."
    );
    // It may come again in vain, and goes on trying.
    let fetched = "client_proxy_requests_total{origin=\"proxy\",status=\"503\",error=\"waking\"}";
    crate::support::eventually("it came again", async || proxy.count(fetched).await >= 2).await;
    gate.open();
    // It comes again after seconds, and a browser that loads a page tells nobody when it shows it: it is asked.
    let started = tokio::time::Instant::now();
    while tab.evaluate("document.title").await != "Its own" {
        assert!(started.elapsed() < crate::LIMIT, "it never became the sandbox's");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(tab.evaluate("location.href").await, *url);
    // Nothing but the page itself was asked for: also no icon, for which a sandbox would be woken.
    let seen = app.seen.lock().expect("no panic").clone();
    assert!(seen.iter().all(|head| head.uri == "/a?b=c"), "{seen:?}");
    assert_eq!(sandbox.connects(), 1);
}
