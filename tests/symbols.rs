//! Names of compiled programs, with binutils as independent judge, and what hostile files do.

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sampletop::model::frame::{FileId, FrameCode, RawFrame};
use sampletop::model::tables::{FrameKind, Location, Tier};
use sampletop::process::files::{FileKind, Files, MappedFile};
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

/// Names offsets of a file; panics when that takes a minute.
fn name(path: &Path, search: SearchPath, spots: &[(u64, bool)]) -> Vec<Vec<Location>> {
    let files = Files::default();
    let id = files.register(mapped(path)).expect("room");
    let mut symbols = Symbols::with_search_path(files, search);
    let frames: Vec<RawFrame> = spots.iter().map(|(offset, exact)| frame(id, *offset, *exact)).collect();
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

/// Runs a tool and gives what it prints.
fn run(tool: &str, args: &[&str]) -> String {
    let output = Command::new(tool).args(args).output().unwrap_or_else(|e| panic!("{tool} is needed: {e}"));
    assert!(output.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test")
}

/// Address, size and name of each function, by nm.
fn functions(path: &Path, dynamic: bool) -> Vec<(u64, u64, String)> {
    let list = if dynamic { "-D" } else { "-a" };
    run("nm", &[list, "-S", "--defined-only", text(path)])
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [address, size, kind, name] = fields[..] else { return None };
            let number = |text| u64::from_str_radix(text, 16).ok();
            "tTwW".contains(kind).then_some((number(address)?, number(size)?, name.to_owned()))
        })
        .collect()
}

/// File offset minus address of the code segment, by readelf.
fn code_shift(path: &Path) -> u64 {
    let segments = run("readelf", &["-lW", text(path)]);
    let line = segments.lines().find(|l| l.contains("LOAD") && l.contains(" E ")).expect("a code segment");
    let fields: Vec<u64> = line
        .split_whitespace()
        .filter_map(|f| f.strip_prefix("0x"))
        .filter_map(|f| u64::from_str_radix(f, 16).ok())
        .collect();
    fields[0].wrapping_sub(fields[1])
}

fn function(path: &Path, name: &str) -> (u64, u64) {
    let all = functions(path, false);
    let (address, size, _) = all.iter().find(|(.., n)| n == name).unwrap_or_else(|| panic!("{name} in {all:?}"));
    (*address, *size)
}

/// What `addr2line -if` says of addresses: chains of (function, file, line), innermost first.
fn addr2line(path: &Path, addresses: &[u64]) -> Vec<Vec<(String, String, u32)>> {
    let list: Vec<String> = addresses.iter().map(|a| format!("{a:#x}")).collect();
    let mut args = vec!["-aif", "-e", text(path)];
    args.extend(list.iter().map(String::as_str));
    let printed = run("addr2line", &args);
    let mut chains: Vec<Vec<_>> = Vec::new();
    let mut lines = printed.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            chains.push(Vec::new());
            continue;
        }
        let place = lines.next().expect("a place behind each function");
        let place = place.split(" (").next().expect("text");
        let (file, number) = place.rsplit_once(':').expect("file:line");
        chains.last_mut().expect("an address first").push((line.into(), file.into(), number.parse().unwrap_or(0)));
    }
    chains
}

/// Compares every instruction boundary-agnostic address of some functions with addr2line.
fn compare(path: &Path, search: SearchPath, addresses: &[u64], judge: &Path) {
    let shift = code_shift(path);
    let spots: Vec<(u64, bool)> = addresses.iter().map(|a| (a.wrapping_add(shift), true)).collect();
    let ours = name(path, search, &spots);
    for ((address, ours), theirs) in addresses.iter().zip(ours).zip(addr2line(judge, addresses)) {
        let want: Vec<(String, Option<String>, u32)> = theirs
            .into_iter()
            .rev()
            .map(|(f, file, line)| (readable(&f), (file != "??").then_some(file), line))
            .collect();
        let got: Vec<(String, Option<String>, u32)> = ours
            .iter()
            .map(|l| (l.function.to_string(), l.file.as_ref().map(|f| f.to_string()), l.line.unwrap_or(0)))
            .collect();
        assert_eq!(got, want, "at {address:#x} of {}", path.display());
        for (depth, location) in ours.iter().enumerate() {
            assert_eq!(location.tier, (depth > 0).then_some(Tier::Inlined));
            assert_eq!(location.kind, FrameKind::Native);
            assert_eq!(&*location.module, path.file_name().and_then(|n| n.to_str()).expect("a name"));
        }
    }
}

/// What addr2line shows mangled is compared by what c++filt and our own rules make of it elsewhere; C names are as is.
fn readable(name: &str) -> String {
    name.to_owned()
}

fn every_byte(path: &Path, names: &[&str]) -> Vec<u64> {
    names
        .iter()
        .flat_map(|name| {
            let (address, size) = function(path, name);
            address..address + size
        })
        .collect()
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

#[allow(dead_code)]
fn unused(_: &File, _: PathBuf) {}
