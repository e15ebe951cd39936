//! Tasks, coroutines and futures in the target's memory. Each is checked by the name of its type
//! before anything of it counts.

use std::borrow::Cow;

use rustc_hash::FxHashMap;

use crate::elf::u64_at;
use crate::model::vocabulary::text::clean_bytes;
use crate::process::memory::ReadMemory;
use crate::runtimes::cpython::asyncio::offsets::Offsets;
use crate::runtimes::cpython::attributes::Reader;
use crate::runtimes::cpython::layout::Layout;

/// Maximum types that are remembered, and bases of one that are visited.
const KINDS_MAX: usize = 1024;
const BASES_MAX: usize = 8;
/// Maximum bytes of a type's name that are read.
const TYPE_NAME_MAX: usize = 128;
/// In a type of builds with a GIL: its base (Include/cpython/object.h). Without one each object's
/// head is 16 bytes longer.
const TYPE_BASE: u64 = 256;
/// Bytes of an object's head.
const HEAD: u64 = 16;
/// The name that asyncio gives to a task has a number behind this.
const DEFAULT_NAME: &str = "Task-";

/// What an object is, as far as it matters for tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Task,
    /// A future that is no task.
    Future,
    /// A generator, a coroutine or an asynchronous generator.
    Generator,
    /// It has a pointer to what it awaits behind its head.
    Wrapper,
    Text,
    Int,
    Other,
}

/// By the name of a type.
const KINDS: [(&str, Kind); 12] = [
    ("_asyncio.Task", Kind::Task),
    ("_asyncio.Future", Kind::Future),
    ("coroutine", Kind::Generator),
    ("generator", Kind::Generator),
    ("async_generator", Kind::Generator),
    ("coroutine_wrapper", Kind::Wrapper),
    ("async_generator_asend", Kind::Wrapper),
    ("async_generator_athrow", Kind::Wrapper),
    ("anext_awaitable", Kind::Wrapper),
    ("_asyncio.FutureIter", Kind::Wrapper),
    ("str", Kind::Text),
    ("int", Kind::Int),
];

/// Kinds of objects by the addresses of their types.
#[derive(Default)]
pub struct Kinds(FxHashMap<u64, Kind>);

/// A task as its bytes say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskObject {
    pub kind: u64,
    pub name: u64,
    pub coroutine: u64,
    pub awaited_by: u64,
    pub awaited_by_is_set: bool,
    /// It is in a list of tasks, as all that have not ended.
    pub is_listed: bool,
}

/// Reads objects of one process.
#[derive(Clone, Copy)]
pub struct Objects<'a, M> {
    pub memory: &'a M,
    pub layout: &'a Layout,
    pub offsets: &'a Offsets,
}

impl<M: ReadMemory> Objects<'_, M> {
    fn longer(&self) -> u64 {
        self.layout.object.kind.saturating_sub(8)
    }

    pub fn word(&self, at: u64, offset: u64) -> Option<u64> {
        self.memory.read_u64(at.checked_add(offset)?)
    }

    /// Returns what an object is. `None`: there is none.
    pub fn kind(&self, kinds: &mut Kinds, object: u64) -> Option<Kind> {
        if object == 0 || !object.is_multiple_of(8) {
            return None;
        }
        let kind = self.layout.object.type_of(self.memory, object)?;
        let found = self.kind_of_type(kinds, kind)?;
        self.layout.object.is_referenced(self.memory, object).then_some(found)
    }

    pub fn kind_of_type(&self, kinds: &mut Kinds, kind: u64) -> Option<Kind> {
        if let Some(known) = kinds.0.get(&kind) {
            return Some(*known);
        }
        let found = self.read_kind(kind)?;
        if kinds.0.len() >= KINDS_MAX {
            kinds.0.clear();
        }
        kinds.0.insert(kind, found);
        Some(found)
    }

    /// Decides by the name of a type, or of the nearest of its bases that is known.
    fn read_kind(&self, kind: u64) -> Option<Kind> {
        let mut at = kind;
        for _ in 0..BASES_MAX {
            let name = self.type_name(at)?;
            if let Some((_, kind)) = KINDS.iter().find(|(known, _)| *known == name) {
                return Some(*kind);
            }
            at = match self.word(at, TYPE_BASE + self.longer())? {
                0 => break,
                base => base,
            };
        }
        Some(Kind::Other)
    }

    /// Whether the objects of a type are strings.
    pub fn is_text_type(&self, kinds: &mut Kinds, kind: u64) -> bool {
        self.kind_of_type(kinds, kind) == Some(Kind::Text)
    }

    fn type_name(&self, kind: u64) -> Option<String> {
        let at = self.word(kind, self.layout.object.type_name)?;
        let mut bytes = [0; TYPE_NAME_MAX];
        let length = self.memory.read(at, &mut bytes);
        let end = bytes[..length].iter().position(|byte| *byte == 0).unwrap_or(length);
        (end > 0).then(|| clean_bytes(&bytes[..end], TYPE_NAME_MAX))
    }

    /// Returns the name of an object's type.
    pub fn type_name_of(&self, object: u64) -> Option<String> {
        self.type_name(self.layout.object.type_of(self.memory, object)?)
    }

    /// Returns the pointer behind an object's head.
    pub fn wrapped(&self, object: u64) -> Option<u64> {
        self.word(object, HEAD + self.longer())
    }

    /// Reads a task. `None`: this is none.
    pub fn task(&self, kinds: &mut Kinds, at: u64) -> Option<TaskObject> {
        let fields = &self.offsets.task;
        if self.kind(kinds, at)? != Kind::Task {
            return None;
        }
        let mut bytes = vec![0; fields.size as usize];
        self.memory.read_exact(at, &mut bytes)?;
        let word = |at: u64| u64_at(&bytes, at as usize);
        let byte = |at: u64| bytes.get(at as usize).copied();
        (byte(fields.is_task)? == 1).then_some(())?;
        Some(TaskObject {
            kind: word(self.layout.object.kind)?,
            name: word(fields.name)?,
            coroutine: word(fields.coroutine)?,
            awaited_by: word(fields.awaited_by)?,
            awaited_by_is_set: byte(fields.awaited_by_is_set)? != 0,
            is_listed: word(fields.node)? != 0,
        })
    }

    /// Returns what awaits a future: nothing, a future, or a set of these.
    pub fn awaited_by(&self, future: u64) -> Option<(u64, bool)> {
        let fields = &self.offsets.task;
        let mut is_set = [0];
        self.memory.read_exact(future.checked_add(fields.awaited_by_is_set)?, &mut is_set)?;
        Some((self.word(future, fields.awaited_by)?, is_set[0] != 0))
    }

    /// Reads a task's name, as it is.
    pub fn name(&self, kinds: &mut Kinds, name: u64) -> Option<String> {
        let kind = self.layout.object.type_of(self.memory, name)?;
        match self.kind_of_type(kinds, kind)? {
            Kind::Text => self.layout.object.text(self.memory, name),
            Kind::Int => {
                let Objects { memory, layout, .. } = *self;
                Some(format!("{DEFAULT_NAME}{}", Reader { memory, layout }.integer(name)?))
            }
            _ => None,
        }
    }
}

/// Whether asyncio itself gives such a name.
pub fn is_default(name: &str) -> bool {
    let number = name.strip_prefix(DEFAULT_NAME).map(Cow::Borrowed);
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}
