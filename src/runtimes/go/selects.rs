//! Whether a goroutine that waits in a `select` has something to send.
//!
//! For each case the goroutine has a node (`runtime.sudog`) in a queue of the case's channel: that
//! of those that receive, or that of those that send. Which one it is, the channel says: it has the
//! first and the last node of both. Where nodes have their fields differs by version; a list of
//! nodes that lead back to the goroutine and to their channels proves itself.

use crate::elf::u64_at;
use crate::process::memory::ReadMemory;
use crate::runtimes::go::goroutine_list::GOROUTINE;

/// Where a node has its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fields {
    is_select: usize,
    /// The goroutine's next node.
    link: usize,
    channel: usize,
}

/// Up to Go 1.25, and since.
const FIELDS: [Fields; 2] = [
    Fields { is_select: 52, link: 64, channel: 80 },
    Fields { is_select: 60, link: 72, channel: 96 },
];
/// In a node, the same in all versions: the next and the previous one of its queue.
const NEXT: u64 = 8;
const PREVIOUS: u64 = 16;
const NODE: usize = 104;

/// In a channel: the first and the last node that receives, and behind these the same of those that
/// send. Up to Go 1.22, and since.
const QUEUES: [usize; 2] = [56, 64];
const CHANNEL: usize = 96;

/// In a goroutine's structure: the first node is behind this.
const NODES_FROM: usize = 160;
/// Maximum cases of a `select`, and nodes between one and the ends of its queue.
const CASES_MAX: usize = 64;
const NEIGHBOURS_MAX: usize = 32;

/// Finds out which goroutines want to send.
#[derive(Default)]
pub struct Selects {
    /// Where the first node is in a goroutine's structure, and the fields of nodes.
    found: Option<(usize, Fields)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Receives,
    Sends,
}

impl Selects {
    /// Returns whether the goroutine at an address, which waits in a `select`, is proven to wait
    /// among others until what it sends is taken.
    pub fn sends(&mut self, memory: &impl ReadMemory, goroutine: u64) -> bool {
        let mut structure = [0; GOROUTINE];
        if memory.read_exact(goroutine, &mut structure).is_none() {
            return false;
        }
        let sides = |offset: usize, fields: Fields| {
            let first = u64_at(&structure, offset)?;
            sides(memory, goroutine, first, fields)
        };
        if let Some((offset, fields)) = self.found {
            return sides(offset, fields).is_some_and(|sides| sides.contains(&Side::Sends));
        }
        for offset in (NODES_FROM..GOROUTINE).step_by(8) {
            for fields in FIELDS {
                if let Some(sides) = sides(offset, fields).filter(|sides| !sides.is_empty()) {
                    self.found = Some((offset, fields));
                    return sides.contains(&Side::Sends);
                }
            }
        }
        false
    }
}

/// Returns the sides of a goroutine's nodes that could be told; `first`: the first node. `None`:
/// these are not its nodes.
fn sides(
    memory: &impl ReadMemory,
    goroutine: u64,
    first: u64,
    fields: Fields,
) -> Option<Vec<Side>> {
    let mut sides = Vec::new();
    let mut at = first;
    for _ in 0..CASES_MAX {
        if at == 0 {
            break;
        }
        let mut node = [0; NODE];
        memory.read_exact(at, &mut node)?;
        if !at.is_multiple_of(8) || u64_at(&node, 0)? != goroutine || node[fields.is_select] != 1 {
            return None;
        }
        sides.extend(side(memory, at, u64_at(&node, fields.channel)?));
        at = u64_at(&node, fields.link)?;
    }
    Some(sides)
}

/// Returns in which queue of a channel a node is; `None`: it is not proven.
fn side(memory: &impl ReadMemory, node: u64, channel: u64) -> Option<Side> {
    let mut words = [0; CHANNEL];
    memory.read_exact(channel, &mut words)?;
    let ends = (end(memory, node, PREVIOUS)?, end(memory, node, NEXT)?);
    let queue = |at: usize| Some((u64_at(&words, at)?, u64_at(&words, at + 8)?));
    QUEUES.into_iter().find_map(|at| match (queue(at), queue(at + 16)) {
        (Some(receiving), _) if receiving == ends => Some(Side::Receives),
        (_, Some(sending)) if sending == ends => Some(Side::Sends),
        _ => None,
    })
}

/// Returns the node at an end of a queue. `link`: the way there.
fn end(memory: &impl ReadMemory, node: u64, link: u64) -> Option<u64> {
    let mut at = node;
    for _ in 0..NEIGHBOURS_MAX {
        match memory.read_u64(at.checked_add(link)?)? {
            0 => return Some(at),
            next => at = next,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::go::tests::Words;

    const GOROUTINE_AT: u64 = 0x10000;
    const NODES: u64 = 0x20000;
    const CHANNELS: u64 = 0x30000;

    /// Puts a goroutine that waits in a `select` with these cases into memory; of each its channel
    /// and whether it sends. `late`: the layouts of Go 1.26.
    fn select(cases: &[(u64, bool)], late: bool) -> Words {
        let mut memory = Words::default();
        memory.put(GOROUTINE_AT, &[0; GOROUTINE / 8]);
        memory.put(GOROUTINE_AT + 320, &[NODES]);
        // Words that lead elsewhere.
        memory.put(GOROUTINE_AT + 200, &[CHANNELS, GOROUTINE_AT, 7]);
        let fields = FIELDS[usize::from(late)];
        for (nth, (channel, sends)) in (0u64..).zip(cases) {
            let (node, channel) = (NODES + 0x100 * nth, CHANNELS + 0x100 * channel);
            memory.put(node, &[0; NODE / 8]);
            memory.put(node, &[GOROUTINE_AT]);
            let byte = 8 * (fields.is_select as u64 % 8);
            memory.put(node + (fields.is_select as u64 & !7), &[1 << byte]);
            let next = if nth as usize + 1 < cases.len() { node + 0x100 } else { 0 };
            memory.put(node + fields.link as u64, &[next]);
            memory.put(node + fields.channel as u64, &[channel]);
            memory.put(channel, &[0; CHANNEL / 8]);
            let queue = QUEUES[usize::from(late)] as u64 + if *sends { 16 } else { 0 };
            memory.put(channel + queue, &[node, node]);
        }
        memory
    }

    fn sends(memory: &Words) -> bool {
        Selects::default().sends(memory, GOROUTINE_AT)
    }

    #[test]
    fn a_select_sends_if_one_of_its_cases_does() {
        for late in [false, true] {
            for (cases, expected) in [
                (&[(0, true)][..], true),
                (&[(0, false)], false),
                (&[(0, false), (1, false), (2, true)], true),
                (&[(0, true), (1, false)], true),
                (&[(0, false), (1, false)], false),
            ] {
                let memory = select(cases, late);
                assert_eq!(sends(&memory), expected, "{cases:?} {late}");
                // What was found holds for others.
                let mut selects = Selects::default();
                selects.sends(&select(&[(0, false), (1, true)], late), GOROUTINE_AT);
                assert_eq!(selects.found, Some((320, FIELDS[usize::from(late)])));
                assert_eq!(selects.sends(&memory, GOROUTINE_AT), expected);
            }
        }
    }

    #[test]
    fn a_node_among_others_is_told_by_the_ends_of_its_queue() {
        let (node, other) = (NODES, NODES + 0x800);
        for (before, at) in [(true, 72), (false, 72), (true, 56), (false, 56)] {
            let mut memory = select(&[(0, true)], false);
            memory.put(other, &[0x77, 0, 0]);
            let (first, last) = if before { (other, node) } else { (node, other) };
            memory.put(first + NEXT, &[last]);
            memory.put(last + PREVIOUS, &[first]);
            memory.put(CHANNELS + 56, &[0; 4]);
            memory.put(CHANNELS + at, &[first, last]);
            assert_eq!(sends(&memory), at == 72, "{before} {at}");
        }
        // One end alone says nothing.
        let mut memory = select(&[(0, true)], false);
        memory.put(CHANNELS + 56, &[NODES, 0x77]);
        assert!(sends(&memory));
        let mut memory = select(&[(0, false)], false);
        memory.put(CHANNELS + 56, &[NODES, 0x77, NODES, 0x77]);
        assert!(!sends(&memory));
    }

    #[test]
    fn what_is_not_proven_sends_not() {
        let whole = select(&[(0, true), (1, false)], false);
        for (at, word) in [
            (GOROUTINE_AT + 320, 0),
            (NODES, 0x77),
            (NODES + 48, 0),
            (NODES + 0x100, 0x77),
            (NODES + 80, 0x77),
            (CHANNELS + 72, 0x77),
            (CHANNELS + 80, 0x77),
            // The queue goes round.
            (NODES + 8, NODES),
            (NODES + 16, NODES),
        ] {
            let mut memory = whole.clone();
            memory.put(at, &[word]);
            assert!(!sends(&memory), "{at:#x} {word:#x}");
        }
        let mut round = whole.clone();
        round.put(NODES + 64, &[NODES]);
        assert!(sends(&round), "its list goes round");
        for at in whole.words.keys() {
            for word in [0, 1, 7, NODES, u64::MAX, u64::MAX - 7, 1 << 63] {
                let mut memory = whole.clone();
                memory.put(*at, &[word]);
                sends(&memory);
            }
        }
    }
}
