//! The template `counter`: a web application with a memory. It answers how many requests it has seen.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{Router, extract::State, serve::ListenerExt as _};

pub(super) fn run(address: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?.tap_io(crate::dev::without_delay);
        let count = Arc::new(AtomicU64::new(0));
        let router = Router::new().fallback(answer).with_state(count);
        axum::serve(listener, router).await?;
        Ok(())
    })
}

async fn answer(State(count): State<Arc<AtomicU64>>) -> String {
    format!("{}\n", count.fetch_add(1, Ordering::Relaxed) + 1)
}
