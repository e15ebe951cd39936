//! Functions that the compiler inlined, by a function's *inline tree* (`funcdata` 3).
//!
//! The trees lie elsewhere in the program than the table. An entry has the name of the inlined
//! function and `parentPc`: an instruction of the outer function, whose own entry, file and line
//! are those of the call.

use super::{Bytes, Function, Layout, Table};

/// Maximum functions inlined into each other at one instruction.
const DEPTH_MAX: usize = 128;
/// Maximum bytes of encoded values that are read for one instruction.
const STEPS_MAX: u64 = 1 << 20;
/// Functions whose entries are checked to find where the trees begin.
const CHECKED: usize = 16;
/// Maximum functions that are searched for these.
const SEARCHED_MAX: u64 = 4096;

/// Indices of the words in the module data (`runtime.moduledata`) that may have the address from
/// which the offsets of trees count (`gofunc`): of Go 1.18 and 1.19, of 1.20 to 1.26, of 1.27.
pub const MODULE_TREES: [u64; 3] = [38, 40, 43];

/// A function at an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    pub name: Vec<u8>,
    /// See [`Table::wrapper_id`].
    pub id: u8,
    /// Source file and line of the instruction, or of the call of the next inner function.
    pub line: Option<(Vec<u8>, u32)>,
}

/// An entry of an inline tree.
struct Inlined {
    id: u8,
    name: u32,
    /// Offset of an instruction from the function's start.
    parent: u32,
}

impl<B: Bytes> Table<B> {
    /// Returns the functions at the instruction at `address`, outermost first: `function`, and what
    /// is inlined there. `trees`: bytes from the address on from which the offsets of trees count.
    /// Without them, or where they contradict themselves, the function alone, and with something
    /// inlined its line is unknown. `None` without a name.
    pub fn positions(
        &self,
        function: &Function,
        address: u64,
        trees: Option<&impl Bytes>,
    ) -> Option<Vec<Position>> {
        let mut found = Vec::new();
        let (mut at, mut left) = (address, STEPS_MAX);
        loop {
            let line = self.line_at(function, at, &mut left);
            let index = self.inlined_at(function, at, &mut left);
            if left == 0 {
                return self.alone(function);
            }
            let Some(index) = index else {
                found.push(Position { name: self.name(function)?, id: function.id, line });
                found.reverse();
                return Some(found);
            };
            let entry = trees.and_then(|trees| self.inlined(self.tree(function)?, index, trees));
            let named = entry.and_then(|entry| {
                let name = self.string(self.header.names + u64::from(entry.name))?;
                let parent = function.start.checked_add(u64::from(entry.parent))?;
                (parent < function.end).then_some((name, entry.id, parent))
            });
            let Some((name, id, parent)) = named.filter(|_| found.len() < DEPTH_MAX) else {
                return self.alone(function);
            };
            found.push(Position { name, id, line });
            at = parent;
        }
    }

    /// Returns the function alone, without a line.
    fn alone(&self, function: &Function) -> Option<Vec<Position>> {
        let name = self.name(function)?;
        Some(vec![Position { name, id: function.id, line: None }])
    }

    /// Whether the offsets of trees count from where `trees` begins: whether what they say of some
    /// functions can be read. Without any function that has a tree nothing contradicts it.
    pub fn fits(&self, trees: &impl Bytes) -> bool {
        let mut checked = 0;
        for number in 0..self.header.functions.min(SEARCHED_MAX) {
            let Some(function) = self.numbered(number) else { return false };
            let Some(tree) = self.tree(&function) else { continue };
            let Some(entry) = self.inlined(tree, 0, trees) else { return false };
            let name = self.string(self.header.names + u64::from(entry.name));
            let is_text = |name: Vec<u8>| name.iter().all(|byte| *byte >= b' ');
            if !name.is_some_and(is_text)
                || u64::from(entry.parent) >= function.end - function.start
            {
                return false;
            }
            checked += 1;
            if checked == CHECKED {
                break;
            }
        }
        true
    }

    /// Returns the entry of what is inlined at the instruction at `address`, the innermost one.
    fn inlined_at(&self, function: &Function, address: u64, left: &mut u64) -> Option<u32> {
        /// `PCDATA_InlTreeIndex` (internal/abi/symtab.go).
        const INDEX: u32 = 2;
        let steps = match function.pcdata {
            count if count > INDEX => self.u32(function.values + 4 * u64::from(INDEX))?,
            _ => return None,
        };
        u32::try_from(self.value(steps, function, address, left)?).ok()
    }

    /// Returns the offset of a function's tree; `None` where nothing is inlined into it.
    fn tree(&self, function: &Function) -> Option<u32> {
        /// `FUNCDATA_InlTree`.
        const TREE: u8 = 3;
        if function.funcdata <= TREE {
            return None;
        }
        let after = u64::from(function.pcdata) + u64::from(TREE);
        self.u32(function.values + 4 * after).filter(|tree| *tree != u32::MAX)
    }

    /// Returns an entry of the tree at the offset `tree`.
    fn inlined(&self, tree: u32, index: u32, trees: &impl Bytes) -> Option<Inlined> {
        // runtime/symtabinl.go; before Go 1.20 in runtime/symtab.go.
        let (size, id, name, parent) = match self.header.layout {
            Layout::Go118 => (20, 2, 12, 16),
            Layout::Go120 => (16, 0, 4, 8),
        };
        let mut entry = [0; 20];
        let entry = &mut entry[..size];
        let at = u64::from(tree) + size as u64 * u64::from(index);
        (trees.read(at, entry) == size).then_some(())?;
        let field = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("4 bytes"));
        let id = entry[id];
        Some(Inlined { id, name: field(name), parent: field(parent) })
    }
}
