//! `/files` of the playground's envd, through the proxy.

use std::{
    io::Write as _,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use flate2::{Compression, write::GzEncoder};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::{
    house::{House, told},
    playground_support::{Sandbox, until},
};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("packed");
    encoder.finish().expect("packed")
}

const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"d/1.txt\"\r\n\r\none\r\n\
    --b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nignored\r\n\
    --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/2.txt\"\r\n\r\ntwo\r\n--b--\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn files_go_up_in_every_form_that_sdks_have() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    let form = "multipart/form-data; boundary=b";
    for (packed, body) in [(false, FORM.into()), (true, gzip(FORM.as_bytes()))] {
        let sent = house.envd(&sandbox, "POST", "/files").header("Content-Type", form);
        let sent = if packed { sent.header("Content-Encoding", "gzip") } else { sent };
        let (status, text) = told(sent.body::<Vec<u8>>(body).send().await.expect("an answer")).await;
        assert_eq!(status, 200, "{text}");
        let want = json!([
            { "name": "1.txt", "path": "/home/user/d/1.txt", "type": "file" },
            { "name": "2.txt", "path": "/tmp/2.txt", "type": "file" },
        ]);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), want);
        assert_eq!(house.get(&sandbox, "d/1.txt").await, (200, "one".to_owned()));
        assert_eq!(house.get(&sandbox, "/tmp/2.txt").await, (200, "two".to_owned()));
        house.ask(&sandbox, "Remove", json!({ "path": "/home/user/d" })).await;
    }
    // As httpx writes a backslash, and as a browser does.
    for name in [r"d/a\\b.txt", r"d/a\b.txt"] {
        let one = FORM.replace("d/1.txt", name).replace("/tmp/2.txt", "/tmp/3.txt");
        let sent = house.envd(&sandbox, "POST", "/files").header("Content-Type", form).body(one);
        let (_, text) = told(sent.send().await.expect("an answer")).await;
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON")[0]["path"], "/home/user/d/a\\b.txt");
    }
    let long = "zip me ".repeat(100_000);
    let sent = house.envd(&sandbox, "POST", "/files?path=z.txt&username=user");
    let sent = sent.header("Content-Type", "application/octet-stream").header("Content-Encoding", "gzip");
    assert_eq!(sent.body(gzip(long.as_bytes())).send().await.expect("an answer").status(), 200);
    assert_eq!(house.get(&sandbox, "~/z.txt").await, (200, long));
    house.put(&sandbox, "empty", "").await;
    assert_eq!(house.get(&sandbox, "empty").await, (200, String::new()));
    house.end().await;
}

/// The answer names all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_form_may_tell_so_much_of_its_files() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    let (long, short) = (format!("/{}", format!("{}/", "d".repeat(250)).repeat(16)), "/".to_owned());
    // More than 4 MiB of paths, of notes, and of neither.
    for (folder, note, want) in [(long, 0, 400), (short.clone(), 4000, 400), (short, 2000, 200)] {
        let part = |number: usize| {
            let name = format!("{folder}{number}");
            format!("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\nx\r\n")
        };
        let form = (0..1060).map(part).collect::<String>() + "--b--\r\n";
        let sent = house.envd(&sandbox, "POST", "/files").header("Content-Type", "multipart/form-data; boundary=b");
        let sent = sent.header("X-Metadata-Note", "n".repeat(note)).body(form);
        let (status, text) = told(sent.send().await.expect("an answer")).await;
        assert_eq!((status, text.contains("4194304 bytes of paths and notes")), (want, want == 400));
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_breaks_off_changes_nothing() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.put(&sandbox, "a.txt", "as it was").await;
    let whole = gzip("x".repeat(1_000_000).as_bytes());
    for (name, value, body) in [
        ("Content-Encoding", "gzip", &whole[..whole.len() - 5]),
        ("Content-Encoding", "gzip", b"not packed at all"),
        ("Content-Encoding", "br", b"unknown"),
        (
            "Content-Type",
            "multipart/form-data; boundary=b",
            b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nhalf a f",
        ),
    ] {
        let sent = house.envd(&sandbox, "POST", "/files?path=a.txt").header(name, value).body(body.to_vec());
        assert_eq!(told(sent.send().await.expect("an answer")).await.0, 400, "{name}: {value}");
        assert_eq!(house.get(&sandbox, "a.txt").await, (200, "as it was".to_owned()));
    }
    let twice = FORM.replace("/tmp/2.txt", "/home/user/d/1.txt");
    let sent = house.envd(&sandbox, "POST", "/files").header("Content-Type", "multipart/form-data; boundary=b");
    let (status, text) = told(sent.body(twice).send().await.expect("an answer")).await;
    assert!(status == 400 && text.contains("/home/user/d/1.txt"), "{text}");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_that_cannot_be_kept_leave_the_file_as_it_was() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.put(&sandbox, "a.txt", "as it was").await;
    let (long_name, much) = (format!("X-Metadata-{}", "n".repeat(300)), "v".repeat(5000));
    for (name, value) in [(&*long_name, "x"), ("X-Metadata-Much", &*much)] {
        for path in ["a.txt", "new.txt"] {
            let sent = house.envd(&sandbox, "POST", &format!("/files?path={path}")).header(name, value).body("changed");
            assert_eq!(told(sent.send().await.expect("an answer")).await.0, 400, "{name:.20}");
        }
        assert_eq!(house.get(&sandbox, "a.txt").await, (200, "as it was".to_owned()));
        assert_eq!(house.get(&sandbox, "new.txt").await.0, 404);
    }
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_or_written_is_told() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.put(&sandbox, "d/a.txt", "a").await;
    for (path, want) in
        [("missing", 404), ("d/a.txt/b", 404), ("d", 400), ("", 400), ("~eve/a", 400), ("/etc/passwd", 404)]
    {
        assert_eq!(house.get(&sandbox, path).await.0, want, "{path}");
    }
    for path in ["d", "d/a.txt/b", "/", ""] {
        let sent = house.envd(&sandbox, "POST", &format!("/files?path={path}")).body("x").send().await;
        assert_eq!(told(sent.expect("an answer")).await.0, 400, "{path}");
    }
    assert_eq!(house.get(&sandbox, "a&username=eve").await.0, 401);
    assert_eq!(house.get(&sandbox, "d/a.txt&username=root").await.0, 404, "another home");
    let sent = house.envd(&sandbox, "PUT", "/files?path=a").body("x").send().await.expect("an answer");
    assert_eq!(sent.status(), 405);
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_at_a_file_are_kept_until_it_is_written_again() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    for (notes, want) in [
        (vec![("X-Metadata-Color", "red"), ("X-Metadata-x", "1 2")], json!({ "color": "red", "x": "1 2" })),
        (vec![], Value::Null),
    ] {
        let mut sent = house.envd(&sandbox, "POST", "/files?path=a.txt").body("a");
        for (name, value) in notes {
            sent = sent.header(name, value);
        }
        let (status, text) = told(sent.send().await.expect("an answer")).await;
        assert_eq!(status, 200, "{text}");
        let written: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(written[0]["metadata"], want);
        let entry = house.ask(&sandbox, "Stat", json!({ "path": "a.txt" })).await;
        assert_eq!(entry["entry"]["metadata"], want);
    }
    house.end().await;
}

/// As the SDKs' `download_url` and `upload_url` make it.
fn signed(sandbox: &Sandbox, path: &str, operation: &str, until: Option<u64>) -> String {
    let end = until.map(|end| format!(":{end}")).unwrap_or_default();
    let text = format!("{path}:{operation}::{}{end}", sandbox.token);
    let hash = STANDARD_NO_PAD.encode(digest(&SHA256, text.as_bytes())).replace('+', "%2B").replace('/', "%2F");
    let end = until.map(|end| format!("&signature_expiration={end}")).unwrap_or_default();
    format!("/files?path={path}&signature=v1_{hash}{end}")
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_urls_are_good_for_what_they_say_and_wake_nobody() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.put(&sandbox, "a.txt", "content").await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let read = signed(&sandbox, "a.txt", "read", None);
    let get = async |url: &str| told(house.bare(&sandbox, "GET", url).send().await.expect("an answer")).await;
    for url in [&read, &signed(&sandbox, "a.txt", "read", Some(now + 60))] {
        assert_eq!(get(url).await, (200, "content".to_owned()));
    }
    for url in [
        "/files?path=a.txt".to_owned(),
        signed(&sandbox, "a.txt", "write", None),
        signed(&sandbox, "a.txt", "read", Some(now - 60)),
        read.replace("path=a.txt", "path=b.txt"),
        format!("{read}&username=root"),
        format!("{read}&signature_expiration={}", now + 60),
    ] {
        assert_eq!(get(&url).await.0, 401, "{url}");
    }
    let form = FORM.replace("d/1.txt", "ignored");
    let up = house.bare(&sandbox, "POST", &signed(&sandbox, "up.txt", "write", None));
    let up = up
        .header("Content-Type", "multipart/form-data; boundary=b")
        .body(form[..form.rfind("--b\r\n").expect("two parts")].to_owned() + "--b--\r\n");
    assert_eq!(told(up.send().await.expect("an answer")).await.0, 200);
    assert_eq!(house.get(&sandbox, "up.txt").await, (200, "one".to_owned()));
    // A wrong token is not made good by a signature.
    let both = house.bare(&sandbox, "GET", &read).header("X-Access-Token", "wrong").send().await;
    assert_eq!(both.expect("an answer").status(), 401);
    // They carry no token, and without one nobody wakes a sandbox.
    assert_eq!(sandbox.post("pause").await.status, 204);
    assert_eq!(get(&read).await.0, 403);
    assert_eq!(sandbox.state().await, "paused");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_megabytes_go_up_and_down_through_a_sleeping_sandbox_in_constant_memory() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    let part: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
    let big = bytes::Bytes::from(part.repeat(25));
    assert_eq!(big.len(), 100 << 20);
    for _ in 0..2 {
        assert_eq!(sandbox.post("pause").await.status, 204);
        house.put(&sandbox, "big", big.clone()).await;
        assert_eq!(sandbox.post("pause").await.status, 204);
        let down = house.envd(&sandbox, "GET", "/files?path=big").send().await.expect("an answer");
        assert_eq!(down.content_length(), Some(100 << 20));
        assert!(down.bytes().await.expect("a body") == big);
    }
    until("it runs", async || sandbox.state().await == "running").await;
    let agent = sandbox.processes().await[0].0;
    let status = std::fs::read_to_string(format!("/proc/{agent}/status")).expect("it lives");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB")?.trim().parse().ok());
    let peak: u64 = peak.expect("a number");
    assert!(peak < 60_000, "{peak} kB");
    house.end().await;
}
