//! Serves the listeners for probes, scrapers and operators: off the data path, but open to whoever reaches
//! them, so that everything is bounded.

use std::{collections::VecDeque, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::listener::{PAUSE, is_of_one_connection};

/// Connections that one of these listeners has at once. For the next one the oldest is closed: a probe is answered
/// in no time, and must not wait for those who only connect.
pub(crate) const ROOM: usize = 256;
/// From accept to the end of the request's head.
const HEAD: Duration = Duration::from_secs(10);
/// From accept to the last byte of the answer.
const WHOLE: Duration = Duration::from_secs(30);

/// Serves until dropped.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let mut running = VecDeque::<JoinHandle<()>>::new();
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                running.retain(|answer| !answer.is_finished());
                if running.len() >= ROOM
                    && let Some(oldest) = running.pop_front()
                {
                    oldest.abort();
                }
                running.push_back(tokio::spawn(answer(socket, router.clone())));
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "accept failed");
                sleep(PAUSE).await;
            }
        }
    }
}

/// One request a connection: one limit then holds for the idle, the slow to ask and the slow to read.
async fn answer(socket: TcpStream, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router));
    // Either error is the client's own affair.
    let _ = timeout(WHOLE, connection).await;
}
