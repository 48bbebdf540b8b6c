//! One hostile request a row: what is sent, what is answered, whether the connection closes, what the sandbox saw.

use crate::{
    sandbox::Sandbox,
    support::{
        PATIENCE, Proxy, Raw,
        wire::{HOST, get, node_mode},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

/// What an attacker would have the sandbox see.
pub(crate) const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: 8000-abc.example.test\r\n\r\n";
pub(crate) const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

pub(crate) struct Row {
    name: &'static str,
    sent: Vec<u8>,
    /// The statuses of all answers, in their order.
    answers: &'static [u16],
    then: Then,
    /// As [`Sandbox::takes`] tells it; `…` stands for more of the same, and `?` before an only one means: if
    /// anything, and no more of it.
    saw: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The proxy ends the connection, in good order.
    Closes,
    /// It serves the next request on it.
    Serves,
    /// The proxy waits for more, and the client leaves.
    Waits,
}

pub(crate) fn row(
    name: &'static str,
    sent: impl AsRef<[u8]>,
    answers: &'static [u16],
    then: Then,
    saw: &'static [&'static str],
) -> Row {
    Row { name, sent: sent.as_ref().to_vec(), answers, then, saw }
}

/// `POST /` with these header lines, each with its end, and what comes behind the head.
pub(crate) fn post(fields: &str, behind: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n{behind}")
}

/// `GET /` with these header lines.
pub(crate) fn get_with(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n")
}

/// A request line and header lines, all of them the row's own.
pub(crate) fn bare(lines: &str) -> String {
    format!("{lines}\r\n\r\n")
}

/// Plays them, one after the other, through one proxy.
pub(crate) async fn play(rows: impl IntoIterator<Item = Row>) {
    play_with("", rows).await;
}

pub(crate) async fn play_with(lines: &str, rows: impl IntoIterator<Item = Row>) {
    let sandbox = Sandbox::start().await;
    let proxy = Proxy::start(&node_mode(sandbox.address, lines));
    let mut faults = Vec::new();
    for row in rows {
        let (answers, closed) = row.play(&proxy, &sandbox).await;
        // Nothing more of the row's comes behind this one: the proxy has one worker, and one pooled connection.
        let mut other = Raw::connect(proxy.address).await;
        other.write(get("/sentinel")).await;
        assert_eq!(other.message().await.text(), "ok", "{}", row.name);
        drop(other);
        proxy.is_idle().await;
        let mut saw = sandbox.takes(row.name).await;
        assert_eq!(saw.iter().filter(|seen| *seen == "GET /sentinel").count(), 1, "{}", row.name);
        saw.retain(|seen| seen != "GET /sentinel" && seen != "GET /after");
        let got = (answers, closed, saw);
        if got.0 != row.answers || got.1 != row.then || !is_as_wanted(&got.2, row.saw) {
            let want = (row.answers, row.then, row.saw);
            faults.push(format!("{}:\n   got {got:?}\n  want {want:?}", row.name));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

pub(crate) fn is_as_wanted(saw: &[String], want: &[&str]) -> bool {
    if let [maybe] = want
        && let Some(want) = maybe.strip_prefix('?')
    {
        return saw.is_empty()
            || matches!(saw, [saw] if saw == want || (want.starts_with('~') && want.starts_with(saw)));
    }
    let same =
        |(saw, want): (&String, &&str)| want.strip_suffix('…').map_or(saw == want, |start| saw.starts_with(start));
    saw.len() == want.len() && saw.iter().zip(want).all(same)
}

impl Row {
    async fn play(&self, proxy: &Proxy, sandbox: &Sandbox) -> (Vec<u16>, Then) {
        let mut client = Raw::connect(proxy.address).await;
        client.0.write_all(&self.sent).await.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let mut read = Vec::new();
        let then = match self.then {
            Then::Closes => Then::Closes,
            Then::Serves => {
                let after = format!("GET /after HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
                for _ in self.answers {
                    let message = client.message().await;
                    read.extend(message.head.0.as_bytes());
                }
                let _ = client.0.write_all(after.as_bytes()).await;
                Then::Serves
            }
            Then::Waits => {
                if self.saw.iter().any(|seen| seen.starts_with('~')) {
                    sandbox.sees_a_part().await;
                }
                client.waits(proxy.health).await;
                return (Vec::new(), Then::Waits);
            }
        };
        let end = timeout(PATIENCE, client.0.read_to_end(&mut read)).await;
        let end = end.unwrap_or_else(|_| panic!("{}: no end; {}", self.name, String::from_utf8_lossy(&read)));
        end.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let text = String::from_utf8_lossy(&read);
        let mut answers: Vec<u16> =
            text.split("HTTP/1.").skip(1).filter_map(|rest| rest.get(2..5)?.parse().ok()).collect();
        if then == Then::Serves && answers.pop() != Some(200) {
            answers.push(0);
        }
        (answers, then)
    }
}
