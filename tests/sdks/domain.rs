//! The SDKs with a playground's domain: by HTTP/2, and where names of sandboxes lead nowhere.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    installed::{Installed, NEWEST, OLD},
    playground_support::program::Program,
    run::{OVER_TLS, ROOT, Run},
};

/// Whether a client spoke HTTP/2 to the program while this ran.
async fn with_http2(program: &Program, work: impl Future<Output = ()>) -> bool {
    let (url, seen) = (format!("http://{}/metrics", program.address("health")), Arc::new(AtomicBool::new(false)));
    let client = crate::playground_support::client();
    let look = async {
        loop {
            let text = client.get(&url).send().await.expect("an answer").text().await.expect("a body");
            let line = text.lines().find_map(|line| line.strip_prefix("client_proxy_connections{protocol=\"http2\"} "));
            seen.fetch_or(line.is_some_and(|count| count != "0"), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = work => seen.load(Ordering::Relaxed),
        () = look => unreachable!("it looks for ever"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sdks_of_both_languages_and_generations_speak_http2() {
    let program = Program::start(&["--tls", "127.0.0.1:0"]).await;
    let place = TempDir::new().expect("a folder");
    let run = Run { program: &program, variables: &OVER_TLS, hosts: Some(place.path().join("hosts")) };
    for (name, pins) in [("newest", &NEWEST), ("old", &OLD)] {
        let sdk = Installed::get(pins).await;
        let python = sdk.python.to_str().expect("text");
        for (program, end) in [(python, "py"), ("node", "mjs")] {
            let script = format!("{ROOT}/tests/sdks/work.{end}");
            let spoken = with_http2(run.program, async {
                let said = run.says(&sdk.modules, &[program, &script, "crowd"]).await;
                assert!(said.ends_with("wakes 1\n"), "{name} {end}: {said}");
            });
            assert!(spoken.await, "{name} {end}");
        }
    }
    program.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_names_are_enough_where_no_resolver_knows_the_domain() {
    let program = Program::start(&["--tls", "127.0.0.1:0"]).await;
    let place = TempDir::new().expect("a folder");
    let run = Run { program: &program, variables: &OVER_TLS, hosts: Some(place.path().join("hosts")) };
    let domain = program.variable("E2B_DOMAIN");
    let shared = format!("E2B_SANDBOX_URL=https://sandbox.{domain}");
    let banner = &program.banner;
    assert!(!banner.contains("/etc/hosts") || banner.contains(&format!("export {shared}\n")), "{banner}");
    // What the banner says: these, and no sandbox's own.
    let hosts = "echo '127.0.0.1 api.e2b.localhost sandbox.e2b.localhost' > /etc/hosts && exec \"$@\"";
    for pins in [&NEWEST, &OLD] {
        let sdk = Installed::get(pins).await;
        let python = sdk.python.to_str().expect("text");
        for (program, end) in [(python, "py"), ("node", "mjs")] {
            let script = format!("{ROOT}/tests/sdks/work.{end}");
            let line = ["env", "-u", "HOSTS", &shared, "sh", "-c", hosts, "sh", program, &script, "crowd", "terminal"];
            let said = run.says(&sdk.modules, &line).await;
            let work = include_str!("work.txt");
            let begin = work.find("crowd").expect("its part");
            let crowd = &work[begin..work.find("port").expect("the next")];
            let terminal = &work[work.find("terminal").expect("its part")..work.find("watched").expect("the next")];
            assert_eq!(said, format!("{crowd}{terminal}"), "{end}");
        }
    }
    program.end().await;
}
