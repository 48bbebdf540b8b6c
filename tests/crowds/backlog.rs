//! An application that was just woken takes new connections slowly, and its queue is the usual one.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    task::JoinSet,
    time::interval,
};

use crate::{
    ALONE, Crowd, LONG, STREAMS, all_well, holds, join,
    support::{
        DIRECT, REMEMBER,
        binary::Binary,
        control_plane::{ControlPlane, Gate, Step},
        count, many_descriptors, own_ip,
    },
};

const CROWD: usize = 5000;
const BACKLOG: u32 = 128;
/// Connections that the application takes in a second, and requests that the proxy lets through.
const SPEED: usize = 1000;
const RATE: usize = 500;

/// Takes so many connections at a time, one request of each, and no more before the next hundredth of a second.
fn application() -> (SocketAddr, Arc<AtomicUsize>, JoinSet<()>) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{}:0", own_ip()).parse().expect("an address")).expect("a free port");
    let listener = socket.listen(BACKLOG).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let (answered, mut task) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    let counted = answered.clone();
    task.spawn(async move {
        let (mut open, mut ticks) = (JoinSet::new(), interval(Duration::from_millis(10)));
        loop {
            ticks.tick().await;
            for _ in 0..SPEED / 100 {
                let Ok((mut socket, _)) = listener.accept().await else { return };
                let counted = counted.clone();
                open.spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = socket.read_u8().await else { return };
                        head.push(byte);
                    }
                    counted.fetch_add(1, SeqCst);
                    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
                    // The proxy ends it: no port of this side is used up.
                    let _ = socket.read_u8().await;
                });
                while open.try_join_next().is_some() {}
            }
        }
    });
    (address, answered, task)
}

/// Connections that found a listener's queue full, in this whole system, since it began.
fn overflows() -> u64 {
    let text = std::fs::read_to_string("/proc/net/netstat").expect("the system's counts");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = pairs.find(|(name, _)| *name == "ListenOverflows").expect("the count");
    value.parse().expect("a number")
}

/// How many connections found the application's queue full, or another one's of this system.
async fn overflows_for(rate: usize) -> u64 {
    let (control, gate) = (ControlPlane::start().await, Gate::closed());
    let (address, answered, _task) = application();
    control.sandbox("abc").paused(&address.ip().to_string()).wakes([Step::Truly.after(&gate)]);
    let bounds = format!("resume.max_held_per_sandbox = {CROWD}\nresume.release_rate = {rate}\n");
    let proxy = Binary::start(&control.config(&format!("{LONG}{REMEMBER}{DIRECT}{bounds}"))).await;
    let mut crowd = Crowd::new();
    for number in 1..=CROWD / STREAMS {
        join(&mut crowd, &proxy, address.port(), "abc").await;
        holds(&proxy, number * STREAMS).await;
    }
    let before = overflows();
    gate.open();
    let statuses = crowd.join_all().await;
    let grown = overflows() - before;
    println!("let through at {rate}/s, {grown} connections found a queue full");
    all_well(&statuses);
    assert_eq!((answered.load(SeqCst), count(proxy.health, "client_proxy_wakes_total").await), (CROWD, 1));
    holds(&proxy, 0).await;
    grown
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_rate_five_thousand_are_let_through_without_filling_the_application_s_queue() {
    let _alone = ALONE.lock().await;
    many_descriptors();
    // The count is the whole system's: whoever else fills a queue meanwhile does not do so each time.
    let mut grown = Vec::new();
    while grown.iter().all(|count| *count > 0) {
        assert!(grown.len() < 3, "connections found the queue full: {grown:?}");
        grown.push(overflows_for(RATE).await);
    }
}
