//! Reads words of a thread's stack: from the copied bytes and, for a blocked thread, from its
//! memory.

use crate::process::memory::ReadMemory;
use crate::unwinder::StackBytes;

/// Bytes read at a time beyond the copied ones.
const WINDOW: u64 = 4096;
/// Maximum windows read for one stack: 16 MiB, more than a thread's usual 8 MiB.
const WINDOWS_MAX: u32 = 4096;
/// Leaf functions may keep data this far below the stack pointer (System V ABI, the red zone).
pub const RED_ZONE: u64 = 128;

/// Why a word is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// On this stack, but not copied, and the thread may have run since.
    NotCopied,
    /// Not on this stack, or unreadable.
    Outside,
}

/// What a walk has read, to check later whether it would take the same steps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// Addresses on the stack and their contents.
    pub words: Vec<(u64, u64)>,
    /// For each step: the number of frames and of words before it.
    pub frames: Vec<(u32, u32)>,
}

/// The stack of the current walk.
pub struct Stack<'a, M> {
    /// Of the thread's stack, and of the goroutine's.
    copied: [StackBytes<'a>; 2],
    /// The memory for the rest; `None` if the thread may have run since the copy.
    live: Option<&'a M>,
    /// The mapping that the walk is in.
    bounds: (u64, u64),
    window: Vec<u8>,
    window_at: u64,
    windows: u32,
    /// The reason of the first read that failed.
    missing: Option<Missing>,
    trace: Option<Trace>,
}

impl<'a, M: ReadMemory> Stack<'a, M> {
    /// Creates a stack that uses the buffer `window`; [`Stack::into_window`] returns that.
    pub fn new(
        copied: [StackBytes<'a>; 2],
        live: Option<&'a M>,
        mut window: Vec<u8>,
    ) -> Stack<'a, M> {
        window.clear();
        Stack {
            copied,
            live,
            bounds: (0, 0),
            window,
            window_at: 0,
            windows: 0,
            missing: None,
            trace: None,
        }
    }

    /// Records all reads from now on.
    pub fn traced(self) -> Stack<'a, M> {
        Stack { trace: Some(Trace::default()), ..self }
    }

    /// Starts a step of the walk, after `frames` frames.
    pub fn step_begins(&mut self, frames: usize) {
        if let Some(trace) = &mut self.trace {
            trace.frames.push((frames as u32, trace.words.len() as u32));
        }
    }

    pub fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    pub fn into_window(self) -> Vec<u8> {
        self.window
    }

    /// Switches to another mapping: an alternate stack, or back from one.
    pub fn enter(&mut self, start: u64, end: u64) {
        self.bounds = (start, end);
    }

    /// Whether `sp` can be a stack pointer of this stack: below its end or exactly there.
    pub fn holds(&self, sp: u64) -> bool {
        self.bounds.0 <= sp && sp <= self.bounds.1 && sp.is_multiple_of(8)
    }

    pub fn end(&self) -> u64 {
        self.bounds.1
    }

    /// Returns why the first read since the last call failed.
    pub fn take_missing(&mut self) -> Option<Missing> {
        self.missing.take()
    }

    /// Reads the 8 bytes at `address`; a failure is remembered.
    #[inline]
    pub fn word(&mut self, address: u64) -> Option<u64> {
        let at = |copied: StackBytes<'a>| {
            let at = usize::try_from(address.wrapping_sub(copied.base)).ok()?;
            copied.bytes.get(at..at.checked_add(8)?)
        };
        let [thread, goroutine] = self.copied;
        if let Some(bytes) = at(thread).or_else(|| at(goroutine)).filter(|_| self.inside(address)) {
            let word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            if let Some(trace) = &mut self.trace {
                trace.words.push((address, word));
            }
            return Some(word);
        }
        let found = self.fetch(address);
        if let (Some(trace), Some(word)) = (&mut self.trace, found) {
            trace.words.push((address, word));
        }
        found
    }

    fn inside(&self, address: u64) -> bool {
        self.bounds.0 <= address && address < self.bounds.1 && self.bounds.1 - address >= 8
    }

    #[cold]
    fn fetch(&mut self, address: u64) -> Option<u64> {
        let why = if self.inside(address) { Missing::NotCopied } else { Missing::Outside };
        let found = match self.live {
            Some(memory) if why == Missing::NotCopied => self.windowed(memory, address),
            _ => None,
        };
        if found.is_none() {
            let why = if self.live.is_some() { Missing::Outside } else { why };
            self.missing.get_or_insert(why);
        }
        found
    }

    fn windowed(&mut self, memory: &M, address: u64) -> Option<u64> {
        let cached = |window: &[u8], at: u64| -> Option<u64> {
            let offset = usize::try_from(address.checked_sub(at)?).ok()?;
            Some(u64::from_le_bytes(window.get(offset..offset.checked_add(8)?)?.try_into().ok()?))
        };
        if let Some(word) = cached(&self.window, self.window_at) {
            return Some(word);
        }
        if self.windows == WINDOWS_MAX {
            return None;
        }
        self.windows += 1;
        let start = address & !7;
        let length = WINDOW.min(self.bounds.1 - start) as usize;
        self.window.resize(length, 0);
        let read = memory.read(start, &mut self.window);
        self.window.truncate(read);
        self.window_at = start;
        cached(&self.window, self.window_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Memory from `base` on, counting reads.
    struct Bytes {
        base: u64,
        bytes: Vec<u8>,
        reads: Cell<u32>,
    }

    impl ReadMemory for Bytes {
        fn read(&self, address: u64, buf: &mut [u8]) -> usize {
            self.reads.set(self.reads.get() + 1);
            let Some(from) = address.checked_sub(self.base).map(|o| o as usize) else { return 0 };
            let Some(found) = self.bytes.get(from..) else { return 0 };
            let n = found.len().min(buf.len());
            buf[..n].copy_from_slice(&found[..n]);
            n
        }
    }

    fn bytes(words: std::ops::Range<u64>) -> Vec<u8> {
        words.flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn copied_bytes_come_first_and_what_lies_beyond_is_read_only_from_a_thread_that_stays() {
        let memory = Bytes { base: 0x1000, bytes: bytes(0..2000), reads: Cell::new(0) };
        let copied = bytes(100..104);
        let goroutine = bytes(200..202);
        let goroutine = StackBytes { base: 0x2000, bytes: &goroutine };
        let copied = [StackBytes { base: 0x1000, bytes: &copied }, goroutine];
        let mut moving: Stack<'_, Bytes> = Stack::new(copied, None, Vec::new());
        moving.enter(0x1000, 0x1000 + 16000);
        assert_eq!(moving.word(0x1018), Some(103));
        assert_eq!((moving.word(0x2008), moving.word(0x1ff8)), (Some(201), None));
        assert_eq!(moving.take_missing(), Some(Missing::NotCopied));
        assert_eq!(moving.word(0x1020), None);
        assert_eq!(moving.take_missing(), Some(Missing::NotCopied));
        assert_eq!(moving.word(0x1000 + 16000 - 7), None, "half outside");
        assert_eq!(moving.take_missing(), Some(Missing::Outside));
        assert_eq!(moving.word(0xff8), None);
        assert_eq!(moving.word(u64::MAX), None);
        assert_eq!(moving.take_missing(), Some(Missing::Outside));
        assert_eq!(moving.take_missing(), None);
        assert_eq!(memory.reads.get(), 0);

        let mut still = Stack::new(copied, Some(&memory), Vec::new());
        still.enter(0x1000, 0x1000 + 16000);
        assert_eq!(still.word(0x1008), Some(101));
        assert_eq!(
            (still.word(0x1020), still.word(0x1028), still.word(0x1800)),
            (Some(4), Some(5), Some(256))
        );
        assert_eq!(memory.reads.get(), 1, "one window for neighbours");
        assert_eq!(still.word(0x1000 + 15992), Some(1999), "the last word");
        assert_eq!(still.take_missing(), None);
        assert_eq!(still.word(0x1000 + 16000), None);
        assert_eq!(still.take_missing(), Some(Missing::Outside));
        // A mapping that turns out to be unreadable.
        still.enter(0x10_0000, 0x20_0000);
        assert_eq!(still.word(0x10_0000), None);
        assert_eq!(still.take_missing(), Some(Missing::Outside));
        assert!(still.holds(0x20_0000) && !still.holds(0x20_0008) && !still.holds(0x10_0001));
    }
}
