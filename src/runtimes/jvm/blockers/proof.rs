//! What must be unchanged at the end for a result to be proven.

use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::blockers::Reference;
use crate::runtimes::jvm::methods::Evidence;
use crate::runtimes::jvm::virtual_thread_names::Collections;

/// Everything that led to a result.
pub struct Proof {
    /// Whether it is of interest who holds what is waited for.
    pub holders: bool,
    pub words: Evidence,
    /// The words alone say who holds it, also to other threads that wait for it, and later.
    pub for_others: bool,
    /// A word was unreadable.
    failed: bool,
    pub heap: Heap,
    /// Objects that were read.
    objects: Vec<u64>,
}

/// The collector's state in which the objects are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Heap {
    /// No object is moved.
    Still {
        collections: Option<Collections>,
        /// Only references without these bits are good.
        stale_bits: u64,
    },
    /// Objects may be moved meanwhile, so no reference is good.
    Moving,
}

impl Heap {
    pub fn read<M: ReadMemory>(jvm: &Jvm<M>) -> Heap {
        let Ok(objects) = &jvm.objects else { return Heap::Moving };
        let collections = jvm.virtuals.collections(&jvm.memory);
        match collections.is_some_and(|collections| collections.active) {
            true => Heap::Moving,
            false => Heap::Still { collections, stale_bits: objects.stale_bits(&jvm.memory) },
        }
    }
}

impl Proof {
    pub fn begin<M: ReadMemory>(jvm: &Jvm<M>, holders: bool) -> Proof {
        Proof {
            holders,
            words: Evidence::default(),
            for_others: true,
            failed: false,
            heap: Heap::read(jvm),
            objects: Vec::new(),
        }
    }

    /// Reads a word that belongs to the proof.
    pub fn word<M: ReadMemory>(&mut self, jvm: &Jvm<M>, at: u64) -> Option<u64> {
        let word = self.words.word(&jvm.memory, at);
        self.failed |= word.is_none();
        word
    }

    /// Reads a reference outside the heap, or `width` bytes in an object.
    fn reference<M: ReadMemory>(
        &mut self,
        jvm: &Jvm<M>,
        at: u64,
        width: usize,
    ) -> Option<Reference> {
        let Ok(objects) = &jvm.objects else { return None };
        let Some(bytes) = self.words.read(&jvm.memory, at, width) else {
            self.failed = true;
            return None;
        };
        let mut word = [0; 8];
        word[..width].copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        let object = if width == 8 { objects.plain(word) } else { objects.decode(bytes) };
        let bad = match self.heap {
            Heap::Still { stale_bits, .. } => word & stale_bits != 0,
            Heap::Moving => true,
        };
        Some(match (object, bad) {
            (0, _) => Reference::Null,
            (object, true) => Reference::Stale(object),
            (object, false) => {
                self.objects.push(object);
                Reference::Object(object)
            }
        })
    }

    /// Reads a reference outside the heap.
    pub fn root<M: ReadMemory>(&mut self, jvm: &Jvm<M>, at: u64) -> Option<Reference> {
        self.reference(jvm, at, 8)
    }

    /// Reads a reference in an object.
    pub fn field<M: ReadMemory>(&mut self, jvm: &Jvm<M>, at: u64) -> Option<Reference> {
        let width = jvm.objects.as_ref().ok()?.width();
        self.reference(jvm, at, width)
    }

    /// Reads a number of four or eight bytes.
    pub fn number<M: ReadMemory>(&mut self, jvm: &Jvm<M>, at: u64, width: usize) -> Option<u64> {
        let Some(bytes) = self.words.read(&jvm.memory, at, width) else {
            self.failed = true;
            return None;
        };
        let mut word = [0; 8];
        word.get_mut(..width)?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    /// Whether all is unchanged.
    pub fn holds<M: ReadMemory>(&self, jvm: &Jvm<M>) -> bool {
        let still = || {
            let Ok(objects) = &jvm.objects else { return false };
            self.heap == Heap::read(jvm)
                && !self.objects.iter().any(|object| objects.has_moved(&jvm.memory, *object))
        };
        !self.failed && self.words.holds(&jvm.memory) && (self.heap == Heap::Moving || still())
    }
}
