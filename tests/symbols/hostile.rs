//! Files that are damaged, malicious, or changed while they are read: every frame still gets a
//! clean name, soon.

use std::fs::OpenOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use sampletop::symbols::{Spot, name_image};

use super::*;

#[path = "elf.rs"]
mod elf;

/// Returns enough places to pass through every source of names: code, stubs, headers, beyond the
/// end.
fn everywhere(len: u64) -> Vec<(u64, bool)> {
    (0..48)
        .map(|n| (n * len / 40, n % 3 != 0))
        .chain([(0, false), (u64::from(u32::MAX), true)])
        .collect()
}

fn assert_clean(named: &[Vec<Location>]) {
    for location in named.iter().flatten() {
        let texts = [Some(&location.function), Some(&location.module), location.file.as_ref()];
        for text in texts.into_iter().flatten() {
            assert!(text.len() <= 4096, "{} bytes", text.len());
            assert!(
                !text.chars().any(|c| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c)),
                "{text:?}"
            );
        }
        assert!(!location.function.is_empty());
    }
}

fn assert_survives(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("room");
    assert_clean(&name(file.path(), nowhere(), &everywhere(bytes.len() as u64)));
}

fn program() -> Vec<u8> {
    let path = common::build(
        "sym_inline.c",
        &format!("victim{:?}", std::thread::current().id()),
        &["-g", "-O2"],
    );
    std::fs::read(path).expect("it was just built")
}

fn assemble(source: &Path, out: &str) -> PathBuf {
    let library =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{out}-{}.so", std::process::id()));
    run("cc", &["-nostdlib", "-shared", text(source), "-o", text(&library)]);
    library
}

#[test]
fn a_million_nested_inlined_functions_end_in_a_short_chain() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/sym_deep.s");
    let library = assemble(&source, "sym_deep");
    let (address, _) = function(&library, "deep");
    let named = name(&library, nowhere(), &[(address.wrapping_add(code_shift(&library)), true)]);
    assert_eq!(&*named[0][0].function, "deep");
    assert!(named[0].len() > 100 && named[0].len() <= 130, "{} levels", named[0].len());
    assert_eq!(named[0].last().and_then(|l| l.line), Some(7));
}

#[test]
fn a_symbol_of_a_megabyte_is_cut_and_one_with_escape_sequences_is_cleaned() {
    let dir = tempfile::tempdir().expect("a directory");
    for (kind, start) in [("plain", "a"), ("cpp", "_ZN"), ("rust", "_R")] {
        let long = format!("{start}{}", "1b".repeat(1 << 19));
        let source = dir.path().join(format!("{kind}.s"));
        let code = format!(
            ".text\n.globl {long}\n.type {long},@function\n{long}: nop\nret\n.size {long},.-{long}\n"
        );
        std::fs::write(&source, code).expect("room");
        let library = assemble(&source, &format!("sym_long_{kind}"));
        let (address, size) = function(&library, &long);
        assert_eq!(size, 2);
        let named =
            name(&library, nowhere(), &[(address.wrapping_add(code_shift(&library)), true)]);
        assert_clean(&named);
        assert!(
            named[0][0].function.starts_with(&long[..1000])
                && named[0][0].function.ends_with("...")
        );
    }

    // In .symtab and .debug_str alike.
    let mut bytes = program();
    let evil = b"o\x1b[2J\xe2\x80\xae";
    let places: Vec<usize> = bytes
        .windows(9)
        .enumerate()
        .filter(|(_, w)| *w == b"outermost")
        .map(|(at, _)| at)
        .collect();
    assert!(places.len() >= 2);
    for at in places {
        bytes[at..at + evil.len()].copy_from_slice(evil);
    }
    let path = common::build("sym_inline.c", "escape", &["-g", "-O2"]);
    let (address, _) = function(&path, "outermost");
    let at = address.wrapping_add(code_shift(&path));
    std::fs::write(&path, bytes).expect("room");
    let named = name(&path, nowhere(), &[(at, true)]);
    assert_clean(&named);
    assert_eq!(&*named[0][0].function, "o[2Jt");
}

#[test]
fn a_name_of_nothing_that_can_be_shown_is_no_name() {
    let mut bytes = program();
    let places: Vec<usize> = bytes
        .windows(9)
        .enumerate()
        .filter(|(_, w)| *w == b"outermost")
        .map(|(at, _)| at)
        .collect();
    assert!(places.len() >= 2);
    for at in places {
        bytes[at..at + 9].fill(1);
    }
    let path = common::build("sym_inline.c", "invisible", &["-g", "-O2"]);
    let (address, _) = function(&path, "outermost");
    let at = address.wrapping_add(code_shift(&path));
    std::fs::write(&path, bytes).expect("room");
    let named = name(&path, nowhere(), &[(at, true)]);
    let module = path.file_name().and_then(|n| n.to_str()).expect("a name");
    assert_eq!(&*named[0][0].function, format!("{module}!fn_{address:x}"));
}

#[test]
fn an_address_at_the_very_end_is_an_address() {
    let mut image = elf::file(&[]);
    // The segment's address, so that byte 0x10 of the file lies at the last one.
    image[80..88].copy_from_slice(&(u64::MAX - 0x10).to_le_bytes());
    let named =
        name_image("x", image, &[Spot { offset: 0x11, exact: false }]).expect("an ELF file");
    assert_eq!(named[0][0].function, format!("x!gap_{:x}", u64::MAX - 0x10));
}

/// The abbreviations are shared as by link-time optimisation: read once per unit, they would take
/// minutes.
#[test]
fn abbreviations_that_all_units_share_are_read_once() {
    const UNITS: u32 = 20_000;
    // 1: a unit with an address range; 2: a function with a name and one. Then many more, of types
    // without attributes.
    let range = [0x11, 0x01, 0x12, 0x06]; // low_pc: addr, high_pc: data4
    let mut abbreviations =
        [&[1, 0x11, 1][..], &range, &[0, 0, 2, 0x2e, 0, 0x03, 0x08], &range, &[0, 0]].concat();
    for code in 3..100_000u32 {
        // ULEB128 of three bytes.
        abbreviations.extend([
            code as u8 | 0x80,
            (code >> 7) as u8 | 0x80,
            (code >> 14) as u8,
            0x24,
            0,
            0,
            0,
        ]);
    }
    abbreviations.push(0);
    let mut info = Vec::new();
    for number in 0..UNITS {
        let address = u64::from(number % 0x4000);
        let range = [&address.to_le_bytes()[..], &1u32.to_le_bytes()].concat();
        // Version 4, abbreviations at 0, addresses of 8 bytes.
        let mut unit = vec![4, 0, 0, 0, 0, 0, 8, 1];
        unit.extend(&range);
        unit.extend([&[2], format!("function_{address}\0").as_bytes(), &range, &[0]].concat());
        info.extend((unit.len() as u32).to_le_bytes());
        info.extend(unit);
    }
    let image = elf::file(&[
        (".debug_info", elf::PROGBITS, &info),
        (".debug_abbrev", elf::PROGBITS, &abbreviations),
    ]);
    let spots = [0, 0x1234, 0x3fff].map(|offset| Spot { offset, exact: true });
    let named = name_image("x", image, &spots).expect("an ELF file");
    let names: Vec<&str> = named.iter().map(|steps| steps[0].function.as_str()).collect();
    assert_eq!(names, ["function_0", "function_4660", "function_16383"]);
}

#[test]
fn files_cut_anywhere_or_made_of_noise_are_survived() {
    let bytes = program();
    for n in 0..60 {
        assert_survives(&bytes[..bytes.len() * n / 60]);
    }
    let mut noise = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |len: usize| -> Vec<u8> {
        (0..len)
            .map(|_| {
                noise = noise
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (noise >> 56) as u8
            })
            .collect()
    };
    for len in [1, 63, 64, 4096, 100_000] {
        assert_survives(&random(len));
        // An ELF header first, noise behind it.
        let mut headed = bytes[..64].to_vec();
        headed.extend(random(len));
        assert_survives(&headed);
    }
}

#[test]
fn sections_of_impossible_size_are_survived() {
    let bytes = program();
    let table = u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes")) as usize;
    let count = usize::from(u16::from_le_bytes([bytes[60], bytes[61]]));
    for section in 1..count {
        // Offset, size, entry size; then type and flags: compressed, and the type without bytes.
        for (field, value) in
            [(24, u64::MAX - 8), (32, u64::MAX), (32, 1 << 40), (56, 1), (8, 0x806), (4, 8)]
        {
            let mut damaged = bytes.clone();
            let at = table + section * 64 + field;
            let len = if field == 4 { 4 } else { 8 };
            damaged[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            assert_survives(&damaged);
        }
    }
    for (field, value) in
        [(40, u64::MAX), (40, 1 << 62), (32, u64::MAX), (54, 0), (58, u64::MAX), (60, u64::MAX)]
    {
        let mut damaged = bytes.clone();
        let len = if field < 48 { 8 } else { 2 };
        damaged[field..field + len].copy_from_slice(&value.to_le_bytes()[..len]);
        assert_survives(&damaged);
    }
}

#[test]
fn mutated_programs_are_survived() {
    let bytes = program();
    let len = bytes.len();
    let mutation = (0..len, prop::collection::vec(any::<u8>(), 1..9));
    let config = Config {
        cases: 200,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    };
    proptest!(config, |(mutations in prop::collection::vec(mutation, 1..24), cut in 0..len * 4)| {
        let mut damaged = bytes.clone();
        for (at, new) in mutations {
            let end = len.min(at + new.len());
            damaged[at..end].copy_from_slice(&new[..end - at]);
        }
        damaged.truncate(cut.max(1));
        assert_survives(&damaged);
    });
}

/// Keeps changing a file while its frames are named repeatedly; every name must be right or an
/// offset.
fn changed_meanwhile(variant: &str, change: impl Fn(&Path, &[u8]) + Send + Sync + 'static) {
    let path = common::build("sym_inline.c", variant, &["-g", "-O2"]);
    let bytes = std::fs::read(&path).expect("it was just built");
    let names = ["outermost", "hidden", "main"];
    let addresses = every_byte(&path, &names);
    let shift = code_shift(&path);
    let spots: Vec<(u64, bool)> = addresses.iter().map(|a| (a.wrapping_add(shift), true)).collect();
    let right = name(&path, nowhere(), &spots);
    let module = path.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
    let change = Arc::new(change);
    let mut given_up = 0;
    for _ in 0..100 {
        std::fs::write(&path, &bytes).expect("room");
        let done = Arc::new(AtomicBool::new(false));
        let changer = std::thread::spawn({
            let (path, bytes, done, change) =
                (path.clone(), bytes.clone(), done.clone(), change.clone());
            move || {
                while !done.load(Ordering::Relaxed) {
                    change(&path, &bytes);
                }
            }
        });
        let named = name(&path, nowhere(), &spots);
        done.store(true, Ordering::Relaxed);
        changer.join().expect("the changing thread ends");
        for (got, right) in named.iter().zip(&right) {
            // `fn_` where the file was read completely except for its end, where the symbols are.
            if got[0].function.starts_with(&format!("{module}!")) {
                given_up += 1;
            } else {
                assert_eq!(got, right);
            }
        }
    }
    assert!(given_up > 0, "the file never changed in time");
}

#[test]
fn a_file_truncated_while_it_is_read_neither_kills_nor_misleads() {
    changed_meanwhile("truncate", |path, bytes| {
        let file = OpenOptions::new().write(true).open(path).expect("opens");
        file.set_len(100).expect("shrinks");
        std::fs::write(path, bytes).expect("room");
    });
}

#[test]
fn a_file_truncated_after_it_was_mapped_is_given_up() {
    let path = common::build("sym_inline.c", "shrunk", &["-g", "-O2"]);
    let (address, _) = function(&path, "outermost");
    let files = Files::default();
    let id = files.register(mapped(&path)).expect("room");
    let mut symbols = Symbols::with_search_path(files, nowhere());
    let at = address.wrapping_add(code_shift(&path));
    let before = frame(id, at, true);
    assert_eq!(&*wait(&mut symbols, &[before])[&before.bits()][0].function, "outermost");
    // Still mapped, and read again by the next request: an unhandled SIGBUS would end the test.
    OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(100)).expect("shrinks");
    let after = frame(id, at + 1, true);
    let module = path.file_name().and_then(|n| n.to_str()).expect("a name");
    assert_eq!(
        &*wait(&mut symbols, &[after])[&after.bits()][0].function,
        format!("{module}!{:#x}", at + 1)
    );
}

#[test]
fn a_library_rewritten_in_place_does_not_lend_its_names_to_old_frames() {
    let path = common::build("sym_inline.c", "rewritten", &["-g", "-O2"]);
    let (address, _) = function(&path, "outermost");
    let files = Files::default();
    let id = files.register(mapped(&path)).expect("room");
    let mut symbols = Symbols::with_search_path(files, nowhere());
    let at = address.wrapping_add(code_shift(&path));
    let before = frame(id, at, true);
    assert_eq!(&*wait(&mut symbols, &[before])[&before.bits()][0].function, "outermost");
    // The same inode, another program.
    let other = common::build("sym_inline.c", "other", &["-O0", "-DOTHER"]);
    std::fs::write(&path, std::fs::read(other).expect("it was just built")).expect("room");
    let after = frame(id, at + 1, true);
    let module = path.file_name().and_then(|n| n.to_str()).expect("a name");
    assert_eq!(
        &*wait(&mut symbols, &[after])[&after.bits()][0].function,
        format!("{module}!{:#x}", at + 1)
    );
    assert!(symbols.damaged() > 0);
}
