//! Where a Redis server is, and how a connection to it is opened.

use std::{convert::Infallible, fmt, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo as _, ProtocolVersion,
    PushInfo, RedisConnectionInfo, RedisError, TlsCertificates, aio::MultiplexedConnection,
};
use tokio::time::timeout;

use crate::{config, control::SetupError};

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// As a redirection names it: `host:port`, IPv6 without brackets.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok()?;
        (!host.is_empty()).then(|| Self { host: host.trim_matches(['[', ']']).to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// All that it takes to connect to the servers of a catalog.
#[derive(Clone)]
pub(super) struct Servers {
    tls: bool,
    ca: Option<Vec<u8>>,
    redis: RedisConnectionInfo,
    /// The opening of a connection.
    pub(super) timeout: Duration,
    pub(super) push: bool,
}

/// Its user and password are in there.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("tls", &self.tls).field("push", &self.push).finish_non_exhaustive()
    }
}

impl Servers {
    pub(super) fn new(settings: &config::RedisCatalog) -> Result<(Self, Vec<Address>), SetupError> {
        let fault = |error: &dyn fmt::Display| SetupError::Redis(error.to_string());
        let seeds: Vec<_> =
            settings.urls.iter().map(|url| Address { host: url.host.clone(), port: url.port }).collect();
        let first = settings.urls.first().ok_or_else(|| fault(&"no server"))?;
        let mut redis = RedisConnectionInfo::default().set_db(first.database.into()).set_skip_set_lib_name();
        if let Some(user) = &first.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &first.password {
            let password = std::str::from_utf8(password.expose()).map_err(|_| fault(&"the password is not text"))?;
            redis = redis.set_password(password);
        }
        let servers =
            Self { tls: first.tls, ca: settings.ca.clone(), redis, timeout: settings.timeout, push: settings.push };
        // Its certificates are read: better now than at the first connection.
        servers.client(&seeds[0], ProtocolVersion::RESP3).map_err(|error| fault(&error))?;
        Ok((servers, seeds))
    }

    /// A connection, and whether it can push. `pushed` is called by the task that reads the connection, in the order
    /// in which things come.
    pub(super) async fn connect(
        &self,
        address: &Address,
        pushed: impl Fn(PushInfo) + Clone + Send + Sync + 'static,
    ) -> Result<(MultiplexedConnection, bool), RedisError> {
        if !self.push {
            return Ok((self.open(address, ProtocolVersion::RESP2, pushed).await?, false));
        }
        match self.open(address, ProtocolVersion::RESP3, pushed.clone()).await {
            Ok(connection) => Ok((connection, true)),
            // It may be a server, or a proxy before one, that knows RESP2 only.
            Err(error) if matches!(error.kind(), ErrorKind::RESP3NotSupported | ErrorKind::Server(_)) => {
                self.open(address, ProtocolVersion::RESP2, pushed).await.map(|connection| (connection, false))
            }
            Err(error) => Err(error),
        }
    }

    async fn open(
        &self,
        address: &Address,
        protocol: ProtocolVersion,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, RedisError> {
        let client = self.client(address, protocol)?;
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            // Whoever asks has a limit of its own.
            .set_response_timeout(None);
        if protocol == ProtocolVersion::RESP3 {
            config = config.set_push_sender(move |info| {
                pushed(info);
                Ok::<_, Infallible>(())
            });
        }
        let opening = client.get_multiplexed_async_connection_with_config(&config);
        timeout(self.timeout, opening).await.unwrap_or_else(|_| {
            let late = std::io::Error::new(std::io::ErrorKind::TimedOut, "no connection in time");
            Err(late.into())
        })
    }

    fn client(&self, Address { host, port }: &Address, protocol: ProtocolVersion) -> Result<Client, RedisError> {
        let (host, port) = (host.clone(), *port);
        let address = if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let info: ConnectionInfo = address.into_connection_info()?;
        let info = info.set_redis_settings(self.redis.clone().set_protocol(protocol));
        match &self.ca {
            Some(ca) if self.tls => {
                Client::build_with_tls(info, TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) })
            }
            _ => Client::open(info),
        }
    }
}
