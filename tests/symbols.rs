//! Names of compiled programs, compared with binutils, and the effects of hostile files.

mod common;
#[path = "symbols/hostile.rs"]
mod hostile;
#[path = "symbols/instructions.rs"]
mod instructions;
#[path = "symbols/judge.rs"]
mod judge;
#[path = "symbols/worker.rs"]
mod worker;

use judge::*;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sampletop::model::facts::tables::{FrameKind, Location, Tier};
use sampletop::model::vocabulary::frame::{FileId, FrameCode, RawFrame};
use sampletop::process::mapped_files::{FileKind, Files, MappedFile};
use sampletop::symbols::{SearchPath, Symbols};

/// A file as if this process had it mapped: its path and identity are what counts.
fn mapped(path: &Path) -> MappedFile {
    let meta = std::fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    MappedFile {
        kind: FileKind::Regular,
        pid: std::process::id(),
        path: path.to_owned(),
        deleted: false,
        device: (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev())),
        inode: meta.ino(),
        start: 0x1000,
        end: 0x2000,
        offset: 0,
    }
}

fn nowhere() -> SearchPath {
    SearchPath { debug_dirs: Vec::new(), caches: Vec::new() }
}

/// Names offsets of a file; panics if that takes a minute.
fn name(path: &Path, search: SearchPath, spots: &[(u64, bool)]) -> Vec<Vec<Location>> {
    let files = Files::default();
    let id = files.register(mapped(path)).expect("room");
    let mut symbols = Symbols::with_search_path(files, search);
    let frames: Vec<RawFrame> =
        spots.iter().map(|(offset, exact)| frame(id, *offset, *exact)).collect();
    let named = wait(&mut symbols, &frames);
    frames.iter().map(|frame| named[&frame.bits()].clone()).collect()
}

fn frame(file: FileId, offset: u64, exact: bool) -> RawFrame {
    RawFrame::new(FrameCode::Code { file, offset, exact })
}

fn wait(symbols: &mut Symbols, frames: &[RawFrame]) -> BTreeMap<u64, Vec<Location>> {
    symbols.request(frames);
    let (began, mut found) = (Instant::now(), BTreeMap::new());
    while symbols.pending() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "names take longer than a minute");
        for resolved in symbols.take() {
            assert!(!resolved.named.pending && !resolved.named.locations.is_empty());
            found.insert(resolved.frame.bits(), resolved.named.locations.to_vec());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    found
}

#[test]
fn inlined_functions_and_lines_agree_with_addr2line() {
    for flags in [
        &["-g", "-O2"][..],
        &["-g", "-O2", "-gdwarf-4"],
        &["-g", "-O0"],
        &["-g", "-O2", "-no-pie"],
        &["-g", "-O2", "-gz"],
    ] {
        let program = common::build("sym_inline.c", &flags.concat(), flags);
        let addresses = every_byte(&program, &["outermost", "hidden", "main"]);
        compare(&program, nowhere(), &addresses, &program);
    }
}

#[test]
fn a_return_address_is_looked_up_in_the_call() {
    let program = common::build("sym_inline.c", "return", &["-g", "-O2"]);
    let (address, size) = function(&program, "outermost");
    let end = address + size + code_shift(&program);
    let named = name(&program, nowhere(), &[(end, false), (end - 1, true)]);
    assert_eq!(named[0], named[1]);
    assert_eq!(&*named[0][0].function, "outermost");
}

/// Returns all functions of a program whose demangled name contains one of some words, by nm and
/// c++filt.
fn named_like(path: &Path, words: &[&str]) -> Vec<(u64, u64, String)> {
    let mut all = functions(path, false);
    all.iter_mut().for_each(|(.., name)| *name = readable(name));
    all.retain(|(.., name)| words.iter().any(|word| name.contains(word)));
    all
}

#[test]
fn cpp_names_chains_and_lines_agree_with_binutils() {
    let program = common::build("sym_names.cpp", "cpp", &["-g", "-O1"]);
    let all = named_like(&program, &["outer::"]);
    assert!(all.len() >= 8, "{all:?}");
    // What is inlined into `callback` has no linkage name; addr2line then shows the name of the
    // function around it.
    let judged = all.iter().filter(|(.., name)| !name.ends_with("callback"));
    let addresses: Vec<u64> =
        judged.flat_map(|(address, size, _)| *address..address + size).collect();
    compare(&program, nowhere(), &addresses, &program);
    let (address, size, _) =
        all.iter().find(|(.., name)| name == "outer::callback").expect("it is never inlined");
    let spots: Vec<(u64, bool)> =
        (*address..address + size).map(|a| (a.wrapping_add(code_shift(&program)), true)).collect();
    let chains = name(&program, nowhere(), &spots);
    assert!(chains.iter().all(|chain| &*chain[0].function == "outer::callback"));
    let inlined = "outer::(anonymous namespace)::Local::inlined";
    assert!(
        chains.iter().any(|chain| chain.len() == 2 && &*chain[1].function == inlined),
        "{chains:#?}"
    );
    let spots: Vec<(u64, bool)> =
        all.iter().map(|(a, ..)| (a.wrapping_add(code_shift(&program)), true)).collect();
    let mut got: Vec<String> =
        name(&program, nowhere(), &spots).iter().map(|n| n[0].function.to_string()).collect();
    got.sort();
    got.dedup();
    for want in [
        "outer::(anonymous namespace)::anonymous",
        "outer::Box<int>::get",
        "outer::Box<int>::operator bool",
        "outer::Box<int>::operator()",
        "outer::apply<main::{lambda(int)#1}>",
        "outer::apply<void (*)(int)>",
        "outer::callback",
        "outer::tagged",
    ] {
        assert!(got.iter().any(|name| name == want), "{want} in {got:#?}");
    }
}

#[test]
fn rust_names_chains_and_lines_agree_with_binutils() {
    let program = common::build("sym_names.rs", "rust", &["-g", "-O", "-C", "codegen-units=1"]);
    let all = named_like(&program, &["shapes::", "::caller"]);
    assert!(all.len() >= 3, "{all:?}");
    let addresses: Vec<u64> =
        all.iter().flat_map(|(address, size, _)| *address..address + size).collect();
    compare(&program, nowhere(), &addresses, &program);
    let spots: Vec<(u64, bool)> =
        addresses.iter().map(|a| (a.wrapping_add(code_shift(&program)), true)).collect();
    let chains = name(&program, nowhere(), &spots);
    let seen = |want: &str| chains.iter().flatten().any(|l| &*l.function == want);
    assert!(chains.iter().all(|chain| !chain[0].function.contains("17h")));
    assert!(
        seen("<sym_names::shapes::Square<u64> as sym_names::shapes::Area>::area")
            || seen("sym_names::shapes::generic")
    );
    assert!(chains.iter().any(|c| &*c[0].function == "sym_names::caller"
        && c.iter().any(|l| l.function.contains("inlined"))));
}

/// Returns the names of every byte of some functions of `program`, whose own copy of the symbols is
/// `with`.
fn outer_names(
    program: &Path,
    with: &Path,
    search: SearchPath,
    names: &[&str],
) -> Vec<(String, Vec<Location>)> {
    let mut want = Vec::new();
    let mut spots = Vec::new();
    for function_name in names {
        let (address, size) = function(with, function_name);
        for address in address..address + size {
            want.push((*function_name).to_owned());
            spots.push((address.wrapping_add(code_shift(with)), true));
        }
    }
    want.into_iter().zip(name(program, search, &spots)).collect()
}

fn copy_of(path: &Path, suffix: &str) -> PathBuf {
    let copy = PathBuf::from(format!("{}.{suffix}", path.display()));
    std::fs::copy(path, &copy).expect("room for a copy");
    copy
}

#[test]
fn a_symbol_table_without_debug_info_names_functions() {
    let program = common::build("sym_inline.c", "symtab", &["-O2"]);
    for (want, got) in outer_names(&program, &program, nowhere(), &["outermost", "hidden", "main"])
    {
        assert_eq!((&*got[0].function, got.len(), got[0].line), (&*want, 1, None));
    }
}

#[test]
fn a_stripped_program_is_named_by_unwind_entries() {
    let program = common::build("sym_inline.c", "strip", &["-g", "-O2"]);
    let stripped = copy_of(&program, "stripped");
    run("strip", &["-s", text(&stripped)]);
    let module = stripped.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
    for (want, got) in outer_names(&stripped, &program, nowhere(), &["outermost", "hidden", "main"])
    {
        let (start, _) = function(&program, &want);
        assert_eq!(&*got[0].function, format!("{module}!fn_{start:x}"));
    }
    // Code without an unwind entry is a gap, named by its start.
    let (start, size) = function(&program, "outermost");
    let behind = start + size;
    if functions(&program, false).iter().all(|(a, ..)| *a != behind) {
        let named =
            name(&stripped, nowhere(), &[(behind.wrapping_add(code_shift(&program)), true)]);
        assert_eq!(&*named[0][0].function, format!("{module}!gap_{behind:x}"));
    }
}

#[test]
fn a_library_is_named_by_what_it_exports_and_never_by_the_nearest() {
    let library = common::build(
        "sym_library.c",
        "so",
        &["-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-toplevel-reorder"],
    );
    let stripped = copy_of(&library, "stripped");
    run("strip", &["-s", text(&stripped)]);
    let module = stripped.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
    assert!(functions(&stripped, true).iter().any(|(.., name)| name == "exported"));
    assert!(function(&library, "secret").0 > function(&library, "exported").0, "the trap is set");
    for (want, got) in outer_names(&stripped, &library, nowhere(), &["exported", "secret"]) {
        let (start, _) = function(&library, &want);
        let want = if want == "exported" { want } else { format!("{module}!fn_{start:x}") };
        assert_eq!(&*got[0].function, want);
    }
}

#[test]
fn calls_through_stubs_are_named() {
    for flags in [
        &["-O2", "-fno-builtin"][..],
        &["-O2", "-fno-builtin", "-fcf-protection=full", "-Wl,-z,ibtplt"],
        &["-O2", "-fno-builtin", "-no-pie", "-fcf-protection=none", "-Wl,-z,lazy"],
    ] {
        let program = common::build("sym_inline.c", &format!("plt{}", flags.len()), flags);
        let listing =
            run("objdump", &["-d", "--section=.plt", "--section=.plt.sec", text(&program)]);
        let stub = listing.lines().find_map(|line| {
            let (address, name) = line.split_once(" <")?;
            name.starts_with("printf@plt>:")
                .then(|| u64::from_str_radix(address, 16).expect("an address"))
        });
        let stub = stub.unwrap_or_else(|| panic!("no stub for printf in {listing}"));
        let stub = stub.wrapping_add(code_shift(&program));
        for into in 0..16 {
            let named = name(&program, nowhere(), &[(stub + into, true)]);
            assert_eq!(&*named[0][0].function, "printf@plt", "{flags:?} + {into}");
        }
    }
}

#[test]
fn debug_files_are_found_by_link_and_by_build_id() {
    let program = common::build("sym_inline.c", "split", &["-g", "-O2", "-Wl,--build-id=sha1"]);
    let names = ["outermost", "hidden", "main"];
    let addresses = every_byte(&program, &names);
    let root = tempfile::tempdir().expect("a directory");

    // By .gnu_debuglink: beside the program, in .debug, and below the debug directory. No build id,
    // so by checksum.
    for place in ["", ".debug", "lib/debug"] {
        let dir = tempfile::tempdir().expect("a directory");
        let stripped = dir.path().join("program");
        let debug_dir = match place {
            "lib/debug" => root.path().join(dir.path().strip_prefix("/").expect("absolute")),
            place => dir.path().join(place),
        };
        std::fs::create_dir_all(&debug_dir).expect("a directory");
        let debug = debug_dir.join("program.debug");
        run(
            "objcopy",
            &["--only-keep-debug", "-R", ".note.gnu.build-id", text(&program), text(&debug)],
        );
        let link = format!("--add-gnu-debuglink={}", text(&debug));
        run("objcopy", &["-S", "-R", ".note.gnu.build-id", &link, text(&program), text(&stripped)]);
        let search = SearchPath { debug_dirs: vec![root.path().into()], caches: Vec::new() };
        compare(&stripped, search.clone(), &addresses, &program);
        // Another file under that name is rejected.
        run(
            "objcopy",
            &["--only-keep-debug", "--remove-section=.comment", text(&program), text(&debug)],
        );
        let named = outer_names(&stripped, &program, search, &names);
        assert!(named.iter().all(|(_, got)| got[0].function.starts_with("program!fn_")), "{place}");
    }

    // By build id, in a debug directory and in debuginfod's cache.
    let notes = run("readelf", &["-n", text(&program)]);
    let id = notes
        .lines()
        .find_map(|l| l.trim().strip_prefix("Build ID: "))
        .expect("a build id")
        .to_owned();
    let stripped = copy_of(&program, "nodebug");
    run("strip", &["-s", text(&stripped)]);
    let in_dirs = root.path().join(format!(".build-id/{}/{}.debug", &id[..2], &id[2..]));
    let in_cache = root.path().join(format!("cache/{id}/debuginfo"));
    for place in [in_dirs, in_cache] {
        std::fs::create_dir_all(place.parent().expect("a directory")).expect("a directory");
        run("objcopy", &["--only-keep-debug", text(&program), text(&place)]);
        // One of 1 GB: unneeded parts are not read (here it is a sparse file).
        std::fs::OpenOptions::new()
            .write(true)
            .open(&place)
            .and_then(|f| f.set_len(1 << 30))
            .expect("a sparse file");
        let search = SearchPath {
            debug_dirs: vec![root.path().into()],
            caches: vec![root.path().join("cache")],
        };
        compare(&stripped, search, &addresses, &program);
        std::fs::remove_file(place).expect("it was there");
    }
}

/// Returns the name of each address of a range.
fn names_of(path: &Path, addresses: std::ops::Range<u64>) -> Vec<String> {
    let spots: Vec<(u64, bool)> =
        addresses.map(|a| (a.wrapping_add(code_shift(path)), true)).collect();
    name(path, nowhere(), &spots).iter().map(|chain| chain[0].function.to_string()).collect()
}

/// Returns the start of each code symbol, by nm, labels included.
fn places(path: &Path) -> BTreeMap<String, u64> {
    let place = |line: &str| {
        let [address, _, name] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        Some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
    };
    run("nm", &[text(path)]).lines().filter_map(place).collect()
}

#[test]
fn functions_without_a_size_reach_to_the_next_and_gaps_are_one_row() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/sym_unsized.s");
    let dir = tempfile::tempdir().expect("a folder");
    let [library, stripped] = ["unsized.so", "stripped.so"].map(|name| dir.path().join(name));
    run("cc", &["-shared", "-nostdlib", text(&source), "-o", text(&library)]);
    run("strip", &["-s", "-o", text(&stripped), text(&library)]);
    let at = places(&library);
    let end = at["last"] + 2;
    // From each start on: the name in the library with symbols, and in the stripped one.
    let gap = |module: &str, start: u64| format!("{module}!gap_{start:x}");
    let (behind_sized, behind_covered, behind_outer) =
        (at["sized"] + 2, at["covered"] + 3, at["outer"] + 3);
    let whole = [
        (at["sized"], "sized".into()),
        (behind_sized, gap("unsized.so", behind_sized)),
        (at["first"], "first".into()),
        (at["second"], "second".into()),
        (at["untyped"], "untyped".into()),
        (at["untyped_too"], "untyped_too".into()),
        (at["covered"], "covered".into()),
        (behind_covered, gap("unsized.so", behind_covered)),
        (at["outer"], "outer".into()),
        (behind_outer, gap("unsized.so", behind_outer)),
        (at["last"], "last".into()),
    ];
    let without = [
        (at["sized"], "sized".into()),
        (behind_sized, gap("stripped.so", behind_sized)),
        (at["untyped"], "untyped".into()),
        (at["covered"], format!("stripped.so!fn_{:x}", at["covered"])),
        (behind_covered, gap("stripped.so", behind_covered)),
        (at["last"], "last".into()),
    ];
    for (path, expected) in [(&library, &whole[..]), (&stripped, &without[..])] {
        for (address, got) in (at["sized"]..end).zip(names_of(path, at["sized"]..end)) {
            let (_, want) =
                expected.iter().rfind(|(from, _)| *from <= address).expect("one begins there");
            assert_eq!(got, *want, "{address:#x} of {}: {at:x?}", path.display());
        }
    }
}

/// Its memcpy is assembly without a size.
#[test]
fn functions_of_musl_are_one_row_each() {
    let dir = tempfile::tempdir().expect("a folder");
    let [source, program] = ["copies.c", "copies"].map(|name| dir.path().join(name));
    std::fs::write(
        &source,
        "#include <string.h>\nint main(int c, char **v) { memcpy(v[0], v[1], c); return 0; }\n",
    )
    .expect("written");
    let built = Command::new("musl-gcc")
        .args(["-O1", "-fno-builtin", "-static", text(&source), "-o", text(&program)])
        .output();
    if built.as_ref().is_err() {
        return common::skipped(
            "functions_of_musl_are_one_row_each",
            "no musl-gcc (Debian: musl-tools)",
        );
    }
    assert!(built.expect("it was found").status.success());
    let start = places(&program)["memcpy"];
    assert!(
        functions(&program, false).iter().all(|(.., name)| name != "memcpy"),
        "it has a size here"
    );
    // By the disassembler: up to its second return, after the loop for the remaining bytes.
    let code =
        run("objdump", &["-d", "--no-show-raw-insn", "--disassemble=memcpy", text(&program)]);
    let (last, _) = code
        .lines()
        .rfind(|line| line.contains("\tret"))
        .and_then(|l| l.split_once(':'))
        .expect("it returns");
    let last = u64::from_str_radix(last.trim(), 16).expect("an address");
    assert!(last > start + 16, "{code}");
    assert!(names_of(&program, start..last + 1).iter().all(|name| name == "memcpy"));
}

#[test]
fn lambdas_of_different_places_have_different_names() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/sym_lambdas.cpp");
    let dir = tempfile::tempdir().expect("a folder");
    for compiler in ["g++", "clang++"] {
        for flags in [&["-g", "-O2"][..], &["-g", "-O0"], &["-O0"], &["-g", "-O2", "-s"]] {
            let what = format!("{compiler} {flags:?}");
            let program = dir.path().join(what.replace([' ', '"', '[', ']', ','], ""));
            let built =
                Command::new(compiler).args(flags).arg(&source).arg("-o").arg(&program).output();
            let Ok(built) = built else {
                common::skipped(
                    "lambdas_of_different_places_have_different_names",
                    &format!("no {compiler}"),
                );
                continue;
            };
            assert!(built.status.success(), "{what}: {}", String::from_utf8_lossy(&built.stderr));
            // All code, as the compiler decides which functions exist.
            let sections = run("readelf", &["-SW", text(&program)]);
            let line = sections
                .lines()
                .find(|line| line.contains(" .text "))
                .expect("code")
                .replace('[', "");
            let fields: Vec<&str> = line.split_whitespace().skip(1).collect();
            let number =
                |at: usize| u64::from_str_radix(fields[at], 16).expect("hexadecimal digits");
            let (address, size) = (number(2), number(4));
            let spots: Vec<(u64, bool)> = (address..address + size)
                .map(|a| (a.wrapping_add(code_shift(&program)), true))
                .collect();
            let mut called: Vec<String> = Vec::new();
            for chain in name(&program, nowhere(), &spots) {
                called.extend(chain.iter().map(|location| location.function.to_string()));
            }
            called.sort();
            called.dedup();
            let lambdas: Vec<&String> =
                called.iter().filter(|name| name.ends_with("::operator()")).collect();
            assert!(
                called.iter().all(|name| !name.starts_with("{unnamed") && name != "operator()"),
                "{what}: {called:#?}"
            );
            if flags.contains(&"-s") {
                continue;
            }
            // Two in `process`, two in `sell`, and the one that is in no function.
            let of = |function: &str| lambdas.iter().filter(|name| name.contains(function)).count();
            assert_eq!(
                [of("work::process"), of("work::Shop::sell"), lambdas.len()],
                [2, 2, 5],
                "{what}: {called:#?}"
            );
            let local =
                |name: &String| name.starts_with("work::process") && name.ends_with("::Local::run");
            assert_eq!(called.iter().filter(|name| local(name)).count(), 1, "{what}: {called:#?}");
        }
    }
}
