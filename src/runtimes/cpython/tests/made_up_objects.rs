//! Python objects of a made-up program: dictionaries, ints, `Thread` objects.

use super::made_up::Program;
use crate::runtimes::cpython::layout::Layout;

const TYPE_FLAGS: u64 = 168;
const TYPE_DICT: u64 = 288;
const TYPE_SIZE: u64 = 32;

/// Bytes by which heads of objects are longer.
pub fn longer(layout: &Layout) -> u64 {
    layout.object.kind - 8
}

/// Returns a table of keys and values. `shared`: without values.
pub fn keys(program: &Program, entries: &[(u64, u64)], strings: bool, shared: bool) -> u64 {
    let world = &program.world;
    let at = world.alloc(64 + 24 * entries.len() as u64 + 16);
    // Room for indices of one byte.
    let (first, general) = if program.layout.minor <= 10 {
        world.word(at + 8, 8);
        world.word(at + 32, entries.len() as u64);
        (at + 48, true)
    } else {
        world.put(at + 8, &[3, 3, if shared { 2 } else { u8::from(strings) }]);
        world.word(at + 24, entries.len() as u64);
        (at + 40, !strings)
    };
    for (nth, (key, value)) in (0..).zip(entries) {
        let (entry, size) = if general { (first + 24 * nth + 8, 8) } else { (first + 16 * nth, 8) };
        world.word(entry, *key);
        if !shared {
            world.word(entry + size, *value);
        }
    }
    at
}

pub fn dictionary(program: &Program, entries: &[(u64, u64)], strings: bool) -> u64 {
    let at = program.world.alloc(64);
    program.world.word(at + 32 + longer(&program.layout), keys(program, entries, strings, false));
    at
}

pub fn integer(program: &Program, value: u64) -> u64 {
    let longer = longer(&program.layout);
    let at = program.world.alloc(64);
    program.world.word(at + 16 + longer, if program.layout.minor <= 11 { 3 } else { 3 << 3 });
    for nth in 0..3 {
        let digit = (value >> (30 * nth)) as u32 & ((1 << 30) - 1);
        program.world.put(at + 24 + longer + 4 * nth, &digit.to_le_bytes());
    }
    at
}

/// Returns a `Thread` object, its attributes in a dictionary of its own or where the version keeps
/// them.
pub fn thread_object(program: &Program, name: u64, own: bool) -> u64 {
    let (world, layout, longer) = (&program.world, program.layout, longer(&program.layout));
    let kind = world.alloc(1024);
    let object = world.alloc(256) + 64;
    world.word(object + layout.object.kind, kind);
    let names = [program.text("_target"), program.text("_name"), program.text("_args")];
    let entries = names.map(|text| (text, if text == names[1] { name } else { 0x99 }));
    let whole = dictionary(program, &entries, true);
    let split = keys(program, &entries, true, true);
    let values =
        |at: u64| (0..).zip(entries).for_each(|(nth, (_, value))| world.word(at + 8 * nth, value));
    match layout.minor {
        0..=10 => {
            world.word(kind + TYPE_DICT, 16);
            let dict = if own {
                whole
            } else {
                let dict = world.alloc(64);
                world.word(dict + 32, split);
                world.word(dict + 40, world.alloc(64));
                values(world.get(dict + 40));
                dict
            };
            world.word(object + 16, dict);
        }
        _ if own => {
            let words = if longer == 0 { 3 } else { 1 };
            world.word(object - 8 * words, whole);
        }
        11 => {
            world.word(kind + 872, split);
            let at = world.alloc(64);
            values(at);
            world.word(object - 32, at);
        }
        12 => {
            world.word(kind + 880, split);
            let at = world.alloc(64);
            values(at);
            world.word(object - 24, at - 1);
        }
        _ => {
            world.word(kind + if layout.minor >= 15 { 888 } else { 880 } + longer, split);
            world.word(kind + TYPE_FLAGS + longer, 1 << 2 | 1 << 4);
            world.word(kind + TYPE_SIZE + longer, 16 + longer);
            let at = object + 16 + longer;
            world.put(at, &[3, 3, 1, 1]);
            values(at + 8);
        }
    }
    object
}

/// Gives the program these threads in `threading._active`.
pub fn list(program: &Program, interpreter: u64, threads: &[(u64, u64)]) -> u64 {
    let ints: Vec<_> =
        threads.iter().map(|(pthread, object)| (integer(program, *pthread), *object)).collect();
    let active = dictionary(program, &ints, false);
    let module = program.world.alloc(64);
    let inside = dictionary(
        program,
        &[(program.text("Thread"), 1), (0, 0), (program.text("_active"), active)],
        true,
    );
    program.world.word(module + 16 + longer(&program.layout), inside);
    let mut modules: Vec<_> =
        (0..700).map(|nth| (program.text(&format!("module{nth}")), 7)).collect();
    modules.push((program.text("threading"), module));
    let modules = dictionary(program, &modules, true);
    program.world.word(interpreter + program.layout.interpreter.modules, modules);
    active
}
