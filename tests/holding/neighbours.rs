//! Those who are held cost nobody else anything.

use tokio::{
    task::JoinSet,
    time::{Duration, Instant},
};

use crate::{
    HELD, holds,
    support::{
        REMEMBER, Raw, World,
        control_plane::{Gate, Step},
        http2::{Http2, full, request},
        wire::HOST,
    },
};

const CROWD: usize = 2000;
const STREAMS: usize = 100;
const REQUESTS: usize = 1000;
/// Of which the best count, as the machine may be busy with something else.
const ROUNDS: usize = 10;

/// How long it takes to ask a running sandbox so often, one after the other.
async fn time(world: &World) -> Duration {
    let mut client = Raw::connect(world.proxy.address).await;
    let start = Instant::now();
    for _ in 0..REQUESTS {
        client.write(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", HOST.replace("abc", "running"))).await;
        assert_eq!(client.message().await.text(), "hello");
    }
    start.elapsed()
}

#[tokio::test]
async fn two_thousand_held_for_a_sandbox_that_hangs_do_not_slow_another() {
    let world = World::new(&format!("log.access = \"off\"\n{REMEMBER}")).await;
    world.control.sandbox("running").running("127.0.0.1");
    time(&world).await;
    let (mut without, mut with) = (Duration::MAX, Duration::MAX);
    for round in 0.. {
        without = without.min(time(&world).await);
        let (id, gate) = (format!("asleep{round}"), Gate::closed());
        world.control.sandbox(&id).paused("127.0.0.1").looks_up([Step::Truly]).wakes([Step::Truly.after(&gate)]);
        let mut crowd = JoinSet::new();
        for _ in 0..CROWD / STREAMS {
            let client = Http2::connect(world.proxy.address).await;
            for _ in 0..STREAMS {
                crowd.spawn(client.sender.clone().send_request(request("GET", &id, "/", full(""))));
            }
        }
        holds(&world.proxy, &id, CROWD).await;
        with = with.min(time(&world).await);
        assert_eq!(world.proxy.count(HELD).await, CROWD, "they are held all the time");
        gate.open();
        for answer in crowd.join_all().await {
            assert_eq!(answer.expect("an answer").status(), 200);
        }
        world.proxy.is_idle().await;
        if with < without * 2 {
            break;
        }
        assert!(round + 1 < ROUNDS, "{REQUESTS} requests take {with:?} instead of {without:?}");
    }
}
