//! The class in which a method is defined: `Cart` of `Cart.total`.
//!
//! A frame has the object on which its function was called. Its prototypes are searched for the
//! one that holds the function itself. The class is the function that this prototype holds and
//! whose own prototype it is. So the proof depends on no names, and a method has one class,
//! whatever the class of the object.

use crate::process::memory::ReadMemory;
use crate::runtimes::v8::heap::{Heap, object, small};
use crate::runtimes::v8::layout::{Classes, ELEMENTS, LENGTH, Layout};

/// Maximum prototypes searched.
const DEPTH_MAX: usize = 8;
/// Maximum words of a table of properties that are searched.
const WORDS_MAX: u64 = 8192;
/// Offset of the properties that have no room in the object itself, and of the first one there.
const PROPERTIES: u64 = 8;
const FIRST: u64 = 24;
/// Bits of the length of an array of properties; above is a hash.
const LENGTH_BITS: i32 = 0x3ff;
/// Where a function has its prototype, or the map of the objects that it makes. Functions that are
/// no constructors are shorter.
const MADE: u64 = 56;
/// Offsets of a getter and of a setter in the pair of both.
const PAIR: [u64; 2] = [8, 16];
/// Words of a descriptor: key, details, value.
const DESCRIPTOR: u64 = 3;

/// Returns the constructor of the class that defines `function`, which was called on `receiver`.
/// `is_accessor`: it is a getter or a setter. `None`: it is no method, or that is not proven.
pub fn class_of<M: ReadMemory>(
    heap: &Heap<M>,
    layout: &Layout,
    function: u64,
    receiver: u64,
    is_accessor: bool,
) -> Option<u64> {
    let search = Search { heap, layout, classes: layout.classes.as_ref()? };
    let (function, mut at) = (heap.moved(function), heap.moved(receiver));
    search.is_object(at).then_some(())?;
    for _ in 0..DEPTH_MAX {
        let prototype = search.prototype(heap.object(at)?)?;
        search.is_object(prototype).then_some(())?;
        let held = search.held(prototype)?;
        if search.holds(&held, function, is_accessor) {
            let mut constructors = held.iter().filter_map(|word| object(*word));
            let class = constructors.find(|class| search.makes(*class, prototype) == Some(true));
            return class.filter(|class| *class != function);
        }
        at = prototype;
    }
    None
}

struct Search<'a, M> {
    heap: &'a Heap<M>,
    layout: &'a Layout,
    classes: &'a Classes,
}

impl<M: ReadMemory> Search<'_, M> {
    fn is_object(&self, at: u64) -> bool {
        self.heap.kind(self.layout, at).is_some_and(|kind| kind >= self.classes.first_object)
    }

    fn prototype(&self, map: u64) -> Option<u64> {
        self.heap.object(map.checked_add(self.classes.prototype)?)
    }

    /// Returns the length of the objects of a map, bytes.
    fn size(&self, map: u64) -> Option<u64> {
        let mut words = [0];
        self.heap.read(map.checked_add(self.classes.size)?, &mut words)?;
        Some(8 * u64::from(words[0]))
    }

    /// Returns all words that may be properties of an object.
    fn held(&self, at: u64) -> Option<Vec<u64>> {
        let Search { heap, layout, classes } = self;
        let map = heap.object(at)?;
        let mut found = Vec::new();
        let mut add = |from: u64, count: u64| -> Option<()> {
            let mut bytes = vec![0; 8 * usize::try_from(count.min(WORDS_MAX)).ok()?];
            heap.read(from, &mut bytes)?;
            let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            found.extend(bytes.chunks_exact(8).map(word));
            Some(())
        };
        add(at.checked_add(FIRST)?, self.size(map)?.saturating_sub(FIRST) / 8)?;
        if let Some(more) = heap.object(at.checked_add(PROPERTIES)?) {
            let length = small(heap.word(more.checked_add(LENGTH)?)?)?;
            let is_array = heap.is(layout, more, classes.properties);
            let length = if is_array { length & LENGTH_BITS } else { length };
            add(more.checked_add(ELEMENTS)?, u64::try_from(length).ok()?)?;
        }
        let is_array = |at: &u64| {
            heap.kind(layout, *at).is_some_and(|k| classes.descriptor_arrays.contains(&k))
        };
        let descriptors = heap.object(map.checked_add(classes.descriptors)?);
        if let Some(descriptors) = descriptors.filter(is_array) {
            let mut count = [0; 2];
            heap.read(descriptors.checked_add(LENGTH)?, &mut count)?;
            let count = DESCRIPTOR * u64::from(u16::from_le_bytes(count));
            add(descriptors.checked_add(classes.header)?, count)?;
        }
        Some(found)
    }

    fn holds(&self, held: &[u64], function: u64, is_accessor: bool) -> bool {
        let Search { heap, layout, classes } = self;
        let is_it = |word: u64| object(word) == Some(function);
        let in_pair = |pair: u64| {
            heap.is(layout, pair, classes.pair)
                && PAIR.iter().any(|at| heap.word(pair.saturating_add(*at)).is_some_and(is_it))
        };
        held.iter().any(|word| is_it(*word))
            || is_accessor && held.iter().filter_map(|word| object(*word)).any(in_pair)
    }

    /// Whether `function` is a constructor of objects with this prototype.
    fn makes(&self, function: u64, prototype: u64) -> Option<bool> {
        let Search { heap, layout, .. } = self;
        let kind = heap.kind(layout, function)?;
        let types = &layout.types;
        (types.first_function..=types.last_function).contains(&kind).then_some(())?;
        (self.size(heap.object(function)?)? > MADE).then_some(())?;
        let made = heap.object(function.checked_add(MADE)?)?;
        let is_map = || heap.is(layout, made, types.map);
        Some(made == prototype || is_map() && self.prototype(made)? == prototype)
    }
}
