//! The class in which a method is defined: `Cart` of `Cart.total`.
//!
//! A frame has the object on which its function was called. Its prototypes are searched for the
//! one that holds the function itself. The class is the function that this prototype holds and
//! whose own prototype it is. So the proof depends on no names, and a method has one class,
//! whatever the class of the object.
//!
//! A function that was inlined has no such object. Its class may be that of a variable which the
//! code around it can see: `this` of a closure, a class of the same file.

use crate::process::memory::ReadMemory;
use crate::runtimes::v8::heap::{Heap, object, small};
use crate::runtimes::v8::layout::{Classes, ELEMENTS, LENGTH, Layout};

/// Maximum prototypes searched.
const DEPTH_MAX: usize = 8;
/// Maximum contexts of a frame, variables of one, and prototypes searched of all.
const CONTEXTS_MAX: usize = 4;
const VARIABLES_MAX: u64 = 64;
const CANDIDATES_MAX: usize = 32;
/// Words of a context before its variables; the second one is the context around it.
const BEFORE_VARIABLES: usize = 2;
/// Maximum words of a table of properties that are searched.
const WORDS_MAX: u64 = 2048;
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
        if search.holds(&held, &|word| object(word) == Some(function), is_accessor) {
            return search.class(&held, prototype).filter(|class| *class != function);
        }
        at = prototype;
    }
    None
}

/// Returns the constructor of the class that defines the function `shared`, which was inlined in a
/// frame with this context.
pub fn class_of_inlined<M: ReadMemory>(
    heap: &Heap<M>,
    layout: &Layout,
    shared: u64,
    context: u64,
    is_accessor: bool,
) -> Option<u64> {
    let search = Search { heap, layout, classes: layout.classes.as_ref()? };
    let is_it = |word: u64| {
        let function = object(word).filter(|at| search.is_function(*at));
        function.is_some_and(|at| heap.object(at.saturating_add(layout.shared)) == Some(shared))
    };
    let (mut at, mut searched) = (context, Vec::new());
    for _ in 0..CONTEXTS_MAX {
        let variables = search.context(at)?;
        for value in variables.iter().skip(BEFORE_VARIABLES).filter_map(|word| object(*word)) {
            let prototype = search
                .made(value)
                .or_else(|| search.prototype(heap.object(value)?))
                .filter(|prototype| search.is_object(*prototype) && !searched.contains(prototype));
            let Some(prototype) = prototype else { continue };
            searched.push(prototype);
            if let Some(held) = search.held(prototype)
                && search.holds(&held, &is_it, is_accessor)
            {
                let class = search.class(&held, prototype)?;
                return (heap.object(class.checked_add(layout.shared)?)? != shared)
                    .then_some(class);
            }
            (searched.len() < CANDIDATES_MAX).then_some(())?;
        }
        at = object(*variables.get(BEFORE_VARIABLES - 1)?)?;
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

    /// Returns the words of a context.
    fn context(&self, at: u64) -> Option<Vec<u64>> {
        let Search { heap, layout, classes } = self;
        let kind = heap.kind(layout, at)?;
        (classes.contexts[0]..=classes.contexts[1]).contains(&kind).then_some(())?;
        let length = u64::try_from(small(heap.word(at.checked_add(LENGTH)?)?)?).ok()?;
        let words = length.min(VARIABLES_MAX);
        (0..words).map(|nth| heap.word(at.checked_add(ELEMENTS + 8 * nth)?)).collect()
    }

    /// Whether one of these words, or a getter or setter in a pair, is the function.
    fn holds(&self, held: &[u64], is_it: &dyn Fn(u64) -> bool, is_accessor: bool) -> bool {
        let Search { heap, layout, classes } = self;
        let in_pair = |pair: u64| {
            heap.is(layout, pair, classes.pair)
                && PAIR.iter().any(|at| heap.word(pair.saturating_add(*at)).is_some_and(is_it))
        };
        held.iter().any(|word| is_it(*word))
            || is_accessor && held.iter().filter_map(|word| object(*word)).any(in_pair)
    }

    fn is_function(&self, at: u64) -> bool {
        let types = &self.layout.types;
        let kind = self.heap.kind(self.layout, at);
        kind.is_some_and(|kind| (types.first_function..=types.last_function).contains(&kind))
    }

    /// Returns the constructor among these words whose objects have the prototype.
    fn class(&self, held: &[u64], prototype: u64) -> Option<u64> {
        let mut held = held.iter().filter_map(|word| object(*word));
        held.find(|class| self.made(*class) == Some(prototype))
    }

    /// Returns the prototype of the objects that a constructor makes.
    fn made(&self, function: u64) -> Option<u64> {
        let Search { heap, layout, .. } = self;
        let is_constructor =
            self.is_function(function) && self.size(heap.object(function)?)? > MADE;
        let made = heap.object(function.checked_add(MADE)?).filter(|_| is_constructor)?;
        if heap.is(layout, made, layout.types.map) { self.prototype(made) } else { Some(made) }
    }
}
