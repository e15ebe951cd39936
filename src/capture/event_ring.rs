//! The event ring: events as words in a lock-free ring. One sampler writes, one reducer reads, and
//! neither ever waits.
//!
//! A record is written whole or not at all: one that does not fit is dropped and counted. Layout of
//! a record, in u64 words:
//!
//! ```text
//! header:      kind:8 | words of the record, header included:24 | seen:8 | flags:8 | 0:16
//! observation: at, pid | tid << 32, start, name x 2, [counters x 3], [syscall number, args x 6],
//!              [blocker: kind:8 | holder:8 | its count:32, object, class x 2, pid | tid << 32],
//!              frames ...
//! ```

use ringbuf::traits::{Consumer, Observer, Producer, Split};
use ringbuf::{HeapCons, HeapProd, HeapRb};

use crate::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use crate::model::vocabulary::event::{Counters, Event, Losses, Observation, Seen, Syscall, Tick};
use crate::model::vocabulary::frame::{Ns, RawFrame, RawName, ThreadKey};

/// Maximum frames of a record. [`Writer::push`] drops longer stacks; unwinders stop far earlier.
pub const MAX_FRAMES: usize = 8_192;

/// Maximum size of a record, words.
const MAX_WORDS: usize = MAX_FRAMES + 32;

const OBSERVATION: u64 = 1;
const TICK: u64 = 2;
const THREAD_ENDED: u64 = 3;
const EXEC: u64 = 4;
const PROCESS_ENDED: u64 = 5;
const GAP: u64 = 6;
const STILL_BLOCKED: u64 = 7;
const DEADLOCKS: u64 = 8;

const HAS_COUNTERS: u64 = 1;
const HAS_SYSCALL: u64 = 2;
const RECOVERED: u64 = 4;
const HAS_PROCESS_CPU: u64 = 8;
const HAS_BLOCKER: u64 = 16;
const HAS_WAIT_BEGAN: u64 = 32;
const HAS_VISIT_INTERVAL: u64 = 64;

/// Makes a ring of `words` u64 words. At least one record must fit: 64 Ki words are 512 KiB.
pub fn channel(words: usize) -> (Writer, Reader) {
    let (producer, consumer) = HeapRb::<u64>::new(words.max(64)).split();
    let writer = Writer { ring: producer, words: Vec::with_capacity(256), dropped: 0 };
    (writer, Reader { ring: consumer, words: Vec::with_capacity(256) })
}

/// The sampler's end of the ring.
pub struct Writer {
    ring: HeapProd<u64>,
    words: Vec<u64>,
    dropped: u64,
}

impl Writer {
    /// Writes a record. Returns false if it does not fit: nothing is written, and
    /// [`Writer::dropped`] grows.
    pub fn push(&mut self, event: &Event) -> bool {
        self.words.clear();
        encode(event, &mut self.words);
        // One push_slice publishes all its words at once, so the reader never sees half a record.
        if self.words.len() > MAX_WORDS || self.ring.vacant_len() < self.words.len() {
            self.dropped += 1;
            return false;
        }
        self.ring.push_slice(&self.words);
        true
    }

    /// Returns the number of records dropped since the ring was made.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns true if the reader has been dropped: what is written is never read.
    pub fn abandoned(&self) -> bool {
        !self.ring.read_is_held()
    }
}

/// The reducer's end of the ring.
pub struct Reader {
    ring: HeapCons<u64>,
    words: Vec<u64>,
}

/// `None` means that the ring is empty now; more may come. Words that are no record are skipped.
impl Iterator for Reader {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            let header = *self.ring.try_peek()?;
            let length = length_of(header);
            if length == 0 || length > MAX_WORDS || length > self.ring.occupied_len() {
                // Not written by our writer. Without a length the start of the next record is
                // unknown.
                self.ring.clear();
                return None;
            }
            self.words.resize(length, 0);
            self.ring.pop_slice(&mut self.words);
            if let Some(event) = decode(&self.words) {
                return Some(event);
            }
        }
    }
}

impl Reader {
    /// Returns true if the writer is dropped and everything it wrote has been read.
    pub fn finished(&self) -> bool {
        !self.ring.write_is_held() && self.ring.is_empty()
    }
}

fn length_of(header: u64) -> usize {
    (header >> 8 & 0xff_ffff) as usize
}

/// Appends the words of `event` to an empty `out`.
pub fn encode(event: &Event, out: &mut Vec<u64>) {
    out.push(0);
    let (kind, seen, flags) = match event {
        Event::Observation(observation) => {
            let (seen, flags) = encode_observation(observation, out);
            (OBSERVATION, seen, flags)
        }
        Event::Tick(tick) => {
            let l = &tick.losses;
            out.extend([tick.at, u64::from(tick.pid), tick.late_ns]);
            out.extend([tick.interval_ns, tick.tick_interval_ns]);
            out.push(tick.process_cpu_ns.unwrap_or(0));
            out.push(tick.visit_interval_ns.unwrap_or(0));
            out.extend([l.samples, l.dropped, l.truncated, l.torn, l.unwind_failed, l.recovered]);
            out.extend([
                l.throttled,
                l.late,
                l.stops,
                l.stops_blocked,
                l.stop_p99_ns,
                l.sampler_cpu_ns,
            ]);
            out.extend([l.no_unwind_info, l.bad_unwind, l.outside_maps]);
            let has_clock = if tick.process_cpu_ns.is_some() { HAS_PROCESS_CPU } else { 0 };
            let has_visit = if tick.visit_interval_ns.is_some() { HAS_VISIT_INTERVAL } else { 0 };
            (TICK, 0, has_clock | has_visit)
        }
        Event::ThreadEnded { at, thread, counters } => {
            out.extend([*at, ids(thread), thread.start]);
            (THREAD_ENDED, 0, encode_counters(counters.as_ref(), out))
        }
        Event::Exec { at, pid } => {
            out.extend([*at, u64::from(*pid)]);
            (EXEC, 0, 0)
        }
        Event::ProcessEnded { at, pid } => {
            out.extend([*at, u64::from(*pid)]);
            (PROCESS_ENDED, 0, 0)
        }
        Event::Gap { from, at } => {
            out.extend([*from, *at]);
            (GAP, 0, 0)
        }
        Event::StillBlocked { at, thread, blocker } => {
            out.extend([*at, ids(thread), thread.start]);
            encode_blocker(blocker, out);
            (STILL_BLOCKED, 0, HAS_BLOCKER)
        }
        Event::Deadlocks { at, cycles } => {
            out.push(*at);
            for cycle in cycles {
                out.push(cycle.len() as u64);
                out.extend(cycle.iter().flat_map(|thread| [ids(thread), thread.start]));
            }
            (DEADLOCKS, 0, 0)
        }
    };
    // `push` drops a record too long for its length field, so that field is never read.
    out[0] = kind | (out.len() as u64 & 0xff_ffff) << 8 | seen << 32 | flags << 40;
}

fn encode_observation(observation: &Observation, out: &mut Vec<u64>) -> (u64, u64) {
    let (low, high) = name_words(&observation.name);
    out.extend([observation.at, ids(&observation.thread), observation.thread.start, low, high]);
    let mut flags = encode_counters(observation.counters.as_ref(), out);
    if observation.recovered {
        flags |= RECOVERED;
    }
    let (seen, call) = match observation.seen {
        Seen::OnCpu => (0, None),
        Seen::Running => (1, None),
        Seen::Blocked(call) => (2, Some(call)),
        Seen::Disk(call) => (3, call),
        Seen::Stopped => (4, None),
        Seen::Ready => (5, None),
    };
    if let Some(call) = call {
        flags |= HAS_SYSCALL;
        out.push(u64::from(call.number as u32));
        out.extend(call.args);
    }
    if let Some(blocker) = &observation.blocker {
        flags |= HAS_BLOCKER;
        encode_blocker(blocker, out);
    }
    if let Some(began) = observation.wait_began {
        flags |= HAS_WAIT_BEGAN;
        out.push(began);
    }
    out.extend(observation.stack.iter().map(|frame| frame.bits()));
    (seen, flags)
}

fn encode_blocker(blocker: &RawBlocker, out: &mut Vec<u64>) {
    let (holder, count, thread) = match blocker.holder {
        RawHolder::Unknown => (0, 0, 0),
        RawHolder::Free => (1, 0, 0),
        RawHolder::Thread { pid, tid } => (2, 0, u64::from(pid) | u64::from(tid) << 32),
        RawHolder::Readers(count) => (3, count, 0),
        RawHolder::Unmounted => (4, 0, 0),
    };
    // A name of no bytes stands for none.
    let (low, high) = blocker.class.as_ref().map_or((0, 0), name_words);
    let kinds = blocker.kind as u64 | holder << 8 | u64::from(count) << 16;
    out.extend([kinds, blocker.object, low, high, thread]);
}

fn encode_counters(counters: Option<&Counters>, out: &mut Vec<u64>) -> u64 {
    match counters {
        Some(c) => {
            out.extend([c.run_ns, c.delay_ns, c.runs]);
            HAS_COUNTERS
        }
        None => 0,
    }
}

fn ids(thread: &ThreadKey) -> u64 {
    u64::from(thread.pid) | u64::from(thread.tid) << 32
}

fn name_words(name: &RawName) -> (u64, u64) {
    let (low, high) = name.0.split_at(8);
    (word(low), word(high))
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Reads words from the front of a record.
struct Words<'a>(&'a [u64]);

impl Words<'_> {
    fn take(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take_thread(&mut self) -> Option<ThreadKey> {
        let ids = self.take()?;
        Some(ThreadKey { pid: ids as u32, tid: (ids >> 32) as u32, start: self.take()? })
    }

    fn take_name(&mut self) -> Option<RawName> {
        let mut name = RawName::default();
        name.0[..8].copy_from_slice(&self.take()?.to_le_bytes());
        name.0[8..].copy_from_slice(&self.take()?.to_le_bytes());
        Some(name)
    }

    fn take_blocker(&mut self, flags: u64) -> Option<Option<RawBlocker>> {
        if flags & HAS_BLOCKER == 0 {
            return Some(None);
        }
        let kinds = self.take()?;
        let (object, class, thread) = (self.take()?, self.take_name()?, self.take()?);
        let holder = match kinds >> 8 & 0xff {
            0 => RawHolder::Unknown,
            1 => RawHolder::Free,
            2 => RawHolder::Thread { pid: thread as u32, tid: (thread >> 32) as u32 },
            3 => RawHolder::Readers((kinds >> 16) as u32),
            4 => RawHolder::Unmounted,
            _ => return None,
        };
        let class = Some(class).filter(|class| *class != RawName::default());
        Some(Some(RawBlocker { kind: BlockerKind::of(kinds as u8)?, object, class, holder }))
    }

    fn take_counters(&mut self, flags: u64) -> Option<Option<Counters>> {
        if flags & HAS_COUNTERS == 0 {
            return Some(None);
        }
        Some(Some(Counters { run_ns: self.take()?, delay_ns: self.take()?, runs: self.take()? }))
    }

    fn take_syscall(&mut self, flags: u64) -> Option<Option<Syscall>> {
        if flags & HAS_SYSCALL == 0 {
            return Some(None);
        }
        let number = self.take()? as u32 as i32;
        let mut args = [0; 6];
        for arg in &mut args {
            *arg = self.take()?;
        }
        Some(Some(Syscall { number, args }))
    }
}

/// Decodes one record, header included. Returns `None` for words that are no record; never panics.
pub fn decode(record: &[u64]) -> Option<Event> {
    let mut words = Words(record);
    let header = words.take()?;
    let (kind, seen, flags) = (header & 0xff, header >> 32 & 0xff, header >> 40 & 0xff);
    Some(match kind {
        OBSERVATION => Event::Observation(decode_observation(&mut words, seen, flags)?),
        TICK => Event::Tick(decode_tick(&mut words, flags)?),
        THREAD_ENDED => {
            let (at, thread) = (words.take()?, words.take_thread()?);
            Event::ThreadEnded { at, thread, counters: words.take_counters(flags)? }
        }
        EXEC => Event::Exec { at: words.take()?, pid: words.take()? as u32 },
        PROCESS_ENDED => Event::ProcessEnded { at: words.take()?, pid: words.take()? as u32 },
        GAP => Event::Gap { from: words.take()?, at: words.take()? },
        STILL_BLOCKED => Event::StillBlocked {
            at: words.take()?,
            thread: words.take_thread()?,
            blocker: words.take_blocker(flags)??,
        },
        DEADLOCKS => {
            let (at, mut cycles) = (words.take()?, Vec::new());
            while let Some(threads) = words.take() {
                let threads = usize::try_from(threads).ok().filter(|n| *n <= words.0.len() / 2)?;
                cycles.push((0..threads).map(|_| words.take_thread()).collect::<Option<_>>()?);
            }
            Event::Deadlocks { at, cycles }
        }
        _ => return None,
    })
}

fn decode_observation(words: &mut Words<'_>, seen: u64, flags: u64) -> Option<Observation> {
    let at: Ns = words.take()?;
    let thread = words.take_thread()?;
    let name = words.take_name()?;
    let counters = words.take_counters(flags)?;
    let call = words.take_syscall(flags)?;
    let seen = match seen {
        0 => Seen::OnCpu,
        1 => Seen::Running,
        2 => Seen::Blocked(call?),
        3 => Seen::Disk(call),
        4 => Seen::Stopped,
        5 => Seen::Ready,
        _ => return None,
    };
    let blocker = words.take_blocker(flags)?;
    let wait_began = if flags & HAS_WAIT_BEGAN == 0 { None } else { Some(words.take()?) };
    let stack = words.0.iter().map(|bits| RawFrame::from_bits(*bits)).collect();
    let recovered = flags & RECOVERED != 0;
    Some(Observation { at, thread, name, seen, counters, stack, recovered, blocker, wait_began })
}

fn decode_tick(words: &mut Words<'_>, flags: u64) -> Option<Tick> {
    let (at, pid, late_ns) = (words.take()?, words.take()? as u32, words.take()?);
    let (interval_ns, tick_interval_ns) = (words.take()?, words.take()?);
    let (process_cpu, visit_interval) = (words.take()?, words.take()?);
    Some(Tick {
        at,
        pid,
        late_ns,
        process_cpu_ns: (flags & HAS_PROCESS_CPU != 0).then_some(process_cpu),
        interval_ns,
        tick_interval_ns,
        visit_interval_ns: (flags & HAS_VISIT_INTERVAL != 0).then_some(visit_interval),
        losses: Losses {
            samples: words.take()?,
            dropped: words.take()?,
            truncated: words.take()?,
            torn: words.take()?,
            unwind_failed: words.take()?,
            recovered: words.take()?,
            throttled: words.take()?,
            late: words.take()?,
            stops: words.take()?,
            stops_blocked: words.take()?,
            stop_p99_ns: words.take()?,
            sampler_cpu_ns: words.take()?,
            no_unwind_info: words.take()?,
            bad_unwind: words.take()?,
            outside_maps: words.take()?,
        },
    })
}

#[cfg(test)]
mod tests;
