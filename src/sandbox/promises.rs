//! Wakes that callers were told of and do not wait for: bounded, in number and time, because nobody's connection is.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::types::ClientNet;

/// Of all clients.
const MAX: usize = 4096;
/// Of one.
const MAX_PER_CLIENT: usize = 64;

#[derive(Default)]
pub(crate) struct Promises(Arc<Mutex<HashMap<ClientNet, usize>>>);

/// A wake that a client was told of, until dropped.
pub(crate) struct Promise {
    made: Arc<Mutex<HashMap<ClientNet, usize>>>,
    client: ClientNet,
    until: Instant,
}

impl Promises {
    /// It is kept for so long; `None`: too many were made.
    pub(crate) fn make(&self, client: ClientNet, time: Duration) -> Option<Promise> {
        let mut made = lock(&self.0);
        let all: usize = if made.len() < MAX / MAX_PER_CLIENT { 0 } else { made.values().sum() };
        let own = made.get(&client).copied().unwrap_or(0);
        if all >= MAX || own >= MAX_PER_CLIENT {
            return None;
        }
        made.insert(client, own + 1);
        Some(Promise { made: self.0.clone(), client, until: Instant::now() + time })
    }
}

impl Promise {
    pub(crate) fn until(&self) -> Instant {
        self.until
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Entry::Occupied(mut own) = lock(&self.made).entry(self.client) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

fn lock(made: &Mutex<HashMap<ClientNet, usize>>) -> MutexGuard<'_, HashMap<ClientNet, usize>> {
    made.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn one_client_is_promised_so_many_and_all_of_them_together() {
        let promises = Promises::default();
        let client = |number: u32| ClientNet::from(IpAddr::from(number.to_be_bytes()));
        let make = |number| promises.make(client(number), Duration::from_secs(1));
        let mut own: Vec<_> = (0..MAX_PER_CLIENT).map(|_| make(1).expect("room")).collect();
        assert!(make(1).is_none());
        own.pop();
        assert!(make(1).is_some());
        drop(own);
        let all: Vec<_> = (0..).map_while(make).collect();
        assert_eq!(all.len(), MAX);
        drop(all);
        assert!(lock(&promises.0).is_empty());
    }
}
