//! Parts of files, and files that the caller has already (RFC 9110 §13 and §14), as browsers ask for them.

use std::{
    fs::File,
    time::{Duration, SystemTime},
};

use reqwest::Response;

use crate::{
    house::{House, told},
    playground_support::{Sandbox, until},
};

const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

async fn get(house: &House, sandbox: &Sandbox, fields: &[(&str, &str)]) -> Response {
    ask(house, sandbox, "GET", fields).await
}

async fn ask(house: &House, sandbox: &Sandbox, method: &str, fields: &[(&str, &str)]) -> Response {
    let mut request = house.envd(sandbox, method, "/files?path=film");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.send().await.expect("an answer")
}

fn field<'a>(answer: &'a Response, name: &str) -> &'a str {
    answer.headers().get(name).map_or("", |value| value.to_str().expect("text"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_file_is_that_part_and_what_is_no_part_is_all_or_none() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    let film: Vec<_> = (0..40_000).map(|number| format!("{number:05}")).collect();
    let film = film.concat();
    house.put(&sandbox, "film", film.clone()).await;
    for (range, first, last) in
        [("bytes=150000-", 150_000, 199_999), ("bytes=7-7", 7, 7), ("bytes=-5", 199_995, 199_999)]
    {
        let answer = get(&house, &sandbox, &[("range", range)]).await;
        assert_eq!(field(&answer, "content-range"), format!("bytes {first}-{last}/200000"));
        assert_eq!(field(&answer, "content-length"), (last - first + 1).to_string());
        assert_eq!(told(answer).await, (206, film[first..=last].to_owned()), "{range}");
    }
    for range in ["bytes=-0", "bytes=200000-", "bytes=99999999999999999999999-"] {
        let answer = get(&house, &sandbox, &[("range", range)]).await;
        assert_eq!(field(&answer, "content-range"), "bytes */200000");
        assert_eq!(told(answer).await.0, 416, "{range}");
    }
    let many = format!("bytes={}", "0-,".repeat(1000));
    let whole: [&[_]; 5] = [
        &[],
        &[("range", "bytes=9-2")],
        &[("range", &many)],
        &[("range", "bytes=0-1"), ("range", "bytes=3-4")],
        &[("range", "bytes=0-1"), ("if-range", OLD)],
    ];
    for fields in whole {
        let answer = get(&house, &sandbox, fields).await;
        assert_eq!((field(&answer, "accept-ranges"), field(&answer, "content-range")), ("bytes", ""));
        assert_eq!(told(answer).await, (200, film.clone()), "{fields:?}");
    }
    let answer = ask(&house, &sandbox, "HEAD", &[("range", "bytes=0-1")]).await;
    assert_eq!((field(&answer, "content-length"), answer.status().as_u16()), ("200000", 200), "only for GET");
    house.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_caller_has_is_not_sent_again() {
    let house = House::start().await;
    let sandbox = house.ground.api.sleeper("base").await;
    house.put(&sandbox, "film", "0123456789").await;
    let resumed = [("range", "bytes=8-"), ("if-unmodified-since", OLD)];
    assert_eq!(told(get(&house, &sandbox, &resumed).await).await.0, 412, "written just now");
    // Not within the second of its change.
    until("its time can be told", async || !field(&get(&house, &sandbox, &[]).await, "last-modified").is_empty()).await;
    let answer = get(&house, &sandbox, &[]).await;
    let time = field(&answer, "last-modified").to_owned();
    for (fields, want) in [
        (&[("if-modified-since", &*time)][..], (304, "")),
        (&[("if-modified-since", OLD)], (200, "0123456789")),
        (&[("if-modified-since", &time), ("if-none-match", "\"tag\"")], (200, "0123456789")),
        (&[("range", "bytes=8-"), ("if-range", &time)], (206, "89")),
        (&[("range", "bytes=8-"), ("if-range", "\"tag\"")], (200, "0123456789")),
        (&[("range", "bytes=8-"), ("if-unmodified-since", &time)], (206, "89")),
    ] {
        assert_eq!(told(get(&house, &sandbox, fields).await).await, (want.0, want.1.to_owned()), "{fields:?}");
    }
    for fields in [("if-unmodified-since", OLD), ("if-match", "\"tag\"")] {
        assert_eq!(told(get(&house, &sandbox, &[fields]).await).await.0, 412, "{fields:?}");
    }
    let file = File::options().write(true).open(sandbox.folder().join("home/user/film")).expect("it is there");
    file.set_modified(SystemTime::now() + Duration::from_hours(24)).expect("a time ahead");
    assert_eq!(told(get(&house, &sandbox, &[("if-unmodified-since", &time)]).await).await.0, 412, "a time ahead");
    house.end().await;
}
