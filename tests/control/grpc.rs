//! The resumer over gRPC against a scripted API: what a call carries, what an answer means, and what comes of a
//! connection that breaks.

use std::{sync::Arc, time::Duration};

use client_proxy::{
    config::GrpcResume,
    control::{GrpcResumer, install_tls_provider},
    sandbox::ports::{Resumer as _, Wake, WakeError},
    types::{Credentials, Denial, Placement, Port, Reason, Secret},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::Notify,
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use super::{
    grpc_api::{Call, GrpcApi, Say},
    id,
    tls::Authority,
};

/// A call may take this long.
const LIMIT: Duration = Duration::from_secs(5);

pub(super) fn settings(address: std::net::SocketAddr) -> GrpcResume {
    GrpcResume { address: address.to_string(), tls: false, ca: None, oauth: None }
}

pub(super) fn resumer(settings: &GrpcResume, limit: Duration) -> GrpcResumer {
    install_tls_provider();
    GrpcResumer::new(settings, limit, &Handle::current()).expect("a resumer")
}

pub(super) fn wake() -> Wake {
    wake_with(49983, None, None)
}

fn wake_with(port: u16, traffic: Option<&[u8]>, access: Option<&[u8]>) -> Wake {
    let credentials = Credentials {
        port: Port::new(port).expect("a port"),
        traffic_token: traffic.map(Secret::new),
        access_token: access.map(Secret::new),
    };
    Wake { id: id(), credentials, sleep: None }
}

async fn one(say: Say) -> Result<Placement, WakeError> {
    let api = GrpcApi::start([say]);
    resumer(&settings(api.address), LIMIT).resume(&wake()).await
}

#[tokio::test]
async fn a_call_carries_the_port_the_tokens_and_its_deadline() {
    let api = GrpcApi::always(Say::Node("10.0.0.5"));
    let resumer = resumer(&settings(api.address), LIMIT);
    let cases = [(49983, None, Some("e")), (8000, Some("t"), None), (80, Some("t"), Some("e")), (80, None, None)];
    for (port, traffic, access) in cases {
        let placement = resumer.resume(&wake_with(port, traffic.map(str::as_bytes), access.map(str::as_bytes))).await;
        assert_eq!(placement.expect("woken").node.expect("a node").as_str(), "10.0.0.5");
        let calls = api.calls();
        let Call { sandbox, port: told, traffic_token, access_token, authorization, timeout } =
            calls.last().expect("a call");
        assert_eq!((sandbox.as_str(), told.as_str()), ("abc", &*port.to_string()));
        assert_eq!((traffic_token.as_deref(), access_token.as_deref()), (traffic, access));
        assert_eq!(*authorization, None);
        let timeout = timeout.as_deref().expect("a deadline");
        let (number, unit) = timeout.split_at(timeout.len() - 1);
        let factor = match unit {
            "m" => 1_000,
            "u" => 1,
            other => panic!("{other}"),
        };
        let told = number.parse::<u64>().expect("a number") * factor;
        assert!((4_000_000..=5_000_000).contains(&told), "{timeout}");
    }
}

#[tokio::test]
async fn a_token_that_no_call_can_carry_opens_nothing_and_is_not_sent() {
    let api = GrpcApi::start([]);
    let resumer = resumer(&settings(api.address), LIMIT);
    for (wake, denial) in [
        (wake_with(80, Some(b"\xff"), None), Denial::TrafficTokenInvalid),
        (wake_with(49983, None, Some("ä\n".as_bytes())), Denial::Denied),
    ] {
        let outcome = resumer.resume(&wake).await;
        assert!(matches!(outcome, Err(WakeError::Denied(why)) if why == denial), "{outcome:?}");
    }
}

#[tokio::test]
async fn every_status_is_told_as_it_is_meant() {
    let message = "sandbox is still transitioning";
    assert!(matches!(one(Say::Status(Code::NotFound, "")).await, Err(WakeError::Gone(Reason::Unknown))));
    assert!(matches!(one(Say::Status(Code::PermissionDenied, "")).await, Err(WakeError::Denied(Denial::Denied))));
    assert!(matches!(one(Say::Status(Code::FailedPrecondition, message)).await, Err(WakeError::Transitioning)));
    for other in ["", "no memory", "sandbox is still transitioning!"] {
        let outcome = one(Say::Status(Code::FailedPrecondition, other)).await;
        assert!(matches!(outcome, Err(WakeError::Gone(Reason::FilesystemOnly))), "{outcome:?}");
    }
    let outcome = one(Say::Status(Code::ResourceExhausted, "at most 20")).await;
    assert!(matches!(&outcome, Err(WakeError::Exhausted(message)) if &**message == "at most 20"), "{outcome:?}");
    for code in [
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::AlreadyExists,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ] {
        let outcome = one(Say::Status(code, "why")).await;
        assert!(matches!(&outcome, Err(WakeError::Unavailable(_))), "{code:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_node_is_trimmed_and_nonsense_is_no_node() {
    for (node, want) in [(" 10.0.0.5 ", Some("10.0.0.5")), ("fd00::1", Some("[fd00::1]")), ("", None), ("  ", None)] {
        let placement = one(Say::Node(node)).await.expect("woken");
        assert_eq!(placement.node.map(|node| node.to_string()).as_deref(), want, "{node:?}");
    }
    assert!(matches!(one(Say::Node("no host")).await, Err(WakeError::Unavailable(_))));
}

#[tokio::test]
async fn a_call_that_is_not_answered_ends_in_time() {
    let api = GrpcApi::always(Say::Hang);
    let resumer = resumer(&settings(api.address), Duration::from_millis(300));
    let began = Instant::now();
    let outcome = resumer.resume(&wake()).await;
    assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(api.calls().len(), 1, "a call that ran out of time is not made again");
}

#[tokio::test]
async fn the_first_call_after_the_api_was_started_again_is_answered() {
    let api = GrpcApi::always(Say::Node("10.0.0.5"));
    let resumer = resumer(&settings(api.address), LIMIT);
    for _ in 0..5 {
        assert!(resumer.resume(&wake()).await.is_ok());
        api.stop().await;
        assert!(matches!(resumer.resume(&wake()).await, Err(WakeError::Unavailable(_))), "it is down");
        api.restart();
    }
    assert!(resumer.resume(&wake()).await.is_ok());
}

#[tokio::test]
async fn a_call_whose_connection_breaks_is_made_once_more() {
    let cut = Arc::new(Notify::new());
    let cuts = cut.clone();
    let breaks = || {
        let cut = cuts.clone();
        Say::Hang.doing(move || {
            cut.notify_one();
            async {}
        })
    };
    let api = GrpcApi::start([breaks(), Say::Node("10.0.0.6"), breaks(), breaks()]);
    // A way that breaks when it is told to, and can be gone again.
    let way = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, behind) = (way.local_addr().expect("an address"), api.address);
    let _way = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((mut client, _)) = way.accept().await {
            let mut server = TcpStream::connect(behind).await.expect("the API");
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                () = cut.notified() => {}
            }
        }
    }));
    let resumer = resumer(&settings(address), LIMIT);
    let placement = resumer.resume(&wake()).await.expect("woken");
    assert_eq!(placement.node.expect("a node").as_str(), "10.0.0.6");
    assert_eq!(api.calls().len(), 2);
    let outcome = resumer.resume(&wake()).await;
    assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    assert_eq!(api.calls().len(), 4, "once, and no more");
}

#[tokio::test]
async fn nobody_and_somebody_mute_are_outages() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let outcome = resumer(&settings(nobody), LIMIT).resume(&wake()).await;
    assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    // Takes connections, and says nothing in HTTP/2.
    let mute = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = mute.local_addr().expect("an address");
    let outcome = resumer(&settings(address), Duration::from_millis(500)).resume(&wake()).await;
    assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
}

#[tokio::test]
async fn over_tls_it_believes_its_own_authority_and_no_other() {
    let authority = Authority::new();
    let (chain, key) = authority.pair(&["127.0.0.1"], 2999);
    let api = GrpcApi::start_tls([Say::Node("10.0.0.5")], &chain, &key);
    let tls = |ca: String| GrpcResume { tls: true, ca: Some(ca.into_bytes()), ..settings(api.address) };
    assert!(resumer(&tls(authority.root()), LIMIT).resume(&wake()).await.is_ok());
    for settings in [tls(Authority::new().root()), GrpcResume { ca: None, ..tls(String::new()) }, settings(api.address)]
    {
        let outcome = resumer(&settings, LIMIT).resume(&wake()).await;
        assert!(matches!(outcome, Err(WakeError::Unavailable(_))), "{outcome:?}");
    }
    assert_eq!(api.calls().len(), 1);
}
