//! A sealed bucket: its facts as varints, sorted by key, column by column. Similar values are
//! adjacent, so files of them compress well.
//!
//! ```text
//! head:     unit of wall_ns and cpu_ns; mean wall and cpu per hit of the facts with on-CPU hits;
//!           length of each column
//! flags     state 4 bits | same thread as before | same name | cpu | wait
//! who       [pid tid start]  [name]
//! stack     with the same thread and name: difference from the fact before
//! hits      hits  [zigzag(hits - cpu_hits)]
//! wall      of facts with cpu: zigzag(wall - hits x mean of the head), else wall
//! cpu       [zigzag(cpu - cpu_hits x mean of the head)]
//! rest      of facts whose times are no multiples of the unit: distance from the last such fact,
//!           remainder of wall_ns, remainder of cpu_ns
//! wait      [open longest_ns zigzag(from - start of bucket)]
//! blocker   of facts with a blocker: distance from the last such fact, its id
//! ```
//!
//! Saved profiles hold these bytes, so another encoding needs another kind of block there.

use crate::model::facts::fact::{Fact, FactKey, Weights};
use crate::model::facts::fact_table::GRAIN;
use crate::model::facts::tables::{BlockerId, NameId, StackId};
use crate::model::vocabulary::frame::{Ns, ThreadKey};
use crate::model::vocabulary::state::{RawState, State};

const FUTEX: u8 = 15;
const SAME_THREAD: u8 = 1 << 4;
const SAME_NAME: u8 = 1 << 5;
const CPU: u8 = 1 << 6;
const WAIT: u8 = 1 << 7;

pub const COLUMNS: usize = 9;
/// Without the column of blockers, which is empty where no blocker is known.
pub const COLUMNS_BEFORE_BLOCKERS: usize = 8;

#[derive(Debug)]
pub struct Packed {
    pub start: Ns,
    pub end: Ns,
    facts: usize,
    bytes: Box<[u8]>,
}

/// The start of the encoded bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// ns. [`GRAIN`] if most times are multiples of it, else 1.
    unit: u64,
    /// Mean time per hit of the facts with on-CPU hits, in units. Facts encode their difference
    /// from it.
    wall_per_hit: u64,
    cpu_per_hit: u64,
    /// Bytes of each column.
    pub lengths: [usize; COLUMNS],
}

impl Head {
    pub fn put(&self, out: &mut Vec<u8>) {
        put(out, self.unit);
        put(out, self.wall_per_hit);
        put(out, self.cpu_per_hit);
        self.lengths.iter().for_each(|length| put(out, *length as u64));
    }

    /// Decodes a head from the front of `bytes`.
    pub fn take(bytes: &mut &[u8]) -> Option<Head> {
        Head::take_columns(bytes, COLUMNS)
    }

    /// Decodes a head that has this number of columns; further ones are empty.
    pub fn take_columns(bytes: &mut &[u8], columns: usize) -> Option<Head> {
        let (unit, wall_per_hit, cpu_per_hit) = (take(bytes)?, take(bytes)?, take(bytes)?);
        let mut head = Head { unit, wall_per_hit, cpu_per_hit, lengths: [0; COLUMNS] };
        for length in head.lengths.iter_mut().take(columns) {
            *length = usize::try_from(take(bytes)?).ok()?;
        }
        Some(head)
    }

    fn of(facts: &[Fact]) -> Head {
        let whole = |(_, weights): &&Fact| {
            weights.wall_ns.is_multiple_of(GRAIN) && weights.cpu_ns.is_multiple_of(GRAIN)
        };
        let unit = if facts.iter().filter(whole).count() > facts.len() / 2 { GRAIN } else { 1 };
        let on_cpu =
            || facts.iter().map(|(_, weights)| weights).filter(|weights| weights.cpu_hits > 0);
        let mean = |value: &dyn Fn(&Weights) -> u64, hits: &dyn Fn(&Weights) -> u32| {
            let sum: u128 = on_cpu().map(|weights| u128::from(value(weights))).sum();
            let hits: u128 = on_cpu().map(|weights| u128::from(hits(weights))).sum();
            sum.checked_div(hits).map_or(0, |mean| mean as u64 / unit)
        };
        Head {
            unit,
            wall_per_hit: mean(&|w| w.wall_ns, &|w| w.hits),
            cpu_per_hit: mean(&|w| w.cpu_ns, &|w| w.cpu_hits),
            lengths: [0; COLUMNS],
        }
    }
}

/// Encodes the difference of `value` from `per_hit` times `hits`. The arithmetic wraps, so [`with`]
/// restores any value.
fn beyond(value: u64, per_hit: u64, hits: u32) -> u64 {
    zigzag(value.wrapping_sub(per_hit.wrapping_mul(hits.into())) as i64)
}

fn with(beyond: u64, per_hit: u64, hits: u32) -> u64 {
    per_hit.wrapping_mul(hits.into()).wrapping_add(unzigzag(beyond) as u64)
}

impl Packed {
    pub fn new(start: Ns, end: Ns, mut facts: Vec<Fact>) -> Packed {
        facts.sort_unstable_by_key(|(key, _)| *key);
        let mut head = Head::of(&facts);
        let mut columns: [Vec<u8>; COLUMNS] = Default::default();
        let [flag, who, stack, hits, wall, cpu, rest, wait, blockers] = &mut columns;
        let (mut whole, mut unblocked) = (0, 0);
        let mut before: Option<FactKey> = None;
        for (key, weights) in &facts {
            let mut flags = match key.state {
                RawState::Known(state) => state as u8,
                RawState::Futex => FUTEX,
            };
            let same_thread = before.is_some_and(|b| b.thread == key.thread);
            let same_name = before.is_some_and(|b| b.name == key.name);
            let has_cpu = weights.cpu_ns != 0 || weights.cpu_hits != 0;
            let waits = weights.open != 0 || weights.longest_ns != 0 || weights.longest_from != 0;
            for (set, bit) in
                [(same_thread, SAME_THREAD), (same_name, SAME_NAME), (has_cpu, CPU), (waits, WAIT)]
            {
                flags |= if set { bit } else { 0 };
            }
            flag.push(flags);
            if !same_thread {
                put(who, key.thread.pid.into());
                put(who, key.thread.tid.into());
                put(who, key.thread.start);
            }
            if !same_name {
                put(who, key.name.0.into());
            }
            let base =
                before.filter(|_| same_thread && same_name).map_or(0, |before| before.stack.0);
            put(stack, key.stack.0.wrapping_sub(base).into());
            put(hits, weights.hits.into());
            if has_cpu {
                put(hits, zigzag(i64::from(weights.hits) - i64::from(weights.cpu_hits)));
                put(wall, beyond(weights.wall_ns / head.unit, head.wall_per_hit, weights.hits));
                put(cpu, beyond(weights.cpu_ns / head.unit, head.cpu_per_hit, weights.cpu_hits));
            } else {
                put(wall, weights.wall_ns / head.unit);
            }
            let left = [weights.wall_ns % head.unit, weights.cpu_ns % head.unit];
            whole += 1;
            if left != [0, 0] {
                for number in [std::mem::take(&mut whole), left[0], left[1]] {
                    put(rest, number);
                }
            }
            if waits {
                put(wait, weights.open.into());
                put(wait, weights.longest_ns);
                put(wait, zigzag(weights.longest_from.wrapping_sub(start) as i64));
            }
            unblocked += 1;
            if key.blocker != BlockerId::NONE {
                put(blockers, std::mem::take(&mut unblocked));
                put(blockers, key.blocker.0.into());
            }
            before = Some(*key);
        }
        head.lengths = columns.each_ref().map(Vec::len);
        let mut out = Vec::with_capacity(head.lengths.iter().sum::<usize>() + 32);
        head.put(&mut out);
        columns.iter().for_each(|column| out.extend_from_slice(column));
        Packed { start, end, facts: facts.len(), bytes: out.into_boxed_slice() }
    }

    /// Returns the head and the columns. `None` if the bytes hold no facts.
    pub fn columns(&self) -> Option<(Head, [&[u8]; COLUMNS])> {
        let mut rest = &self.bytes[..];
        let head = Head::take(&mut rest)?;
        let mut columns: [&[u8]; COLUMNS] = [&[]; COLUMNS];
        for (column, length) in columns.iter_mut().zip(head.lengths) {
            (*column, rest) = rest.split_at_checked(length)?;
        }
        Some((head, columns))
    }

    /// Decodes facts from untrusted bytes. `None` if [`Packed::new`] would not encode them so.
    pub fn from_bytes(start: Ns, end: Ns, bytes: &[u8]) -> Option<Packed> {
        let foreign = Packed { start, end, facts: 0, bytes: bytes.into() };
        let facts: Vec<Fact> = foreign.iter().collect();
        let sorted = facts.windows(2).all(|pair| pair[0].0 < pair[1].0);
        // Facts have exactly one encoding, so no bytes are missing, excess or repeated.
        let packed = sorted.then(|| Packed::new(start, end, facts))?;
        (packed.bytes == foreign.bytes).then_some(packed)
    }

    /// Returns the bytes that [`Packed::from_bytes`] accepts.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.facts
    }

    pub fn is_empty(&self) -> bool {
        self.facts == 0
    }

    /// Returns the memory used, bytes, including the value itself and its reference count.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of::<Packed>() + 32
    }

    /// Iterates over the facts, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = Fact> + '_ {
        let (
            head,
            [
                mut flags,
                mut who,
                mut stacks,
                mut hits,
                mut wall,
                mut cpu,
                mut rest,
                mut wait,
                mut blockers,
            ],
        ) = self.columns().unwrap_or_default();
        // Number of facts up to the next one with remainders.
        let mut whole = take(&mut rest);
        // Number of facts up to the next one with a blocker.
        let mut unblocked = take(&mut blockers);
        let mut before = FactKey {
            thread: ThreadKey { pid: 0, tid: 0, start: 0 },
            name: NameId(0),
            stack: StackId(0),
            state: RawState::Futex,
            blocker: BlockerId::NONE,
        };
        std::iter::from_fn(move || {
            let (flag, after) = flags.split_first()?;
            flags = after;
            let mut key = before;
            if flag & SAME_THREAD == 0 {
                key.thread = ThreadKey {
                    pid: take(&mut who)? as u32,
                    tid: take(&mut who)? as u32,
                    start: take(&mut who)?,
                };
            }
            if flag & SAME_NAME == 0 {
                key.name = NameId(take(&mut who)? as u32);
            }
            key.state = State::ALL
                .get(usize::from(flag & 15))
                .map_or(RawState::Futex, |state| RawState::Known(*state));
            let same = flag & SAME_THREAD != 0 && flag & SAME_NAME != 0;
            key.stack = StackId((take(&mut stacks)? as u32).wrapping_add(if same {
                before.stack.0
            } else {
                0
            }));
            let mut weights = Weights { hits: take(&mut hits)? as u32, ..Weights::default() };
            if flag & CPU != 0 {
                weights.cpu_hits =
                    i64::from(weights.hits).wrapping_sub(unzigzag(take(&mut hits)?)) as u32;
                weights.wall_ns =
                    with(take(&mut wall)?, head.wall_per_hit, weights.hits).wrapping_mul(head.unit);
                weights.cpu_ns = with(take(&mut cpu)?, head.cpu_per_hit, weights.cpu_hits)
                    .wrapping_mul(head.unit);
            } else {
                weights.wall_ns = take(&mut wall)?.wrapping_mul(head.unit);
            }
            whole = whole.map(|whole| whole.wrapping_sub(1));
            if whole == Some(0) {
                weights.wall_ns = weights.wall_ns.wrapping_add(take(&mut rest)?);
                weights.cpu_ns = weights.cpu_ns.wrapping_add(take(&mut rest)?);
                whole = take(&mut rest);
            }
            if flag & WAIT != 0 {
                weights.open = take(&mut wait)? as u32;
                weights.longest_ns = take(&mut wait)?;
                weights.longest_from = self.start.wrapping_add(unzigzag(take(&mut wait)?) as u64);
            }
            unblocked = unblocked.map(|facts| facts.wrapping_sub(1));
            key.blocker = BlockerId::NONE;
            if unblocked == Some(0) {
                key.blocker = BlockerId(take(&mut blockers)? as u32);
                unblocked = take(&mut blockers);
            }
            before = key;
            Some((key, weights))
        })
    }
}

/// Maps signed to unsigned numbers so that those near zero stay small.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Inverts [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Appends a varint: seven bits per byte, the lowest first; all but the last byte have the highest
/// bit set.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Decodes a varint from the front of `bytes`.
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
        let number = || {
            prop_oneof![Just(0u64), 0u64..300, any::<u64>(), (0u64..2_000).prop_map(|n| n * GRAIN)]
        };
        let small = || prop_oneof![Just(0u32), 0u32..300, any::<u32>()];
        let state = (0usize..10)
            .prop_map(|n| State::ALL.get(n).map_or(RawState::Futex, |s| RawState::Known(*s)));
        let blocker = prop_oneof![Just(0u32), 0u32..3, any::<u32>()];
        let key = (0u32..3, 0u32..3, number(), 0u32..4, small(), state, blocker).prop_map(
            |(pid, tid, start, name, stack, state, blocker)| FactKey {
                thread: ThreadKey { pid, tid, start },
                name: NameId(name),
                stack: StackId(stack),
                state,
                blocker: BlockerId(blocker),
            },
        );
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

        /// Bytes that are accepted as facts encode to the same bytes again.
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
            let thread = ThreadKey { pid: 1, tid, start: 3 };
            let key = FactKey::new(thread, NameId(4), StackId(5), RawState::Futex);
            (key, Weights { wall_ns: 1_000, hits: 1, ..Weights::default() })
        };
        let packed = Packed::new(0, 1, vec![fact(1), fact(2)]);
        let bytes = packed.as_bytes();
        for end in 0..bytes.len() {
            assert!(Packed::from_bytes(0, 1, &bytes[..end]).is_none(), "{end}");
        }
        assert!(Packed::from_bytes(0, 1, &[bytes, &[0]].concat()).is_none());
        let twice = Packed::new(0, 1, vec![fact(1), fact(1)]);
        assert!(Packed::from_bytes(0, 1, twice.as_bytes()).is_none());
        // The pid: with a bit beyond 32; in more bytes than it needs.
        let (head, columns) = packed.columns().expect("these are facts");
        for pid in [&[1][..], &[0x81, 0x80, 0x80, 0x80, 0x10], &[0x81, 0]] {
            let mut columns = columns.map(<[u8]>::to_vec);
            columns[1].splice(..1, pid.iter().copied());
            let mut bytes = Vec::new();
            Head { lengths: columns.each_ref().map(Vec::len), ..head }.put(&mut bytes);
            bytes.extend(columns.concat());
            assert_eq!(Packed::from_bytes(0, 1, &bytes).is_some(), pid.len() == 1, "{pid:?}");
        }
    }

    #[test]
    fn an_idle_second_is_small() {
        // 500 threads that wait through a whole second in one stack each.
        let facts: Vec<Fact> = (0..500)
            .map(|n| {
                let thread = ThreadKey { pid: 4321, tid: 5000 + n, start: 123_456_789 };
                let key = FactKey::new(thread, NameId(7), StackId(1000), RawState::Futex);
                let waits = Weights {
                    wall_ns: 1_000_000_000,
                    open: 1,
                    longest_ns: 90_000_000_000,
                    ..Weights::default()
                };
                (key, Weights { longest_from: 10_000_000_000, ..waits })
            })
            .collect();
        let packed = Packed::new(100_000_000_000, 101_000_000_000, facts);
        assert!(packed.bytes() <= 500 * 32, "{}", packed.bytes());
    }
}
