//! A request that became a tunnel: counted and written down like any other, when it ends.

use bytes::Bytes;

use super::context::Context;
use crate::forward::{ClientSide, Leg, Slot, Tunnel};

/// A tunnel with the request that opened it.
pub(crate) struct Bridge {
    pub(super) tunnel: Box<Tunnel>,
    pub(super) context: Box<Context>,
    /// The sandbox's connection is taken until it ends.
    pub(super) _slot: Option<Slot>,
}

impl Bridge {
    /// Carries bytes until both sides have ended, or one has failed. `ahead`: what the client has sent already.
    pub(crate) async fn run<C: ClientSide>(self, client: C, ahead: Bytes) {
        let Self { tunnel, mut context, _slot } = self;
        match tunnel.run(client, ahead, |bytes| context.sent(bytes)).await {
            Ok(()) => context.finished(),
            Err(Leg::Sandbox) => context.cut_by_sandbox(),
            // As written down for whoever leaves early.
            Err(Leg::Client) => {}
        }
    }
}
