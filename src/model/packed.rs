//! A sealed bucket: its facts as varints, sorted by key.
//!
//! ```text
//! fact:  flags: state 4 bits | same thread as before | same name | cpu | wait
//!        [pid tid start]  [name]  stack  wall_ns  hits  [cpu_ns cpu_hits]  [open longest_ns zigzag(from - start of bucket)]
//! ```
//!
//! Saved profiles hold these bytes: another encoding is another kind of block there.

use super::fact::{Fact, FactKey, Weights};
use super::frame::{Ns, ThreadKey};
use super::state::{RawState, State};
use super::tables::{NameId, StackId};

const FUTEX: u8 = 15;
const SAME_THREAD: u8 = 1 << 4;
const SAME_NAME: u8 = 1 << 5;
const CPU: u8 = 1 << 6;
const WAIT: u8 = 1 << 7;

#[derive(Debug)]
pub struct Packed {
    pub start: Ns,
    pub end: Ns,
    facts: usize,
    bytes: Box<[u8]>,
}

impl Packed {
    pub fn new(start: Ns, end: Ns, mut facts: Vec<Fact>) -> Packed {
        facts.sort_unstable_by_key(|(key, _)| *key);
        let mut out = Vec::with_capacity(facts.len() * 24);
        let mut before: Option<FactKey> = None;
        for (key, weights) in &facts {
            let mut flags = match key.state {
                RawState::Known(state) => state as u8,
                RawState::Futex => FUTEX,
            };
            let same_thread = before.is_some_and(|b| b.thread == key.thread);
            let same_name = before.is_some_and(|b| b.name == key.name);
            let cpu = weights.cpu_ns != 0 || weights.cpu_hits != 0;
            let wait = weights.open != 0 || weights.longest_ns != 0 || weights.longest_from != 0;
            for (set, flag) in [(same_thread, SAME_THREAD), (same_name, SAME_NAME), (cpu, CPU), (wait, WAIT)] {
                flags |= if set { flag } else { 0 };
            }
            out.push(flags);
            if !same_thread {
                put(&mut out, u64::from(key.thread.pid));
                put(&mut out, u64::from(key.thread.tid));
                put(&mut out, key.thread.start);
            }
            if !same_name {
                put(&mut out, u64::from(key.name.0));
            }
            put(&mut out, u64::from(key.stack.0));
            put(&mut out, weights.wall_ns);
            put(&mut out, u64::from(weights.hits));
            if cpu {
                put(&mut out, weights.cpu_ns);
                put(&mut out, u64::from(weights.cpu_hits));
            }
            if wait {
                put(&mut out, u64::from(weights.open));
                put(&mut out, weights.longest_ns);
                put(&mut out, zigzag(weights.longest_from.wrapping_sub(start) as i64));
            }
            before = Some(*key);
        }
        Packed { start, end, facts: facts.len(), bytes: out.into_boxed_slice() }
    }

    /// Facts from bytes that may be anybody's. `None`: they are not what [`Packed::new`] makes of any facts.
    pub fn from_bytes(start: Ns, end: Ns, bytes: &[u8]) -> Option<Packed> {
        let foreign = Packed { start, end, facts: 0, bytes: bytes.into() };
        let facts: Vec<Fact> = foreign.iter().collect();
        let sorted = facts.windows(2).all(|pair| pair[0].0 < pair[1].0);
        // Facts have one encoding, so nothing is left out, cut off or there twice.
        let packed = sorted.then(|| Packed::new(start, end, facts))?;
        (packed.bytes == foreign.bytes).then_some(packed)
    }

    /// What [`Packed::from_bytes`] takes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.facts
    }

    pub fn is_empty(&self) -> bool {
        self.facts == 0
    }

    /// Bytes held, itself and its reference count included.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of::<Packed>() + 32
    }

    /// The facts, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = Fact> + '_ {
        let mut rest = &self.bytes[..];
        let mut thread = ThreadKey { pid: 0, tid: 0, start: 0 };
        let mut name = NameId(0);
        std::iter::from_fn(move || {
            let (flags, after) = rest.split_first()?;
            rest = after;
            if flags & SAME_THREAD == 0 {
                thread =
                    ThreadKey { pid: take(&mut rest)? as u32, tid: take(&mut rest)? as u32, start: take(&mut rest)? };
            }
            if flags & SAME_NAME == 0 {
                name = NameId(take(&mut rest)? as u32);
            }
            let state =
                State::ALL.get(usize::from(flags & 15)).map_or(RawState::Futex, |state| RawState::Known(*state));
            let stack = StackId(take(&mut rest)? as u32);
            let mut weights =
                Weights { wall_ns: take(&mut rest)?, hits: take(&mut rest)? as u32, ..Weights::default() };
            if flags & CPU != 0 {
                weights.cpu_ns = take(&mut rest)?;
                weights.cpu_hits = take(&mut rest)? as u32;
            }
            if flags & WAIT != 0 {
                weights.open = take(&mut rest)? as u32;
                weights.longest_ns = take(&mut rest)?;
                weights.longest_from = self.start.wrapping_add(unzigzag(take(&mut rest)?) as u64);
            }
            Some((FactKey { thread, name, stack, state }, weights))
        })
    }
}

/// Signed numbers so that those near zero are small.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Seven bits a byte, the lowest first; all but the last byte have their highest bit set.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The inverse of [`put`], from the front of `bytes`.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_fact() -> impl Strategy<Value = Fact> {
        let number = || prop_oneof![Just(0u64), 0u64..300, any::<u64>()];
        let small = || prop_oneof![Just(0u32), 0u32..300, any::<u32>()];
        let state = (0usize..10).prop_map(|n| State::ALL.get(n).map_or(RawState::Futex, |s| RawState::Known(*s)));
        let key =
            (0u32..3, 0u32..3, number(), 0u32..4, small(), state).prop_map(|(pid, tid, start, name, stack, state)| {
                FactKey { thread: ThreadKey { pid, tid, start }, name: NameId(name), stack: StackId(stack), state }
            });
        let weights = (number(), number(), small(), small(), small(), number(), number()).prop_map(
            |(wall_ns, cpu_ns, hits, cpu_hits, open, longest_ns, longest_from)| Weights {
                wall_ns,
                cpu_ns,
                hits,
                cpu_hits,
                open,
                longest_ns,
                longest_from,
            },
        );
        (key, weights)
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(facts in prop::collection::btree_map(any_fact().prop_map(|f| f.0), any_fact().prop_map(|f| f.1), 0..40), start in any::<u64>()) {
            let facts: Vec<Fact> = facts.into_iter().collect();
            let packed = Packed::new(start, start.wrapping_add(1), facts.clone());
            prop_assert_eq!(packed.len(), facts.len());
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), facts);
            let again = Packed::from_bytes(packed.start, packed.end, packed.as_bytes()).expect("these are facts");
            prop_assert_eq!((again.len(), again.as_bytes()), (packed.len(), packed.as_bytes()));
        }

        /// Whatever was taken for facts says the same when it is read.
        #[test]
        fn foreign_bytes_are_facts_or_refused(bytes in prop::collection::vec(prop_oneof![0u8..40, any::<u8>()], 0..60), start in any::<u64>()) {
            if let Some(packed) = Packed::from_bytes(start, start, &bytes) {
                prop_assert_eq!(packed.as_bytes(), &bytes[..]);
                prop_assert!(packed.iter().zip(packed.iter().skip(1)).all(|(a, b)| a.0 < b.0));
                prop_assert_eq!(packed.iter().count(), packed.len());
            }
        }
    }

    #[test]
    fn what_is_cut_off_twice_or_too_wide_is_refused() {
        let fact = |tid| {
            let key = FactKey {
                thread: ThreadKey { pid: 1, tid, start: 3 },
                name: NameId(4),
                stack: StackId(5),
                state: RawState::Futex,
            };
            (key, Weights { wall_ns: 1_000, hits: 1, ..Weights::default() })
        };
        let packed = Packed::new(0, 1, vec![fact(1), fact(2)]);
        let bytes = packed.as_bytes();
        let one = bytes.len() / 2 + 1;
        for end in (1..bytes.len()).filter(|end| ![one - 1, one].contains(end)) {
            assert!(Packed::from_bytes(0, 1, &bytes[..end]).is_none(), "{end}");
        }
        let twice = Packed::new(0, 1, vec![fact(1), fact(1)]);
        assert!(Packed::from_bytes(0, 1, twice.as_bytes()).is_none());
        // The process's number with a bit beyond 32; a number in more bytes than it needs.
        let wide = [&bytes[..1], &[0x81, 0x80, 0x80, 0x80, 0x10], &bytes[2..]].concat();
        let long = [&bytes[..1], &[0x81, 0], &bytes[2..]].concat();
        assert!(Packed::from_bytes(0, 1, &wide).is_none() && Packed::from_bytes(0, 1, &long).is_none());
    }

    #[test]
    fn an_idle_second_is_small() {
        // 500 threads that wait through a whole second in one stack each.
        let facts: Vec<Fact> = (0..500)
            .map(|n| {
                let thread = ThreadKey { pid: 4321, tid: 5000 + n, start: 123_456_789 };
                let key = FactKey { thread, name: NameId(7), stack: StackId(1000), state: RawState::Futex };
                let waits =
                    Weights { wall_ns: 1_000_000_000, open: 1, longest_ns: 90_000_000_000, ..Weights::default() };
                (key, Weights { longest_from: 10_000_000_000, ..waits })
            })
            .collect();
        let packed = Packed::new(100_000_000_000, 101_000_000_000, facts);
        assert!(packed.bytes() <= 500 * 32, "{}", packed.bytes());
    }
}
