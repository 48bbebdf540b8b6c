use std::{net::IpAddr, pin::Pin};

use futures_util::poll;

use super::*;

type Waiting = Pin<Box<dyn Future<Output = Turn>>>;

fn client(number: u8) -> ClientNet {
    IpAddr::from([10, 0, 0, number]).into()
}

/// A queue in the order in which they came.
async fn queue(turns: &Arc<Turns>, who: impl IntoIterator<Item = u8>) -> Vec<(u8, Waiting)> {
    let mut waiting = Vec::new();
    for number in who {
        let turns = turns.clone();
        let mut turn: Waiting = Box::pin(async move { turns.take(Some(client(number))).await });
        assert!(poll!(&mut turn).is_pending());
        waiting.push((number, turn));
    }
    waiting
}

/// Serves all of them, one after the other, in the order in which they are called.
async fn serve(mut waiting: Vec<(u8, Waiting)>) -> Vec<u8> {
    let mut served = Vec::new();
    while !waiting.is_empty() {
        let mut called = None;
        for (at, (_, turn)) in waiting.iter_mut().enumerate() {
            if let std::task::Poll::Ready(turn) = poll!(turn) {
                assert!(called.replace((at, turn)).is_none(), "two at once");
            }
        }
        let (at, turn) = called.expect("somebody's turn");
        served.push(waiting.remove(at).0);
        drop(turn);
    }
    served
}

#[tokio::test]
async fn turns_go_round_the_clients_however_many_calls_one_of_them_has() {
    let turns = Turns::new(1);
    let first = turns.take(Some(client(1))).await;
    let waiting = queue(&turns, [1, 1, 1, 1, 2, 3, 3, 2]).await;
    drop(first);
    assert_eq!(serve(waiting).await, [1, 2, 3, 1, 2, 3, 1, 1]);
    assert!(turns.desk().clients.is_empty() && turns.desk().order.is_empty());
}

#[tokio::test]
async fn one_client_never_has_all_of_them() {
    let turns = Turns::new(8);
    let mut taken = Vec::new();
    for _ in 0..6 {
        taken.push(turns.take(Some(client(1))).await);
    }
    let seventh = queue(&turns, [1]).await;
    let other = turns.take(Some(client(2))).await;
    drop(taken.pop());
    assert_eq!(serve(seventh).await, [1]);
    drop((other, taken));
    assert_eq!(turns.desk().taken, 0);
}

#[tokio::test]
async fn whoever_leaves_the_queue_is_not_called_and_leaves_nothing_behind() {
    let turns = Turns::new(1);
    let first = turns.take(Some(client(1))).await;
    let mut waiting = queue(&turns, [2, 3, 2, 4]).await;
    // One leaves before, another after it was called.
    drop(waiting.remove(1));
    drop(first);
    drop(waiting.remove(0));
    assert_eq!(serve(waiting).await, [4, 2]);
    assert!(turns.desk().clients.is_empty() && turns.desk().order.is_empty() && turns.desk().taken == 0);
}

#[tokio::test]
async fn a_higher_bound_calls_those_who_wait_and_a_lower_one_waits_for_turns_to_end() {
    let turns = Turns::new(1);
    let first = turns.take(Some(client(1))).await;
    let mut waiting = queue(&turns, [2, 3, 4]).await;
    turns.set_max(3);
    let (_, two) = waiting.remove(0);
    let (_, three) = waiting.remove(0);
    let (two, three) = (two.await, three.await);
    turns.set_max(1);
    drop((first, two));
    assert!(poll!(&mut waiting[0].1).is_pending());
    drop(three);
    assert_eq!(serve(waiting).await, [4]);
}
