//! Which node has which keys: the answer to `CLUSTER SLOTS`, and the slot of a key (Redis Cluster Specification,
//! "Key distribution model").

use std::collections::BTreeSet;

use redis::{Value, aio::MultiplexedConnection};

use crate::control::redis::server::Address;

const SLOTS: u16 = 16384;
/// A cluster has some thousand nodes at most.
const MAX_RANGES: usize = 16384;

/// Ranges of slots, and who has them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Slots(Vec<Range>);

#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    master: Address,
    replicas: BTreeSet<Address>,
}

impl Slots {
    /// `None` where nobody has it.
    pub(super) fn master_of(&self, slot: u16) -> Option<&Address> {
        let after = self.0.partition_point(|range| range.first <= slot);
        let range = self.0[..after].last()?;
        (slot <= range.last).then_some(&range.master)
    }

    /// Masters and replicas.
    pub(super) fn nodes(&self) -> BTreeSet<&Address> {
        self.0.iter().flat_map(|range| range.replicas.iter().chain([&range.master])).collect()
    }

    /// Reads the answer of the node at `asked`.
    fn read(answer: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        if ranges.is_empty() || ranges.len() > MAX_RANGES {
            return None;
        }
        let mut ranges: Vec<_> = ranges.iter().map(|range| Range::read(range, asked)).collect::<Option<_>>()?;
        ranges.sort_unstable_by_key(|range| range.first);
        Some(Self(ranges))
    }
}

impl Range {
    /// `[first, last, [host, port, id, …], replicas…]`
    fn read(answer: &Value, asked: &Address) -> Option<Self> {
        let Value::Array(parts) = answer else { return None };
        let [Value::Int(first), Value::Int(last), master, replicas @ ..] = parts.as_slice() else { return None };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        if first > last || last >= SLOTS {
            return None;
        }
        let replicas = replicas.iter().map(|node| read_node(node, asked)).collect::<Option<_>>()?;
        Some(Self { first, last, master: read_node(master, asked)?, replicas })
    }
}

/// A node that does not know under which name it is reached is reached where another of its host was.
fn read_node(answer: &Value, asked: &Address) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    let [host, Value::Int(port), ..] = parts.as_slice() else { return None };
    let host = match host {
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => return None,
    };
    let host = if matches!(host, "" | "?") { &asked.host } else { host };
    Some(Address { host: host.to_owned(), port: u16::try_from(*port).ok()? })
}

/// Asks a node.
pub(super) async fn ask(mut connection: MultiplexedConnection, asked: &Address) -> Result<Slots, String> {
    let mut call = redis::cmd("CLUSTER");
    call.arg("SLOTS");
    let answer: Value = call.query_async(&mut connection).await.map_err(|error| error.to_string())?;
    Slots::read(&answer, asked).ok_or_else(|| "its CLUSTER SLOTS names no nodes".to_owned())
}

/// CRC-16/XMODEM of the key. Names of sandboxes have no braces: there is no hash tag to look for.
pub(super) fn slot_of(key: &str) -> u16 {
    let bit = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    let crc = key.bytes().fold(0, |crc, byte| (0..8).fold(crc ^ (u16::from(byte) << 8), bit));
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec()), Value::Array(vec![])])
    }

    fn bytes(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31C3);
        assert_eq!(slot_of("foo"), 12182);
    }

    #[test]
    fn an_answer_tells_masters_and_replicas() {
        let answer = Value::Array(vec![
            Value::Array(vec![Value::Int(100), Value::Int(200), node(bytes("10.0.0.2"), 2), node(Value::Nil, 3)]),
            Value::Array(vec![Value::Int(0), Value::Int(99), node(bytes(""), 1)]),
        ]);
        let slots = Slots::read(&answer, &address("seed", 9)).expect("slots");
        assert_eq!(slots.master_of(0), Some(&address("seed", 1)));
        assert_eq!(slots.master_of(99), Some(&address("seed", 1)));
        assert_eq!(slots.master_of(100), Some(&address("10.0.0.2", 2)));
        assert_eq!(slots.master_of(201), None);
        assert_eq!(slots.nodes().len(), 3);
        assert!(slots.nodes().contains(&address("seed", 3)));
    }

    #[test]
    fn nonsense_is_no_answer() {
        let of = |parts: Vec<Value>| Value::Array(vec![Value::Array(parts)]);
        let fine = || node(bytes("a"), 1);
        for bad in [
            Value::Nil,
            Value::Array(vec![]),
            of(vec![Value::Int(0), Value::Int(1)]),
            of(vec![Value::Int(2), Value::Int(1), fine()]),
            of(vec![Value::Int(0), Value::Int(16384), fine()]),
            of(vec![Value::Int(-1), Value::Int(1), fine()]),
            of(vec![Value::Int(0), Value::Int(1), node(bytes("a"), 65536)]),
            of(vec![Value::Int(0), Value::Int(1), node(Value::Int(1), 1)]),
            of(vec![Value::Int(0), Value::Int(1), fine(), Value::Nil]),
        ] {
            assert!(Slots::read(&bad, &address("seed", 9)).is_none(), "{bad:?}");
        }
    }
}
