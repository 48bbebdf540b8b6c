//! A sign of life on a stream that has nothing to say: between its two ends there are proxies that take
//! silence for death.

use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tokio::time::timeout;

/// The stream, with `sign` after every silence of that length.
pub(crate) fn keep_alive<T: Send>(
    messages: impl Stream<Item = T> + Send,
    silence: Duration,
    sign: impl Fn() -> T + Send,
) -> impl Stream<Item = T> + Send {
    stream::unfold((Box::pin(messages), sign), move |(mut messages, sign)| async move {
        let item = match timeout(silence, messages.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => return None,
            Err(_) => sign(),
        };
        Some((item, (messages, sign)))
    })
}

#[cfg(test)]
mod tests {
    use tokio::{sync::mpsc, time::advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_broken_and_words_put_it_off() {
        let (send, receive) = mpsc::channel(4);
        let words = stream::unfold(receive, async |mut receive| Some((receive.recv().await?, receive)));
        let mut alive = std::pin::pin!(keep_alive(words, Duration::from_secs(50), || "alive"));
        assert_eq!(alive.next().await, Some("alive"));
        advance(Duration::from_secs(40)).await;
        send.send("word").await.expect("sent");
        assert_eq!(alive.next().await, Some("word"));
        let before = tokio::time::Instant::now();
        assert_eq!(alive.next().await, Some("alive"));
        assert_eq!(before.elapsed(), Duration::from_secs(50));
        drop(send);
        assert_eq!(alive.next().await, None);
    }
}
