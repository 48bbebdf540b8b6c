use super::*;

#[test]
fn sandbox_ids_are_lower_case_letters_and_digits() {
    for good in ["a", "i7d1k2", &"a".repeat(63)] {
        assert!(SandboxId::new(good).is_some(), "{good}");
    }
    for bad in ["", "A", "a-b", "a_b", "a.b", "ä", &"a".repeat(64)] {
        assert!(SandboxId::new(bad).is_none(), "{bad}");
    }
}

#[test]
fn ports_are_digits_in_range() {
    assert_eq!("65535".parse::<Port>().map(Port::get), Ok(65535));
    for bad in ["", "0", "65536", "+80", " 80", "x"] {
        assert!(bad.parse::<Port>().is_err(), "{bad}");
    }
}

#[test]
fn nodes_are_trimmed_and_bracketed_or_refused() {
    for (text, want) in [
        (" 10.0.0.5 ", Some("10.0.0.5")),
        ("fd00::1", Some("[fd00::1]")),
        ("[fd00::1]", Some("[fd00::1]")),
        ("Node-1.internal", Some("node-1.internal")),
        ("", None),
        ("   ", None),
        ("10.0.0.256", None),
        ("[[fd00::1]]", None),
        ("fd00::1]", None),
        ("a b", None),
        ("a/b", None),
        ("user@host", None),
        ("host:80", None),
        ("a..b", None),
    ] {
        assert_eq!(Node::new(text).as_ref().map(Node::as_str), want, "{text:?}");
    }
}

fn credentials(port: u16, traffic: Option<&str>, access: Option<&str>) -> Credentials {
    Credentials {
        port: Port::new(port).expect("a port"),
        traffic_token: traffic.map(Secret::new),
        access_token: access.map(Secret::new),
    }
}

#[test]
fn digests_differ_where_the_control_plane_could_decide_differently() {
    let digest = |port, traffic, access| credentials(port, traffic, access).digest();
    assert_eq!(digest(8000, Some("a"), None), digest(8001, Some("a"), None));
    let all = [
        digest(8000, None, None),
        digest(49983, None, None),
        digest(8000, Some(""), None),
        digest(8000, Some("a"), None),
        digest(49983, None, Some("")),
        digest(49983, None, Some("a")),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "{at}");
    }
    // The token that does not guard the port makes nobody another caller.
    assert_eq!(digest(8000, Some("a"), Some("x")), digest(8000, Some("a"), None));
    assert_eq!(digest(49983, Some("x"), Some("a")), digest(49983, None, Some("a")));
}

#[test]
fn locks_open_to_their_own_key_only() {
    let shut = Access { private: true, ..Access::default() };
    let locked = Access { private: true, traffic_token: Some(Secret::new("t")), envd_token: Some(Secret::new("e")) };
    assert_eq!(locked.check_wake(&credentials(80, Some("t"), None)), Ok(()));
    assert_eq!(locked.check_wake(&credentials(80, None, Some("e"))), Err(Denial::TrafficTokenMissing));
    assert_eq!(locked.check_wake(&credentials(80, Some("x"), None)), Err(Denial::TrafficTokenInvalid));
    assert_eq!(locked.check_wake(&credentials(49983, Some("t"), None)), Err(Denial::AccessTokenInvalid));
    assert_eq!(locked.check_wake(&credentials(49983, None, Some("e"))), Ok(()));
    assert_eq!(shut.check_wake(&credentials(80, Some("t"), None)), Err(Denial::TrafficTokenInvalid));
    assert_eq!(Access::default().check_wake(&credentials(80, None, None)), Ok(()));
    assert_eq!(locked.check_traffic(&credentials(49983, None, None)), Ok(()));
}
