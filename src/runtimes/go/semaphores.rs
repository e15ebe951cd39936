//! What goroutines wait for that wait for a semaphore, of which the locks of package `sync` are
//! made.
//!
//! The runtime keeps them in a table of trees (`runtime.semtable`). A node (`runtime.sudog`) has a
//! goroutine and the address that it waits for, and that address says in which tree the node is.
//! So a node proves itself: its goroutine is one of the list, and its address belongs to the tree
//! in which it was found. Which of its words lead to further nodes differs by version; all are
//! tried.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::elf::u64_at;
use crate::process::memory::ReadMemory;
use crate::runtimes::go::program::Program;

/// The trees of the table, the bytes of each, and where its root is (runtime/sema.go).
const TREES: u64 = 251;
const TREE: usize = 64;
const ROOT: usize = 8;
/// Bytes of a node that are read.
const NODE: usize = 88;
/// Where a node's address is: in Go up to 1.25, or since.
const ADDRESSES: [usize; 2] = [24, 32];
/// Words of a node that may lead to others: of the tree, and of the list of those that wait for the
/// same address.
const LINKS: [usize; 6] = [8, 16, 56, 64, 72, 80];
/// How often the table is read. The program changes it meanwhile, so that a part of a tree may be
/// missed.
const READINGS: usize = 4;
/// Maximum nodes that are read at a time.
const NODES_MAX: usize = 100_000;

/// Goroutines that wait for semaphores.
#[derive(Default)]
pub struct Semaphores {
    /// Addresses of the structures of all goroutines.
    goroutines: FxHashSet<u64>,
    /// Address of the table, once it was found: where goroutines wait.
    table: Option<u64>,
    /// See [`ADDRESSES`].
    address_at: usize,
    /// By address of the goroutine's structure: that of its node, and of its semaphore.
    waiting: FxHashMap<u64, (u64, u64)>,
}

impl Semaphores {
    /// Finds the table. `goroutines`: the addresses of all structures.
    pub fn find<M: ReadMemory>(program: &Program<M>, goroutines: &[u64]) -> Semaphores {
        let goroutines = goroutines.iter().copied().collect();
        let mut found = Semaphores { goroutines, ..Semaphores::default() };
        let mut most = 0;
        for at in program.referred_by("runtime.semacquire1") {
            for address_at in ADDRESSES {
                let before = (found.table, found.address_at);
                found.waiting.clear();
                (found.table, found.address_at) = (Some(at), address_at);
                found.read_table(&program.memory);
                if found.waiting.len() > most {
                    most = found.waiting.len();
                } else {
                    (found.table, found.address_at) = before;
                }
            }
        }
        found.waiting.clear();
        found
    }

    /// Adds the goroutines that wait now.
    pub fn update(&mut self, memory: &impl ReadMemory) {
        for _ in 0..READINGS {
            self.read_table(memory);
        }
    }

    fn read_table(&mut self, memory: &impl ReadMemory) {
        let Some(at) = self.table else { return };
        let mut table = vec![0; TREES as usize * TREE];
        if memory.read_exact(at, &mut table).is_some() {
            self.read_trees(memory, &table);
        }
    }

    fn read_trees(&mut self, memory: &impl ReadMemory, table: &[u8]) {
        let mut met: FxHashSet<u64> = FxHashSet::default();
        for (tree, bytes) in (0..TREES).zip(table.chunks_exact(TREE)) {
            let mut next: Vec<u64> = u64_at(bytes, ROOT).into_iter().collect();
            while let Some(at) = next.pop() {
                if at == 0 || at % 8 != 0 || met.len() >= NODES_MAX || !met.insert(at) {
                    continue;
                }
                let mut node = [0; NODE];
                if memory.read_exact(at, &mut node).is_none() {
                    continue;
                }
                let goroutine = u64_at(&node, 0).filter(|one| self.goroutines.contains(one));
                let address = u64_at(&node, self.address_at).filter(|address| {
                    *address != 0 && address % 4 == 0 && (address >> 3) % TREES == tree
                });
                if let (Some(goroutine), Some(address)) = (goroutine, address) {
                    self.waiting.insert(goroutine, (at, address));
                    next.extend(LINKS.iter().filter_map(|link| u64_at(&node, *link)));
                }
            }
        }
    }

    /// Returns the address of the semaphore for which a goroutine waits, if it still does. A node
    /// that is not in the table any more has no address.
    pub fn address(&self, memory: &impl ReadMemory, goroutine: u64) -> Option<u64> {
        let (node, address) = *self.waiting.get(&goroutine)?;
        let mut now = vec![0; self.address_at + 8];
        memory.read_exact(node, &mut now)?;
        let is_same = u64_at(&now, 0) == Some(goroutine);
        (is_same && u64_at(&now, self.address_at) == Some(address)).then_some(address)
    }
}
