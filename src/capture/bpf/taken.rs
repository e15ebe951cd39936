//! What the kernel takes of threads in the interrupts that sample them, beside what perf takes
//! (taken.bpf.h): frames of interpreters, stacks and labels of goroutines, objects that lead to
//! awaiting functions.

use std::collections::VecDeque;
use std::io;

use aya::maps::{HashMap, MapData, RingBuf};
use rustc_hash::FxHashMap;

use crate::capture::bpf::awaiting::{self, LAYOUT as AWAIT_LAYOUT};
use crate::capture::bpf::goroutine;
use crate::capture::bpf::interpreter::{self, LAYOUT, words};
use crate::capture::bpf::labels;
use crate::model::vocabulary::frame::Ns;
use crate::runtimes::go::labels::{Form, LabelsLayout, RawLabels};
use crate::unwinder::GoroutineStack;
use crate::unwinder::awaiting::{AwaitLayout, TakenObjects};
use crate::unwinder::interpreted::{InterpreterLayout, Taken};

/// Maximum distance of the times of a sample and of its records. All are taken in one interrupt;
/// the least interval of samples is longer.
const APART: Ns = 200_000;
/// Maximum records of one kind kept for one processor; those without a sample are dropped.
const KEPT: usize = 256;

/// Bytes that each record begins with (`struct of_sample`).
const HEAD: usize = 24;
const INTERPRETER_FRAMES: u32 = 1;
const GOROUTINE_STACK: u32 = 2;
const GOROUTINE_LABELS: u32 = 3;
const AWAITING_OBJECTS: u32 = 4;

/// Bits of what the kernel knows of a program (goroutine.bpf.h).
const IS_GO: u32 = 1;
const LABELS_IN_LIST: u32 = 2;
const LABELS_SHIFT: u32 = 8;

/// Reads what is taken with samples.
pub struct TakenWithSamples {
    layouts: HashMap<MapData, u32, [u64; LAYOUT]>,
    go_programs: HashMap<MapData, u32, u32>,
    await_layouts: HashMap<MapData, u32, [u64; AWAIT_LAYOUT]>,
    await_returns: HashMap<MapData, [u64; 2], u32>,
    ring: RingBuf<MapData>,
    frames: Waiting<Taken>,
    stacks: Waiting<GoroutineStack>,
    labels: Waiting<RawLabels>,
    objects: Waiting<TakenObjects>,
}

/// What is known of a program of Go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoProgram {
    /// Where it has labels; `None`: it has none, or it is not known.
    pub labels: Option<LabelsLayout>,
}

impl GoProgram {
    /// Returns the word of `go_programs`; `None`: of a process that is no such program.
    fn word(program: Option<GoProgram>) -> u32 {
        let Some(GoProgram { labels }) = program else { return 0 };
        let of_labels = labels.map_or(0, |LabelsLayout { offset, form }| {
            let in_list = if form == Form::List { LABELS_IN_LIST } else { 0 };
            u32::from(offset) << LABELS_SHIFT | in_list
        });
        IS_GO | of_labels
    }
}

/// A sample of a thread that has a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleKey {
    pub processor: u32,
    pub at: Ns,
    /// The thread's id in the initial pid namespace, where that is known.
    pub thread: Option<u32>,
}

/// Records that wait for their samples, by processor, in order of time.
struct Waiting<T>(FxHashMap<u32, VecDeque<Record<T>>>);

#[derive(Debug, PartialEq)]
struct Record<T> {
    at: Ns,
    /// The thread's id in the initial pid namespace.
    thread: u32,
    taken: T,
}

impl TakenWithSamples {
    pub(super) fn new(
        layouts: HashMap<MapData, u32, [u64; LAYOUT]>,
        go_programs: HashMap<MapData, u32, u32>,
        await_layouts: HashMap<MapData, u32, [u64; AWAIT_LAYOUT]>,
        await_returns: HashMap<MapData, [u64; 2], u32>,
        ring: RingBuf<MapData>,
    ) -> TakenWithSamples {
        TakenWithSamples {
            layouts,
            go_programs,
            await_layouts,
            await_returns,
            ring,
            frames: Waiting::new(),
            stacks: Waiting::new(),
            labels: Waiting::new(),
            objects: Waiting::new(),
        }
    }

    /// Sets where the interpreter of a process keeps its frames; `None`: it has none. `process`:
    /// its id in the initial pid namespace.
    pub fn set_interpreter(
        &mut self,
        process: u32,
        layout: Option<&InterpreterLayout>,
    ) -> io::Result<()> {
        set(&mut self.layouts, process, layout.map(words))
    }

    /// Sets whether a process is a Go program; before that its goroutines are searched. `process`:
    /// its id in the initial pid namespace.
    pub fn set_go(&mut self, process: u32, program: Option<GoProgram>) -> io::Result<()> {
        self.go_programs.insert(process, GoProgram::word(program), 0).map_err(io::Error::other)
    }

    /// Sets what the objects are like that lead to awaiting functions; `None`: there are none.
    /// `process`: its id in the initial pid namespace.
    pub fn set_awaiting(&mut self, process: u32, layout: Option<&AwaitLayout>) -> io::Result<()> {
        for address in layout.into_iter().flat_map(|layout| &layout.returns) {
            let key = [*address, process.into()];
            self.await_returns.insert(key, 0, 0).map_err(io::Error::other)?;
        }
        set(&mut self.await_layouts, process, layout.map(awaiting::words))
    }

    /// Forgets what was set of a process.
    pub fn forget(&mut self, process: u32) {
        let _ = self.layouts.remove(&process);
        let _ = self.go_programs.remove(&process);
        let _ = self.await_layouts.remove(&process);
    }

    /// Takes from the ring what is there. To be called when a sample was read, before its records
    /// are asked for: the kernel writes them before the sample, but may do both after an earlier
    /// call.
    pub fn receive(&mut self) {
        while let Some(bytes) = self.ring.next() {
            let Some(head) = Head::decode(&bytes) else { continue };
            let Head { at, processor, thread, what, count } = head;
            let rest = &bytes[HEAD..];
            match what {
                INTERPRETER_FRAMES => {
                    if let Some(taken) = interpreter::decode(count, rest) {
                        self.frames.add(processor, Record { at, thread, taken });
                    }
                }
                GOROUTINE_STACK => {
                    if let Some(taken) = goroutine::decode(count, rest) {
                        self.stacks.add(processor, Record { at, thread, taken });
                    }
                }
                GOROUTINE_LABELS => {
                    if let Some(taken) = labels::decode(count, rest) {
                        self.labels.add(processor, Record { at, thread, taken });
                    }
                }
                AWAITING_OBJECTS => {
                    if let Some(taken) = awaiting::decode(count, rest) {
                        self.objects.add(processor, Record { at, thread, taken });
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the frames of an interpreter that belong to a sample. Samples of one processor are
    /// asked for in order of time.
    pub fn frames_of(&mut self, sample: SampleKey) -> Taken {
        self.frames.of_sample(sample).unwrap_or_else(Taken::nothing)
    }

    /// Returns the stack of the goroutine that waited for the thread of a sample; the order as in
    /// [`TakenWithSamples::frames_of`].
    pub fn stack_of(&mut self, sample: SampleKey) -> Option<GoroutineStack> {
        self.stacks.of_sample(sample)
    }

    /// Returns the labels of the goroutine that the thread of a sample executed; the order as in
    /// [`TakenWithSamples::frames_of`].
    pub fn labels_of(&mut self, sample: SampleKey) -> RawLabels {
        self.labels.of_sample(sample).unwrap_or_default()
    }

    /// Returns the objects that lead from the function which was resumed on the thread of a sample
    /// to those that await it; the order as in [`TakenWithSamples::frames_of`].
    pub fn objects_of(&mut self, sample: SampleKey) -> Option<TakenObjects> {
        self.objects.of_sample(sample)
    }
}

/// Sets what the kernel knows of a process; `None`: nothing.
fn set<const N: usize>(
    map: &mut HashMap<MapData, u32, [u64; N]>,
    process: u32,
    words: Option<[u64; N]>,
) -> io::Result<()> {
    match words {
        Some(words) => map.insert(process, words, 0).map_err(io::Error::other),
        None => {
            let _ = map.remove(&process);
            Ok(())
        }
    }
}

/// How a record begins.
struct Head {
    at: Ns,
    processor: u32,
    thread: u32,
    what: u32,
    count: usize,
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Head> {
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (at, place, what) = (word(0)?, word(8)?, word(16)?);
        Some(Head {
            at,
            processor: place as u32,
            thread: (place >> 32) as u32,
            what: what as u32,
            count: (what >> 32) as usize,
        })
    }
}

impl<T> Waiting<T> {
    fn new() -> Waiting<T> {
        Waiting(FxHashMap::default())
    }

    fn add(&mut self, processor: u32, record: Record<T>) {
        let waiting = self.0.entry(processor).or_default();
        if waiting.len() >= KEPT {
            waiting.pop_front();
        }
        waiting.push_back(record);
    }

    fn of_sample(&mut self, sample: SampleKey) -> Option<T> {
        let SampleKey { processor, at, thread } = sample;
        let waiting = self.0.get_mut(&processor)?;
        while waiting.front().is_some_and(|record| record.at.saturating_add(APART) < at) {
            waiting.pop_front();
        }
        // Where a sample was lost, its record is still there, of another thread perhaps.
        let is_its = |record: &Record<T>| thread.is_none_or(|thread| record.thread == thread);
        let near = waiting.iter().take_while(|record| record.at <= at.saturating_add(APART));
        let place = near.into_iter().position(is_its)?;
        waiting.drain(..place);
        waiting.pop_front().map(|record| record.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_begins_with_when_and_where_it_was_taken() {
        let mut bytes = 77u64.to_ne_bytes().to_vec();
        bytes.extend([3u32, 4_711, GOROUTINE_STACK, 16].map(u32::to_ne_bytes).concat());
        let Head { at, processor, thread, what, count } = Head::decode(&bytes).expect("a head");
        assert_eq!((at, processor, thread, what, count), (77, 3, 4_711, GOROUTINE_STACK, 16));
        assert_eq!(bytes.len(), HEAD);
        for length in 0..HEAD {
            assert!(Head::decode(&bytes[..length]).is_none(), "{length}");
        }
        let source = include_str!("taken.bpf.h");
        for (name, number) in [
            ("INTERPRETER_FRAMES", INTERPRETER_FRAMES),
            ("GOROUTINE_STACK", GOROUTINE_STACK),
            ("GOROUTINE_LABELS", GOROUTINE_LABELS),
            ("AWAITING_OBJECTS", AWAITING_OBJECTS),
        ] {
            assert!(source.contains(&format!("#define {name} {number}\n")), "{name}");
        }
    }

    #[test]
    fn the_kernel_is_told_where_labels_are() {
        let word = |form| {
            GoProgram::word(Some(GoProgram { labels: Some(LabelsLayout { offset: 352, form }) }))
        };
        assert_eq!([word(Form::Map), word(Form::List)], [352 << 8 | 1, 352 << 8 | 3]);
        assert_eq!(GoProgram::word(Some(GoProgram { labels: None })), 1);
        assert_eq!(GoProgram::word(None), 0);
        let source = include_str!("goroutine.bpf.h");
        for (name, number) in
            [("IS_GO", IS_GO), ("LABELS_IN_LIST", LABELS_IN_LIST), ("LABELS_SHIFT", LABELS_SHIFT)]
        {
            assert!(source.contains(&format!("#define {name} {number}\n")), "{name}");
        }
    }

    #[test]
    fn only_the_newest_records_wait() {
        let mut waiting = Waiting::new();
        let at = |nth: usize| (nth as Ns + 1) * 10 * APART;
        (0..=KEPT).for_each(|nth| waiting.add(0, Record { at: at(nth), thread: 7, taken: nth }));
        assert_eq!(waiting.0[&0].len(), KEPT);
        let key = |nth| SampleKey { processor: 0, at: at(nth), thread: Some(7) };
        assert_eq!(
            [0, 1, KEPT].map(|nth| waiting.of_sample(key(nth))),
            [None, Some(1), Some(KEPT)]
        );
    }

    #[test]
    fn a_sample_has_the_record_of_its_own_instant_and_thread() {
        let mut waiting = Waiting::new();
        let records: [(Ns, u32); 5] =
            [(1_000_000, 7), (1_010_000, 8), (1_020_000, 7), (9_000_000, 7), (9_100_000, 8)];
        for (at, thread) in records {
            waiting.add(0, Record { at, thread, taken: at });
        }
        let mut of = |at, thread| waiting.of_sample(SampleKey { processor: 0, at, thread });
        assert_eq!(of(1_010_100, Some(9)), None, "whose record was lost");
        assert_eq!(of(1_010_100, Some(8)), Some(1_010_000), "the first one's sample was lost");
        assert_eq!(of(1_020_100, Some(7)), Some(1_020_000));
        assert_eq!(of(8_000_000, Some(7)), None, "the next is of later");
        assert_eq!(of(9_000_100, None), Some(9_000_000), "in another namespace");
        assert_eq!(of(9_400_000, Some(8)), None, "that is too long ago");
        let elsewhere = SampleKey { processor: 1, at: 9_100_000, thread: None };
        assert_eq!(waiting.of_sample(elsewhere), None, "another processor");
    }
}
