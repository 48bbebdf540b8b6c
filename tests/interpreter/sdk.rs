//! The story of E2B's documentation, told by its SDK, unmodified.

use std::{process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};

use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_carries_on_where_it_was() {
    let stage = Stage::set().await;
    let mut story = Command::new(&stage.python);
    story
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interpreter/story.py"))
        .env_clear()
        .envs([("E2B_API_KEY", &*stage.api.key), ("NO_PROXY", "127.0.0.1"), ("E2B_API_URL", &stage.api.base)])
        .env("E2B_SANDBOX_URL", format!("http://{}", stage.proxy))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let told = timeout(Duration::from_mins(2), story.output()).await.expect("an end").expect("a process");
    let (out, err) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(told.status.success() && out.ends_with("as told\n"), "{out}\n{err}");
}
