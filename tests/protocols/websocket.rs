//! WebSocket between a library's client and a library's server, over HTTP/1.1 and over HTTP/2 (RFC 8441).

use futures_util::{SinkExt as _, StreamExt as _};
use http::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async, client_async,
    tungstenite::{
        Error, Message,
        handshake::server::{Request as Handshake, Response as Accepted},
        protocol::Role,
    },
};

use crate::support::{
    PATIENCE, Proxy, REMEMBER,
    control_plane::{ControlPlane, Gate, Step},
    http2::{Http2, connect},
    listen, nodes_at,
    wire::node_mode,
};

/// A sandbox's application: echoes what it is told, on as many sockets as come.
pub(crate) struct Echo {
    pub(crate) address: std::net::SocketAddr,
    /// The handshakes that came.
    handshakes: mpsc::UnboundedReceiver<Request<()>>,
    _tasks: JoinSet<()>,
}

impl Echo {
    pub(crate) fn start() -> Self {
        let listener = listen("127.0.0.1:0");
        let address = listener.local_addr().expect("an address");
        let (came, handshakes) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                let came = came.clone();
                open.spawn(async move {
                    #[allow(clippy::result_large_err, reason = "the library's")]
                    let look = |handshake: &Handshake, mut accepted: Accepted| {
                        let _ = came.send(handshake.clone());
                        if let Some(offered) = handshake.headers().get("sec-websocket-protocol") {
                            let first = offered.to_str().expect("text").split(',').next().expect("one");
                            let first = first.parse().expect("a value");
                            accepted.headers_mut().insert("sec-websocket-protocol", first);
                        }
                        Ok(accepted)
                    };
                    let Ok(mut socket) = accept_hdr_async(socket, look).await else { return };
                    while let Some(Ok(message)) = socket.next().await {
                        if !message.is_close() {
                            socket.send(message).await.expect("a peer that reads");
                        }
                    }
                });
            }
        });
        Self { address, handshakes, _tasks: tasks }
    }

    pub(crate) async fn handshake(&mut self) -> Request<()> {
        timeout(PATIENCE, self.handshakes.recv()).await.expect("a handshake in time").expect("an application")
    }
}

/// A client's handshake by HTTP/1.1, whatever comes of it.
pub(crate) async fn open(
    proxy: std::net::SocketAddr,
    sandbox: &str,
    fields: &[(&'static str, &'static str)],
) -> Result<WebSocketStream<TcpStream>, Error> {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let uri = format!("ws://8000-{sandbox}.example.test/socket?a=b");
    let mut request = uri.into_client_request().expect("a request");
    for (name, value) in fields {
        request.headers_mut().append(*name, value.parse().expect("a value"));
    }
    let socket = TcpStream::connect(proxy).await.expect("a connection");
    Ok(timeout(PATIENCE, client_async(request, socket)).await.expect("an answer in time")?.0)
}

/// The same by HTTP/2.
pub(crate) async fn open_over(client: &Http2, sandbox: &str) -> WebSocketStream<TokioIo<hyper::upgrade::Upgraded>> {
    let answer = client.begin(connect("websocket", sandbox, "/socket?a=b")).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let upgraded = timeout(PATIENCE, hyper::upgrade::on(answer)).await.expect("in time").expect("a tunnel");
    WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await
}

/// Says something, and hears it again.
pub(crate) async fn echoes<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>, bytes: usize) {
    let message = Message::binary(vec![7; bytes]);
    let exchange = async {
        socket.send(message.clone()).await.expect("a peer that reads");
        socket.next().await.expect("an answer").expect("a message")
    };
    assert_eq!(timeout(PATIENCE, exchange).await.expect("an echo in time"), message);
}

/// Closes it as one should; the application agrees.
async fn closes<S: AsyncRead + AsyncWrite + Unpin>(mut socket: WebSocketStream<S>) {
    let end = async {
        socket.close(None).await.expect("a peer that reads");
        assert!(socket.next().await.expect("an answer").expect("a message").is_close());
        assert!(socket.next().await.is_none());
    };
    timeout(PATIENCE, end).await.expect("an end in time");
}

#[tokio::test]
async fn a_socket_wakes_its_sandbox_and_is_held_meanwhile() {
    for http2 in [false, true] {
        let (control, mut echo, gate) = (ControlPlane::start().await, Echo::start(), Gate::closed());
        control.sandbox("abc").paused("127.0.0.1").wakes([Step::Truly.after(&gate)]);
        let proxy = Proxy::start(&control.config(&format!("{}{REMEMBER}", nodes_at(echo.address.port()))));
        let woken = async {
            proxy.metric_becomes("client_proxy_held_requests", 1.0).await;
            gate.open();
        };
        if http2 {
            let client = Http2::connect(proxy.address).await;
            let (mut socket, ()) = tokio::join!(open_over(&client, "abc"), woken);
            echoes(&mut socket, 5).await;
            closes(socket).await;
        } else {
            let (socket, ()) = tokio::join!(open(proxy.address, "abc", &[]), woken);
            let mut socket = socket.expect("a socket");
            echoes(&mut socket, 5).await;
            closes(socket).await;
        }
        assert_eq!(echo.handshake().await.uri().path_and_query().expect("a target"), "/socket?a=b");
        proxy.metric_becomes("client_proxy_tunnels", 0.0).await;
        let status = if http2 { 200 } else { 101 };
        assert_eq!(
            proxy.count(&format!("client_proxy_requests_total{{origin=\"sandbox\",status=\"{status}\"")).await,
            1
        );
    }
}

#[tokio::test]
async fn everything_a_handshake_says_arrives() {
    let mut echo = Echo::start();
    let proxy = Proxy::start(&node_mode(echo.address, ""));
    let fields = [
        ("cookie", "a=1; b=2"),
        ("origin", "https://app.example"),
        ("authorization", "Bearer of-the-app"),
        ("sec-websocket-protocol", "chat, superchat"),
        ("x-own", "1"),
        ("x-own", "2"),
    ];
    let mut socket = open(proxy.address, "abc", &fields).await.expect("a socket");
    let seen = echo.handshake().await;
    for (name, value) in &fields[..4] {
        assert_eq!(seen.headers()[*name], value);
    }
    assert_eq!(seen.headers().get_all("x-own").iter().count(), 2);
    assert_eq!(seen.headers()["host"], "8000-abc.example.test");
    assert_eq!(seen.headers()["x-forwarded-for"], "127.0.0.1");
    echoes(&mut socket, 200_000).await;

    let client = Http2::connect(proxy.address).await;
    let mut request = connect("websocket", "abc", "/");
    for (name, value) in [("cookie", "a=1"), ("cookie", "b=2"), ("sec-websocket-protocol", "chat")] {
        request.headers_mut().append(name, value.parse().expect("a value"));
    }
    let answer = client.begin(request).await.expect("an answer");
    assert_eq!(
        (answer.status(), &answer.headers()["sec-websocket-protocol"]),
        (StatusCode::OK, &"chat".parse().expect("one"))
    );
    for name in ["sec-websocket-accept", "connection", "upgrade"] {
        assert!(!answer.headers().contains_key(name), "{name}");
    }
    let seen = echo.handshake().await;
    assert_eq!(seen.method(), http::Method::GET);
    for (name, value) in [("cookie", "a=1; b=2"), ("upgrade", "websocket"), ("connection", "Upgrade")] {
        assert_eq!(seen.headers()[name], value);
    }
    assert!(!seen.headers().contains_key("te") && !seen.headers().contains_key(":protocol"));
}

#[tokio::test]
async fn many_sockets_and_requests_share_a_connection() {
    let mut echo = Echo::start();
    let proxy = Proxy::start(&node_mode(echo.address, ""));
    let client = Http2::connect(proxy.address).await;
    let mut sockets = Vec::new();
    for _ in 0..20 {
        sockets.push(open_over(&client, "abc").await);
        echo.handshake().await;
    }
    proxy.metric_becomes("client_proxy_tunnels", 20.0).await;
    assert_eq!(proxy.count("client_proxy_connections{protocol=\"http2\"}").await, 1);
    for socket in &mut sockets {
        echoes(socket, 70_000).await;
    }
    // One leaves without a word; the others do not notice.
    drop(sockets.pop());
    proxy.metric_becomes("client_proxy_tunnels", 19.0).await;
    for socket in &mut sockets {
        echoes(socket, 10).await;
    }
    for socket in sockets {
        closes(socket).await;
    }
    proxy.metric_becomes("client_proxy_tunnels", 0.0).await;
    drop(client);
    proxy.is_idle().await;
}
