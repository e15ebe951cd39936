//! Objects of a runtime that lead from an async function which was resumed to those that await it
//! (V8): what the runtime and a capture backend tell each other about them.
//!
//! Of a blocked thread the runtime reads them. Those of a running one are gone soon after its stack
//! was copied, so the kernel takes them in the interrupt that takes the sample.

/// Maximum addresses that the kernel is told to search.
pub const RETURNS_MAX: usize = 256;
/// Maximum words that are taken of an object.
pub const OBJECT_WORDS: usize = 11;

/// Types of objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AwaitTypes {
    /// Of what is left of a suspended async function, and async generator.
    pub function: u16,
    pub generator: u16,
    pub promise: u16,
    pub reaction: u16,
    pub capability: u16,
    /// Of what a generator is asked for.
    pub request: u16,
}

/// What the program in the kernel has to know of the objects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AwaitLayout {
    /// Return addresses in built-in functions that have resumed a function, at most
    /// [`RETURNS_MAX`].
    pub returns: Vec<u64>,
    pub types: AwaitTypes,
    /// The first and the last type of functions.
    pub functions: [u16; 2],
    /// Offset of the type in a map, bytes.
    pub instance_type: u64,
    /// Offsets in a function of its context and of what is shared, words.
    pub context: u64,
    pub shared: u64,
    /// Offset of the next reaction in a reaction, words.
    pub next_reaction: u64,
    /// Offsets in what is shared, bytes: where the number of a built-in function may be; 0: there
    /// is no second place.
    pub data: [u64; 2],
    /// The number of the one that resolves a promise; 0: it is not known.
    pub resolve: u64,
}

/// An object as it was when it was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TakenObject {
    /// The address that refers to it.
    pub at: u64,
    /// Where it is: elsewhere if the collector has moved it, which updates references later.
    pub now: u64,
    pub kind: u16,
    /// Objects of few words are followed by whatever was there.
    pub words: [u64; OBJECT_WORDS],
}

/// What was taken with a sample.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakenObjects {
    /// Address on the stack of the link of the frame that has resumed a function.
    pub outer: u64,
    /// There was no room for more objects.
    pub is_full: bool,
    pub objects: Vec<TakenObject>,
}

impl TakenObjects {
    /// Returns the object at this address.
    pub fn get(&self, at: u64) -> Option<&TakenObject> {
        self.objects.iter().find(|object| object.at == at)
    }

    /// Returns where the object at this address is.
    pub fn now(&self, at: u64) -> u64 {
        self.get(at).map_or(at, |object| object.now)
    }
}
