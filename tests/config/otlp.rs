//! Where traces go: the key, and the variables that other programs know, too.

use client_proxy::config::{Config, Environment, Faults, Loaded, Place};

const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

fn load(file: &str, env: &[(&str, &str)]) -> Result<Loaded, Faults> {
    Config::load(file.as_bytes(), &env.iter().copied().collect::<Environment>())
}

fn endpoint(file: &str, env: &[(&str, &str)]) -> String {
    let config = load(file, env).unwrap_or_else(|faults| panic!("{faults}")).config;
    config.otlp.endpoint.map(String::from).unwrap_or_default()
}

#[test]
fn the_key_counts_then_the_variable_of_traces_then_that_of_all_signals() {
    let key = "otlp.endpoint = 'http://a:1'";
    let (of_traces, of_all) = ((TRACES, "https://b:2"), (ALL, "http://c:3/path"));
    assert_eq!(endpoint("", &[]), "");
    assert_eq!(endpoint(key, &[of_traces, of_all]), "http://a:1/");
    assert_eq!(endpoint("", &[of_traces, of_all]), "https://b:2/");
    assert_eq!(endpoint("otlp.endpoint = ''", &[of_all]), "http://c:3/path");
    assert_eq!(endpoint("", &[(TRACES, ""), of_all]), "http://c:3/path");
    assert_eq!(endpoint("", &[("CLIENT_PROXY__OTLP__ENDPOINT", "http://d:4"), of_all]), "http://d:4/");
    // Variables are taken as they are, and only here.
    assert_eq!(endpoint("", &[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "nonsense ${X}")]), "");
    assert!(load("", &[of_all]).expect("sound").effective.contains("endpoint = \"http://c:3/path\""));
}

#[test]
fn off_is_off_whatever_else_is_said() {
    let (key, variable) = ("otlp.endpoint = 'http://a:1'", (ALL, "http://b:2"));
    assert_eq!(endpoint("otlp.endpoint = 'off'", &[variable]), "");
    assert_eq!(endpoint(key, &[("CLIENT_PROXY__OTLP__ENDPOINT", "off"), variable]), "");
    for silence in [("OTEL_SDK_DISABLED", "true"), ("OTEL_SDK_DISABLED", "True"), ("OTEL_TRACES_EXPORTER", "none")] {
        assert_eq!(endpoint(key, &[silence, variable]), "", "{silence:?}");
        let effective = load(key, &[silence]).expect("sound").effective;
        assert!(effective.contains("endpoint = \"off\""), "{effective}");
    }
    for nothing in [("OTEL_SDK_DISABLED", "false"), ("OTEL_SDK_DISABLED", ""), ("OTEL_TRACES_EXPORTER", "otlp")] {
        assert_eq!(endpoint(key, &[nothing]), "http://a:1/", "{nothing:?}");
    }
}

#[test]
fn a_protocol_that_is_not_spoken_is_warned_of() {
    const OF_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
    const OF_ALL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
    let key = "otlp.endpoint = 'http://a:1'";
    for (file, env, named) in [
        (key, vec![], None),
        (key, vec![(OF_ALL, "grpc")], None),
        (key, vec![(OF_ALL, "http/protobuf")], Some(OF_ALL)),
        (key, vec![(OF_TRACES, "http/json"), (OF_ALL, "grpc")], Some(OF_TRACES)),
        (key, vec![(OF_TRACES, "grpc"), (OF_ALL, "http/json")], None),
        ("", vec![(OF_ALL, "http/protobuf")], None),
    ] {
        let warnings = load(file, &env).expect("sound").warnings;
        let found: Vec<_> = warnings.iter().filter(|warning| warning.contains("grpc")).collect();
        assert_eq!(found.len(), usize::from(named.is_some()), "{env:?}: {warnings:?}");
        assert!(found.iter().all(|warning| warning.starts_with(named.unwrap_or_default())), "{warnings:?}");
    }
}

#[test]
fn a_bad_address_is_a_fault_of_the_key_wherever_it_was_written() {
    for (value, wrong) in [
        ("collector:4317", "not an http or https URL"),
        ("grpc://collector:4317", "not an http or https URL"),
        ("10.0.0.1", "not a URL"),
        ("http://collector:x", "not a URL"),
        ("http://collector?a=b", "no query"),
        ("http://***@collector", "a mask"),
    ] {
        let file = format!("\notlp.endpoint = '{value}'");
        for (place, file, env) in
            [(Place::Line(2), &*file, vec![]), (Place::Variable(ALL.into()), "", vec![(ALL, value)])]
        {
            let faults = load(file, &env).expect_err("bad").0;
            assert_eq!(faults.len(), 1, "{value}: {faults:?}");
            assert_eq!((&*faults[0].key, &faults[0].place), ("otlp.endpoint", &place));
            assert!(faults[0].wrong.contains(wrong), "{value}: {}", faults[0]);
        }
    }
}

#[test]
fn a_variable_that_is_not_text_is_a_fault() {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};
    let env: Environment = [(OsString::from(TRACES), OsString::from_vec(vec![0xff]))].into_iter().collect();
    let faults = Config::load(b"", &env).expect_err("not text").0;
    assert_eq!(
        (faults.len(), &*faults[0].key, &faults[0].place),
        (1, "otlp.endpoint", &Place::Variable(TRACES.into()))
    );
    assert!(Config::load(b"otlp.endpoint = 'http://a'", &env).is_ok(), "nobody looks");
}

#[test]
fn user_and_password_show_nowhere() {
    let url = "http://user:s3cret@host:4317";
    for (file, env) in [(format!("otlp.endpoint = '{url}'"), vec![]), (String::new(), vec![(ALL, url)])] {
        let loaded = load(&file, &env).expect("sound");
        assert!(loaded.effective.contains("endpoint = \"http://***@host:4317\""), "{}", loaded.effective);
        assert!(!format!("{loaded:?}").contains("s3cret"), "{loaded:?}");
    }
    let faults = load("", &[(ALL, "http://user:s3cret@host:x/?s3cret")]).expect_err("bad");
    assert!(!format!("{faults} {faults:?}").contains("s3cret"), "{faults}");
}
