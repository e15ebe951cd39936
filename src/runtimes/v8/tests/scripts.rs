//! Texts of scripts that are not on the heap, and those that cannot be read.

use super::*;

/// Returns the line of `told` in a script whose text is this string.
fn line(v8: &mut V8<&World>, program: &Program) -> String {
    let Program { told, bytecode, ref layout, .. } = *program;
    let saved = small(layout.bytecode_data);
    let (name, left) = leave(v8, 0, TRAMPOLINE, None, stack(told, bytecode, saved));
    assert_eq!(left, CALLER);
    name.split(' ').nth(2).unwrap_or(&name).to_owned()
}

/// Gives the script of `told` a text outside of the heap. `kind`: the type of the string.
fn outside(program: &Program, kind: u16) {
    let Program { told, ref world, ref layout, .. } = *program;
    let word = |object: u64, at: u64| (&world).read_u64(object - 1 + at).expect("there");
    let script = word(word(told, layout.shared), layout.script);
    let text = world.object(&packed(SOURCE.as_bytes())) - 1;
    let length = (SOURCE.len() as u64) << 32;
    // A resource has a table of functions, the text and its length.
    let resource = world.object(&[0x77, 0, text, SOURCE.len() as u64]) - 1;
    let string = world.object(&[world.map(kind), length, resource, text]);
    world.set(script, layout.script_source, string);
}

#[test]
fn a_text_outside_of_the_heap_has_lines() {
    for version in VERSIONS {
        let program = program(version);
        outside(&program, 8 | 2);
        assert_eq!(line(&mut reader(&program), &program), "b.js:2", "{version:?}");
    }
}

/// A script that cannot be read is not tried for ever.
#[test]
fn a_text_that_cannot_be_read_costs_little() {
    for version in VERSIONS {
        let program = program(version);
        outside(&program, 8 | 2 | 16);
        let mut v8 = reader(&program);
        let mut reads = || {
            program.world.reads.set(0);
            assert_eq!(line(&mut v8, &program), "b.js:0", "{version:?}");
            program.world.reads.get()
        };
        let all: Vec<u32> = (0..12).map(|_| reads()).collect();
        assert!(all[11] < all[0], "{all:?}");
        // Its frame is remembered.
        assert_eq!(v8.functions.frame_count(), 1);
    }
}

/// Columns begin behind the end of the line before: the source map has a line for each of them.
#[test]
fn a_place_in_a_script_has_its_column() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.js").display().to_string();
    std::fs::write(&path, SOURCE).expect("written");
    let map = r#"{"version":3,"sources":["a.ts"],"mappings":";CAGA,CACA,CACA"}"#;
    std::fs::write(format!("{path}.map"), map).expect("written");
    for version in VERSIONS {
        let program = program(version);
        let Program { told, bytecode, ref world, ref layout, .. } = program;
        let word = |object: u64, at: u64| (&world).read_u64(object - 1 + at).expect("there");
        let script = word(word(told, layout.shared), layout.script);
        world.set(script, layout.script_name, world.string(&path));
        let mut v8 = reader(&program);
        v8.names = Names::new(true);
        v8.functions = Functions::new(std::process::id());
        let saved = small(layout.bytecode_data);
        let mut name = || leave(&mut v8, 0, TRAMPOLINE, None, stack(told, bytecode, saved)).0;
        name();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        // Character 11 is the third one of the second line.
        while !name().contains("a.ts:5") {
            assert!(std::time::Instant::now() < limit, "{}", name());
            std::thread::yield_now();
        }
    }
}
