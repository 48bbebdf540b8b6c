//! Watching directories of the playground's sandboxes, through the proxy: as a stream, and by asking.

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    house::{Frames, House},
    playground_support::until,
};

const WATCH: &str = "/filesystem.Filesystem/WatchDir";

/// What is told until an event of this name and kind, keep-alives left out.
async fn told_until(frames: &mut Frames, name: &str, kind: &str) -> Vec<(String, String)> {
    let read = async {
        let mut told = Vec::new();
        loop {
            let (flags, message) = frames.next().await;
            assert_eq!(flags, 0, "{message}");
            if let Some(event) = message.get("filesystem") {
                let gone = event["type"] == "EVENT_TYPE_REMOVE" || event["type"] == "EVENT_TYPE_RENAME";
                assert!(!gone || event.get("entry").is_none(), "what is gone has no entry: {event}");
                told.push(named(event));
                if told.last().is_some_and(|(its, kinds)| its == name && kinds == kind) {
                    return told;
                }
            }
        }
    };
    timeout(std::time::Duration::from_secs(10), read).await.expect("in time")
}

fn named(event: &Value) -> (String, String) {
    let text = |name: &str| event[name].as_str().expect("text").to_owned();
    (text("name"), text("type").strip_prefix("EVENT_TYPE_").expect("a kind").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_of_changes_below_as_they_happen() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.ask(&sandbox, "MakeDir", json!({ "path": "w/old" })).await;
    let message = json!({ "path": "w", "recursive": true, "includeEntry": true, "allowNetworkMounts": true });
    let mut frames = house.stream(&sandbox, WATCH, &message).await;
    assert_eq!(frames.next().await, (0, json!({ "start": {} })));
    house.put(&sandbox, "w/old/a.txt", "12345").await;
    let (_, first) = frames.next().await;
    assert_eq!(named(&first["filesystem"]), ("old/a.txt".to_owned(), "CREATE".to_owned()));
    assert_eq!(first["filesystem"]["entry"]["path"], "/home/user/w/old/a.txt");
    told_until(&mut frames, "old/a.txt", "WRITE").await;
    // New directories are watched as well, and what they hold already is told.
    house.run(&sandbox, "mkdir -p w/n/e/w && echo x > w/n/e/w/f").await;
    let told = told_until(&mut frames, "n/e/w/f", "CREATE").await;
    for name in ["n", "n/e", "n/e/w", "n/e/w/f"] {
        assert!(told.contains(&(name.to_owned(), "CREATE".to_owned())), "{name}: {told:?}");
    }
    house.run(&sandbox, "chmod 600 w/n/e/w/f").await;
    told_until(&mut frames, "n/e/w/f", "CHMOD").await;
    // What moved away is watched no longer; under its new name it is.
    house.ask(&sandbox, "Move", json!({ "source": "w/n", "destination": "w/m" })).await;
    let told = told_until(&mut frames, "m", "CREATE").await;
    assert!(told.contains(&("n".to_owned(), "RENAME".to_owned())), "{told:?}");
    house.put(&sandbox, "w/m/e/g", "x").await;
    told_until(&mut frames, "m/e/g", "WRITE").await;
    // Out of the watched directory, nothing is told of it.
    house.ask(&sandbox, "Move", json!({ "source": "w/m/e", "destination": "out" })).await;
    house.put(&sandbox, "out/unheard", "x").await;
    house.ask(&sandbox, "Move", json!({ "source": "out", "destination": "w/m/e" })).await;
    let told = told_until(&mut frames, "m/e", "CREATE").await;
    assert!(told.iter().all(|(name, _)| !name.ends_with("unheard")), "{told:?}");
    house.ask(&sandbox, "Remove", json!({ "path": "w/m" })).await;
    let told = told_until(&mut frames, "m", "REMOVE").await;
    let of = |wanted: &str| {
        let mut names: Vec<_> = told.iter().filter(|(_, kind)| kind == wanted).map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(of("REMOVE"), ["m", "m/e", "m/e/g", "m/e/unheard", "m/e/w", "m/e/w/f"]);
    assert_eq!(of("CREATE"), ["m/e/g", "m/e/unheard", "m/e/w", "m/e/w/f"], "as it came back");
    assert_eq!(frames.next().await, (0, json!({ "keepalive": {} })), "nothing more, so a sign of life");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_not_recursive_tells_of_its_directory_alone() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.ask(&sandbox, "MakeDir", json!({ "path": "w/old" })).await;
    let mut frames = house.stream(&sandbox, WATCH, &json!({ "path": "w" })).await;
    frames.next().await;
    house.put(&sandbox, "w/old/a.txt", "1").await;
    house.put(&sandbox, "w/b.txt", "1").await;
    let (_, first) = frames.next().await;
    assert_eq!(
        first["filesystem"],
        json!({ "name": "b.txt", "type": "EVENT_TYPE_CREATE" }),
        "no entry unless asked for"
    );
    let told = told_until(&mut frames, "b.txt", "WRITE").await;
    assert!(told.iter().all(|(name, _)| name == "b.txt"), "{told:?}");
    for (path, want) in [("nope", "not_found"), ("w/b.txt", "invalid_argument")] {
        let mut frames = house.stream(&sandbox, WATCH, &json!({ "path": path })).await;
        let (flags, end) = frames.next().await;
        assert_eq!((flags, &end["error"]["code"]), (2, &json!(want)), "{path}");
        assert_eq!(house.refused(&sandbox, "CreateWatcher", json!({ "path": path })).await.1, want);
    }
    house.end().await;
}

/// SDKs ask for the sandbox's health at any other end, and so wake it.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_ends_an_open_watch_with_an_error_that_lets_the_sandbox_sleep() {
    let house = House::start().await;
    for memory in [true, false] {
        let sandbox = house.ground.api.sleeper("base").await;
        let mut frames = house.stream(&sandbox, WATCH, &json!({ "path": "." })).await;
        frames.next().await;
        let (paused, last) = tokio::join!(sandbox.post_with("pause", json!({ "memory": memory })), async {
            loop {
                let (flags, message) = frames.next().await;
                if flags != 0 {
                    return message;
                }
            }
        });
        assert_eq!(paused.status, 204);
        assert_eq!(last["error"]["code"], "unavailable", "{last}");
        assert!(last["error"]["message"].as_str().is_some_and(|text| text.contains("was not found")), "{last}");
        assert_eq!(sandbox.state().await, "paused");
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_keeps_what_happened_until_it_is_asked_also_over_a_pause() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    let watcher = house.ask(&sandbox, "CreateWatcher", json!({ "path": "." })).await;
    assert!(watcher["watcherId"].is_string());
    house.put(&sandbox, "a.txt", "1").await;
    assert_eq!(sandbox.post("pause").await.status, 204);
    // Wakes it.
    house.put(&sandbox, "b.txt", "1").await;
    let mut told = Vec::new();
    until("all is told", async || {
        let news = house.ask(&sandbox, "GetWatcherEvents", watcher.clone()).await;
        told.extend(news["events"].as_array().expect("a list").iter().map(named));
        told.iter().filter(|(_, kind)| kind == "CREATE").count() == 2
    })
    .await;
    assert_eq!(told[0], ("a.txt".to_owned(), "CREATE".to_owned()));
    assert_eq!(house.ask(&sandbox, "RemoveWatcher", watcher.clone()).await, json!({}));
    for name in ["GetWatcherEvents", "RemoveWatcher"] {
        assert_eq!(house.refused(&sandbox, name, watcher.clone()).await, (404, "not_found".to_owned()));
    }
    house.end().await;
}

/// The user's inotify instances are few, and all of this user's programs share them.
#[tokio::test(flavor = "multi_thread")]
async fn watches_of_both_kinds_are_bounded_together() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    let (mut streams, mut made) = (Vec::new(), Vec::new());
    let refused = loop {
        let mut frames = house.stream(&sandbox, WATCH, &json!({ "path": "." })).await;
        let (flags, message) = frames.next().await;
        if flags != 0 {
            break message["error"]["code"].clone();
        }
        streams.push(frames);
        let (status, answer) = house.call(&sandbox, "CreateWatcher", json!({ "path": "." })).await;
        if status != 200 {
            break answer["code"].clone();
        }
        made.push(answer);
        assert!(made.len() < 50, "without end");
    };
    assert_eq!(refused, "resource_exhausted");
    house.ask(&sandbox, "RemoveWatcher", made.remove(0)).await;
    house.ask(&sandbox, "CreateWatcher", json!({ "path": "." })).await;
    assert_eq!(house.refused(&sandbox, "CreateWatcher", json!({ "path": "." })).await.1, "resource_exhausted");
    streams.pop();
    until("a stream that was left gives its place back", async || {
        house.call(&sandbox, "CreateWatcher", json!({ "path": "." })).await.0 == 200
    })
    .await;
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_with_its_directory_and_says_so() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    for (away, last) in [("rm -r w", "REMOVE"), ("mv w gone", "RENAME")] {
        house.run(&sandbox, "mkdir -p w/in").await;
        let mut frames = house.stream(&sandbox, WATCH, &json!({ "path": "w", "recursive": true })).await;
        frames.next().await;
        let watcher = house.ask(&sandbox, "CreateWatcher", json!({ "path": "w" })).await;
        house.run(&sandbox, &format!("{away} && mkdir w && touch w/new")).await;
        told_until(&mut frames, ".", last).await;
        let (flags, end) = frames.next().await;
        assert_eq!((flags, &end["error"]["code"]), (2, &json!("not_found")), "{away}: {end}");
        let mut told = Vec::new();
        until("all is told", async || {
            let (status, news) = house.call(&sandbox, "GetWatcherEvents", watcher.clone()).await;
            told.extend(news["events"].as_array().into_iter().flatten().map(named));
            (status, news["code"].as_str()) == (404, Some("not_found"))
        })
        .await;
        assert!(told.contains(&(".".to_owned(), last.to_owned())), "{away}: {told:?}");
        house.ask(&sandbox, "RemoveWatcher", watcher).await;
        house.run(&sandbox, "rm -r w").await;
    }
    house.end().await;
}
