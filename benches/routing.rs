//! What it costs to find out whom a request means: nanoseconds, no sockets. `cargo bench --bench routing`.

use std::hint::black_box;

use client_proxy::route::{Rules, route};
use criterion::{Criterion, criterion_group, criterion_main};
use http::request::Parts;

/// A name, and the header lines of a request.
type Case = (&'static str, &'static [(&'static str, &'static str)]);

const SANDBOXES: &[Case] = &[
    ("host", &[("host", "49983-i7d1k2m9x0p4q8r5t6w3.sandbox.example.com")]),
    ("host, upper case, port, dot", &[("host", "49983-I7D1K2M9X0P4Q8R5T6W3.Sandbox.Example.Com.:3002")]),
    (
        "headers",
        &[("host", "sandbox.example.com"), ("e2b-sandbox-id", "i7d1k2m9x0p4q8r5t6w3"), ("e2b-sandbox-port", "49983")],
    ),
];

const NOBODY: &[Case] = &[
    ("no host", &[]),
    ("two hosts", &[("host", "80-a.example.com"), ("host", "80-b.example.com")]),
    ("no port", &[("host", "www.example.com")]),
    ("foreign domain", &[("host", "80-a.example.org")]),
    ("too long", &[("host", LONG)]),
];

/// 256 bytes.
const LONG: &str = "80-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.\
                    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.\
                    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.\
                    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.";

fn head(headers: &[(&str, &str)]) -> Parts {
    let request = headers.iter().fold(http::Request::builder(), |builder, (name, value)| builder.header(*name, *value));
    request.body(()).expect("a request").into_parts().0
}

fn routing(criterion: &mut Criterion) {
    let rules = Rules { domains: vec!["example.com".into()], ..Rules::default() };
    for (group, cases, names_one) in [("sandbox", SANDBOXES, true), ("nobody", NOBODY, false)] {
        let mut group = criterion.benchmark_group(format!("route/{group}"));
        for (name, headers) in cases {
            let head = head(headers);
            assert_eq!(route(&head, &rules).is_ok(), names_one, "{name}");
            group.bench_function(*name, |bencher| bencher.iter(|| route(black_box(&head), black_box(&rules))));
        }
    }
}

criterion_group!(benches, routing);
criterion_main!(benches);
