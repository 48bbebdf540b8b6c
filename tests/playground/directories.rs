//! `filesystem.Filesystem` of the playground's envd, through the proxy: looking and changing.

use serde_json::{Value, json};

use crate::{envd::connect::Rpc, house::House};

fn at(path: &str) -> Value {
    json!({ "path": path })
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_are_made_listed_moved_and_removed() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    let made = house.ask(&sandbox, "MakeDir", at("d/e")).await;
    let entry = &made["entry"];
    assert_eq!(
        (&entry["name"], &entry["type"], &entry["path"]),
        (&json!("e"), &json!("FILE_TYPE_DIRECTORY"), &json!("/home/user/d/e"))
    );
    house.put(&sandbox, "d/e/f/b.txt", "12345").await;
    house.put(&sandbox, "d/a.txt", "").await;
    let stat = house.ask(&sandbox, "Stat", at("/home/user/d/e/f/b.txt")).await;
    assert_eq!((&stat["entry"]["size"], &stat["entry"]["owner"]), (&json!("5"), &json!("user")));
    let list = async |depth: u32, path: &str| -> Vec<String> {
        let list = house.ask(&sandbox, "ListDir", json!({ "path": path, "depth": depth })).await;
        let entries = list["entries"].as_array().expect("a list").clone();
        entries.iter().map(|entry| entry["path"].as_str().expect("a path").to_owned()).collect()
    };
    let two = ["/home/user/d/a.txt", "/home/user/d/e"];
    let three = [two[0], two[1], "/home/user/d/e/f"];
    let four = [three[0], three[1], three[2], "/home/user/d/e/f/b.txt"];
    assert_eq!(list(0, "d").await, two, "nought is one");
    assert_eq!(list(1, "/home/user/d/").await, two);
    assert_eq!(list(2, "d").await, three);
    assert_eq!(list(u32::MAX, "d").await, four);
    let moved = json!({ "source": "d/e", "destination": "/tmp/new/e" });
    let moved = house.ask(&sandbox, "Move", moved).await;
    assert_eq!(moved["entry"]["path"], "/tmp/new/e");
    assert_eq!(list(9, "/tmp/new").await, ["/tmp/new/e", "/tmp/new/e/f", "/tmp/new/e/f/b.txt"]);
    house.ask(&sandbox, "Remove", at("/tmp/new")).await;
    assert_eq!(house.ask(&sandbox, "Remove", at("/tmp/new")).await, json!({}), "what is not there is removed");
    assert_eq!(house.refused(&sandbox, "Stat", at("/tmp/new")).await, (404, "not_found".to_owned()));
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_told_in_connects_words() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.put(&sandbox, "d/a.txt", "a").await;
    let moving = |from: &str, to: &str| json!({ "source": from, "destination": to });
    for (name, message, want) in [
        ("Stat", at("nope"), "not_found"),
        ("Stat", at("d/a.txt/b"), "not_found"),
        ("Stat", at("~eve"), "invalid_argument"),
        ("ListDir", at("nope"), "not_found"),
        ("ListDir", at("d/a.txt"), "invalid_argument"),
        ("MakeDir", at("d"), "already_exists"),
        ("MakeDir", at("/"), "already_exists"),
        ("MakeDir", at("d/a.txt"), "invalid_argument"),
        ("MakeDir", at("d/a.txt/b"), "invalid_argument"),
        ("Move", moving("nope", "x"), "not_found"),
        ("Move", moving("d", "d/in/it"), "invalid_argument"),
        ("Move", moving("/", "/x"), "invalid_argument"),
        ("Remove", at("/"), "invalid_argument"),
        ("WatchDir", at("d"), ""),
    ] {
        if want.is_empty() {
            let call = house.envd(&sandbox, "POST", &format!("/filesystem.Filesystem/{name}"));
            assert_eq!(call.json(&message).send().await.expect("an answer").status(), 415, "{name} is a stream");
            continue;
        }
        let (_, word) = house.refused(&sandbox, name, message.clone()).await;
        assert_eq!(word, want, "{name} {message}");
    }
    for token in [None, Some("wrong")] {
        let bare = house.bare(&sandbox, "POST", "/filesystem.Filesystem/Stat").json(&at("d"));
        let bare = token.map_or(bare.try_clone(), |token| Some(bare.header("X-Access-Token", token)));
        let refused = bare.expect("a request").send().await.expect("an answer");
        assert_eq!(refused.status(), 401, "{token:?}");
    }
    let eve = house.envd(&sandbox, "POST", "/filesystem.Filesystem/Stat").basic_auth("eve", Some("")).json(&at("d"));
    assert_eq!(eve.send().await.expect("an answer").status(), 401, "no such user");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_callers_mean_the_same_files() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.put(&sandbox, "a.txt", "from outside").await;
    house.run(&sandbox, "cat a.txt > b.txt && cat \"$HOME/a.txt\" > c.txt && pwd > where && ln -s a.txt link").await;
    for name in ["b.txt", "c.txt", "/home/user/b.txt", "link"] {
        assert_eq!(house.get(&sandbox, name).await, (200, "from outside".to_owned()), "{name}");
    }
    let (_, place) = house.get(&sandbox, "where").await;
    let named = format!("{}/b.txt", place.trim());
    assert_eq!(house.get(&sandbox, &named).await, (200, "from outside".to_owned()), "by the name commands know");
    let link = house.ask(&sandbox, "Stat", at("link")).await;
    assert_eq!((&link["entry"]["isSymlink"], &link["entry"]["type"]), (&json!(true), &json!("FILE_TYPE_FILE")));
    assert_eq!(link["entry"]["symlinkTarget"], "/home/user/a.txt");
    // The home of `root`, whatever the machine has there.
    let start = json!({ "process": { "cmd": "/bin/sh", "args": ["-c", "pwd; cat r.txt; cat r.txt > /root/s.txt"] } });
    let sent = house.envd(&sandbox, "POST", "/files?path=r.txt&username=root").body("of root").send().await;
    assert_eq!(sent.expect("an answer").status(), 200);
    let root = Rpc::to(&house.ground.api.client, &sandbox).with("authorization", "Basic cm9vdDo=");
    assert_eq!(root.run(start).await.stdout, "/root\nof root");
    assert_eq!(house.get(&sandbox, "s.txt&username=root").await, (200, "of root".to_owned()));
    house.run(&sandbox, "echo inside > /tmp/back.txt").await;
    assert_eq!(house.get(&sandbox, "/tmp/back.txt").await, (200, "inside\n".to_owned()));
    assert!(!std::path::Path::new("/tmp/back.txt").exists(), "it is the sandbox's own");
    house.run(&sandbox, "rm b.txt && mkdir -p x/y").await;
    assert_eq!(house.get(&sandbox, "b.txt").await.0, 404);
    assert_eq!(house.ask(&sandbox, "Stat", at("x/y")).await["entry"]["type"], "FILE_TYPE_DIRECTORY");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_no_kernel_takes_are_refused_before_anything_is_done() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.put(&sandbox, "a.txt", "a").await;
    let agent = sandbox.processes().await[0].0;
    let peak = || {
        let status = std::fs::read_to_string(format!("/proc/{agent}/status")).expect("it lives");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")?.trim().parse().ok());
        peak.map(|peak: u64| peak / 1024).expect("a number")
    };
    let before = peak();
    let (deep, long) = ("top/".repeat(10_000), format!("top/{}", "n".repeat(256)));
    for path in [&*deep, &*long, &format!("top/{long}/x")] {
        let moving = json!({ "source": "a.txt", "destination": path });
        for (name, message) in [("Move", moving), ("MakeDir", at(path)), ("Stat", at(path)), ("ListDir", at(path))] {
            assert_eq!(house.refused(&sandbox, name, message).await.1, "invalid_argument", "{name}");
        }
        let form = format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{path}\"\r\n\r\none\r\n--b--\r\n"
        );
        let sent = house.envd(&sandbox, "POST", "/files").header("Content-Type", "multipart/form-data; boundary=b");
        assert_eq!(sent.body(form).send().await.expect("an answer").status(), 400);
    }
    let named = house.envd(&sandbox, "POST", &format!("/files?path={}", "top/".repeat(2_000))).body("x").send().await;
    assert_eq!(named.expect("an answer").status(), 400);
    assert!(peak() < before + 40, "{before} MiB before, {} MiB at its peak", peak());
    assert_eq!(house.refused(&sandbox, "Stat", at("top")).await.1, "not_found", "nothing was made on the way");
    // What the kernel takes is made, link by link and name by name.
    let path = "d/".repeat(1_900);
    house.run(&sandbox, "mkdir real && ln -s /home/user/real link").await;
    house.ask(&sandbox, "MakeDir", at(&format!("link/{path}"))).await;
    let made = house.ask(&sandbox, "Stat", at(&format!("real/{path}"))).await;
    assert_eq!(made["entry"]["type"], "FILE_TYPE_DIRECTORY");
    house.end().await;
}
