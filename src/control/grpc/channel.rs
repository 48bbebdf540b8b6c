//! The connection to the API: one for all calls, made when it is needed, and again when it broke.

use std::time::Duration;

use tokio::runtime::Handle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::{config, control::http::with_causes};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A peer that is mute is noticed in the sum of the two, also while nobody asks. Servers in Go bear two pings within
/// five minutes unless told otherwise, and hang up at the third: a wake of two minutes has no more, and is never cut
/// for them. An idle connection may be; the next call opens another.
const PING_EVERY: Duration = Duration::from_secs(45);
const PING_LIMIT: Duration = Duration::from_secs(10);

/// A channel that connects on first use; its connections live on `control`.
pub(super) fn lazy(settings: &config::GrpcResume, control: &Handle) -> Result<Channel, String> {
    let scheme = if settings.tls { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{}", settings.address)).map_err(told)?;
    let mut endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_LIMIT)
        .keep_alive_while_idle(true)
        .user_agent(concat!("client-proxy/", env!("CARGO_PKG_VERSION")))
        .map_err(told)?;
    if settings.tls {
        let tls = match &settings.ca {
            Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        endpoint = endpoint.tls_config(tls).map_err(told)?;
    }
    // Outside of a runtime it panics.
    let _inside = control.enter();
    Ok(endpoint.connect_lazy())
}

/// The error and its causes.
#[expect(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
fn told(error: tonic::transport::Error) -> String {
    with_causes(&error)
}
