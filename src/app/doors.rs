//! Every address that is listened on, bound before anything runs.

use std::net::{SocketAddr, TcpListener};

use anyhow::bail;

use super::Addresses;
use crate::{
    config::Config,
    edge::{listener, worker::Door},
};

pub(super) struct Doors {
    /// For clients.
    pub(super) proxy: Vec<(TcpListener, Door)>,
    pub(super) health: TcpListener,
    pub(super) admin: Option<TcpListener>,
    pub(super) addresses: Addresses,
}

impl Doors {
    /// Binds them all; every fault is told, not the first alone.
    pub(super) fn open(config: &Config) -> anyhow::Result<Self> {
        let mut faults = Vec::new();
        let mut bind = |key, address: SocketAddr| {
            let bound = listener::bind(address).and_then(|socket| Ok((socket.local_addr()?, socket)));
            bound.map_err(|error| faults.push(format!("cannot listen on {address} ({key}): {error}"))).ok()
        };
        let plain: Vec<_> = config.server.listen.iter().filter_map(|address| bind("server.listen", *address)).collect();
        let tls = &config.server.tls.listen;
        let tls: Vec<_> = tls.iter().filter_map(|address| bind("server.tls.listen", *address)).collect();
        let health = bind("health.listen", config.health.listen);
        let admin = config.admin.listen.and_then(|address| bind("admin.listen", address));
        let (Some((health_address, health)), true) = (health, faults.is_empty()) else { bail!(faults.join("\n")) };
        let (plain_addresses, plain): (_, Vec<_>) = plain.into_iter().unzip();
        let (tls_addresses, tls): (_, Vec<_>) = tls.into_iter().unzip();
        let (admin_address, admin) = admin.unzip();
        let addresses =
            Addresses { proxy: plain_addresses, health: health_address, admin: admin_address, tls: tls_addresses };
        let plain = plain.into_iter().map(|socket| (socket, Door::Plain));
        let proxy = plain.chain(tls.into_iter().map(|socket| (socket, Door::Tls))).collect();
        Ok(Self { proxy, health, admin, addresses })
    }
}
