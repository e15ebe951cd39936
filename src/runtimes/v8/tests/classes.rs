//! Methods of made-up classes: whatever holds them, and what must not pass for a class.

use super::*;

/// Where a prototype holds its methods.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Held {
    InObject,
    InArray,
    InTable,
    /// In a pair of getter and setter, among the descriptors.
    AsGetter,
    AsSetter,
}

const PLACES: [Held; 5] =
    [Held::InObject, Held::InArray, Held::InTable, Held::AsGetter, Held::AsSetter];

/// Where a class says which prototype its objects have.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Made {
    Prototype,
    Map,
    /// The function is too short to say it; behind it lies an object of that prototype.
    Behind,
    Other,
}

/// A program whose function `told` is a method of `Cart`. Objects are addresses plus 1.
struct Defined {
    program: Program,
    prototype: u64,
    /// An object of the class, and one of a class derived from it.
    cart: u64,
    derived: u64,
    class: u64,
}

impl Defined {
    fn kind(&self, name: &str) -> u16 {
        kind(self.program.layout.version, name)
    }

    /// Makes a map: type, words of an object, prototype, descriptors.
    fn map(&self, kind: u16, words: u64, prototype: u64, descriptors: u64) -> u64 {
        let of_maps = self.program.world.map(self.program.layout.types.map);
        self.program.world.object(&[
            of_maps,
            u64::from(kind) << 32 | words,
            0,
            prototype,
            0,
            descriptors,
        ])
    }

    fn object(&self, prototype: u64) -> u64 {
        let map = self.map(self.kind("JSObject__JS_OBJECT"), 3, prototype, 0);
        self.program.world.object(&[map, 0, 0])
    }

    fn new(version: Version, held: Held, made: Made, name: &str) -> Defined {
        let program = program(version);
        let mut it = Defined { program, prototype: 0, cart: 0, derived: 0, class: 0 };
        let Program { ref world, ref layout, told, .. } = it.program;
        let word =
            |object: u64, offset: u64| (&world).read_u64(object - 1 + offset).expect("there");
        // `told` gets a name that is a string alone.
        let shared = word(told, layout.shared);
        world.set(shared, layout.name, world.string(name));
        let of_class = world.object(&[word(shared, 0), 0, 0, 0, 0, 0, 0, 0]);
        world.set(of_class, layout.name, world.string("Cart"));
        let top = it.object(0);
        let functions = layout.types.first_function;
        let class = match made {
            Made::Behind => world.object(&[it.map(functions, 7, 0, 0), 0, 0, 0, 0, 0, 0]),
            _ => world.object(&[it.map(functions, 8, 0, 0), 0, 0, 0, 0, 0, 0, 0]),
        };
        if made == Made::Behind {
            world.object(&[0, 0, 0, 0]);
        }
        world.set(class, layout.shared, of_class);
        let array = |words: &[u64], kind: u16, length: u64| {
            world.object(&[&[world.map(kind), small(length)], words].concat())
        };
        let (mut inside, mut properties, mut descriptors) = ([0x77, 0], 1, 0);
        let both = [class, told];
        match held {
            Held::InObject => inside = both,
            // The length is below a hash.
            Held::InArray => {
                let kind = it.kind("PropertyArray__PROPERTY_ARRAY");
                properties = array(&both, kind, 2 | 5 << 10);
            }
            Held::InTable => properties = array(&[3, class, 0, 3, told, 0], 222, 6),
            Held::AsGetter | Held::AsSetter => {
                inside[1] = class;
                let pair = if held == Held::AsGetter { [told, 0] } else { [0, told] };
                let pair = [&[world.map(it.kind("AccessorPair__ACCESSOR_PAIR"))], &pair[..]];
                let pair = world.object(&pair.concat());
                let kind = it.kind("DescriptorArray__DESCRIPTOR_ARRAY");
                let mut words = vec![world.map(kind), 2 << 16 | 2];
                words.resize(if version == (14, 6) { 4 } else { 3 }, 0);
                words.extend([3, 0, 0, 3, 0, pair]);
                descriptors = world.object(&words);
            }
        }
        let map = it.map(it.kind("JSObject__JS_OBJECT"), 5, top, descriptors);
        let prototype = world.object(&[map, properties, 0, inside[0], inside[1]]);
        let initial = it.map(it.kind("JSObject__JS_OBJECT"), 3, prototype, 0);
        match made {
            Made::Prototype => world.set(class, 56, prototype),
            Made::Map => world.set(class, 56, initial),
            Made::Behind => world.set(class, 56, initial),
            Made::Other => world.set(class, 56, top),
        }
        let cart = it.object(prototype);
        let (prototype, derived) = (prototype, it.object(it.object(it.object(prototype))));
        (it.prototype, it.cart, it.derived, it.class) = (prototype, cart, derived, class);
        it
    }

    /// Returns the name of `told` in a frame, called on an object.
    fn called_on(&self, receiver: u64) -> String {
        let mut v8 = reader(&self.program);
        self.called_in(&mut v8, receiver)
    }

    fn called_in(&self, v8: &mut V8<&World>, receiver: u64) -> String {
        let Program { told, bytecode, ref layout, .. } = self.program;
        let mut frame = stack(told, bytecode, small(layout.bytecode_data));
        let with_receiver = |at: u64| if at == STACK + 80 { Some(receiver) } else { frame(at) };
        let (name, left) = leave(v8, 0, TRAMPOLINE, None, with_receiver);
        assert_eq!(left, CALLER);
        name.split(" /srv").next().unwrap_or(&name).to_owned()
    }
}

#[test]
fn a_method_has_its_class_whatever_holds_it() {
    for version in VERSIONS {
        for held in PLACES {
            for made in [Made::Prototype, Made::Map] {
                let name = match held {
                    Held::AsGetter => "get total",
                    Held::AsSetter => "set total",
                    _ => "total",
                };
                let it = Defined::new(version, held, made, name);
                let expected = format!("Cart.{name}");
                for receiver in [it.cart, it.derived] {
                    assert_eq!(it.called_on(receiver), expected, "{version:?} {held:?} {made:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_no_proven_method_has_no_class() {
    for version in VERSIONS {
        for made in [Made::Behind, Made::Other] {
            let it = Defined::new(version, Held::InObject, made, "total");
            assert_eq!(it.called_on(it.cart), "total", "{version:?} {made:?}");
        }
        let it = Defined::new(version, Held::InObject, Made::Map, "total");
        let undefined = it.program.world.object(&[it.program.world.map(131), 0, 0]);
        let own = it.prototype;
        // What holds it has it as its own property, as a class has its static methods.
        for receiver in [own, undefined, small(7), 0, 1, 0x7777_7771] {
            assert_eq!(it.called_on(receiver), "total", "{version:?} {receiver:x}");
        }
        for name in ["#total", "Cart.total", "exports.total"] {
            let it = Defined::new(version, Held::InObject, Made::Map, name);
            assert_eq!(it.called_on(it.cart), name);
        }
        // A function in a pair that is no getter.
        let it = Defined::new(version, Held::AsGetter, Made::Map, "total");
        assert_eq!(it.called_on(it.cart), "total");
        // The constructor is held too.
        let mut it = Defined::new(version, Held::InObject, Made::Map, "Cart");
        assert_eq!(it.called_on(it.cart), "Cart.Cart", "the class is another function");
        let map = it.map(it.program.layout.types.first_function, 8, 0, 0);
        let Program { told, ref world, ref layout, .. } = it.program;
        let shared = (&world).read_u64(told - 1 + layout.shared).expect("there");
        let constructor = world.object(&[map, 0, 0, 0, 0, 0, 0, it.prototype]);
        world.set(constructor, layout.shared, shared);
        world.set(it.prototype, 24, constructor);
        it.program.told = constructor;
        assert_eq!(it.called_on(it.cart), "Cart");
    }
}

/// Where a method is inlined there is no object that it was called on.
#[test]
fn code_that_was_named_before_gets_the_class_too() {
    for version in VERSIONS {
        let it = Defined::new(version, Held::InObject, Made::Map, "total");
        let Program { told, literals, optimized, ref layout, ref world, .. } = it.program;
        let shared = world.words.borrow()[((told - 1 + layout.shared - HEAP) / 8) as usize];
        world.set(literals, 16, shared);
        let mut v8 = reader(&it.program);
        let inlined = |v8: &mut V8<&World>| leave(v8, 0, optimized + 30, None, stack(told, 0, 0)).0;
        assert!(inlined(&mut v8).contains("> total /srv"));
        assert_eq!(it.called_in(&mut v8, it.cart), "Cart.total");
        assert!(inlined(&mut v8).contains("> Cart.total /srv"));
    }
}

/// A variable that the code around it sees has the class: an object, or the class itself, here or
/// further out.
#[test]
fn an_inlined_method_has_the_class_of_a_variable() {
    for version in VERSIONS {
        for held in [Held::InObject, Held::InArray, Held::InTable] {
            let it = Defined::new(version, held, Made::Map, "total");
            let Program { told, literals, optimized, ref layout, ref world, .. } = it.program;
            let word = |object: u64, at: u64| (&world).read_u64(object - 1 + at).expect("there");
            let shared = word(told, layout.shared);
            world.set(literals, 16, shared);
            let other = it.object(it.object(0));
            let of_contexts = world.map(CONTEXT_TYPE);
            let context = |previous: u64, variables: &[u64]| {
                let head = [of_contexts, small(2 + variables.len() as u64), 0, previous];
                world.object(&[&head, variables].concat())
            };
            let expected = |context: u64| {
                let mut v8 = reader(&it.program);
                let mut frame = stack(told, 0, 0);
                let with_context =
                    |at: u64| if at == STACK + 56 { Some(context) } else { frame(at) };
                let named = leave(&mut v8, 0, optimized + 30, None, with_context).0;
                named.split(" > ").nth(1).and_then(|it| it.split(' ').next()).map(str::to_owned)
            };
            let (with, without) = (Some("Cart.total".to_owned()), Some("total".to_owned()));
            let module = context(0, &[other, small(3), it.class]);
            assert_eq!(expected(module), with, "{version:?} {held:?}: the class");
            assert_eq!(expected(context(0, &[other, it.cart])), with, "{version:?} {held:?}");
            assert_eq!(expected(context(module, &[other, told])), with, "further out");
            assert_eq!(expected(context(0, &[other, it.derived, told, 1, 7])), without);
            let many: Vec<u64> = (0..32).map(|_| it.object(it.object(0))).collect();
            assert_eq!(expected(context(module, &many)), without, "many others before it");
            assert_eq!(expected(it.cart), without, "no context");
            // A constructor that is inlined is no method of its own class.
            world.set(literals, 16, word(it.class, layout.shared));
            assert_eq!(expected(module).as_deref(), Some("Cart"));
            world.set(literals, 16, shared);
            assert_eq!(expected(told), without, "no context");
        }
    }
}

/// A name becomes final: frames that were torn, or calls on something else, use up the searches.
#[test]
fn a_class_is_searched_a_few_times() {
    let it = Defined::new((13, 6), Held::InObject, Made::Map, "total");
    let other = it.object(0);
    for (before, expected) in [(3, "Cart.total"), (4, "total")] {
        let mut v8 = reader(&it.program);
        for _ in 0..before {
            assert_eq!(it.called_in(&mut v8, other), "total");
        }
        assert_eq!(it.called_in(&mut v8, it.cart), expected);
        assert_eq!(it.called_in(&mut v8, other), expected);
    }
}

#[test]
fn every_word_of_a_class_may_be_anything() {
    for (held, name) in [(Held::InArray, "total"), (Held::AsGetter, "get total")] {
        let it = Defined::new((14, 6), held, Made::Map, name);
        let world = &it.program.world;
        for at in 0..world.used.get() {
            let word = world.words.borrow()[at];
            for other in [0, 1, 3, u64::MAX, HEAP + 1, word ^ 8, word | 1 << 62, small(0x7fff_ffff)]
            {
                world.words.borrow_mut()[at] = other;
                world.reads.set(0);
                it.called_on(it.derived);
                assert!(world.reads.get() < 200, "{} reads", world.reads.get());
            }
            world.words.borrow_mut()[at] = word;
        }
    }
}
