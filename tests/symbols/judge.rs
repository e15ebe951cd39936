//! Binutils' output for a file's functions and lines.

use super::*;

/// Runs a tool and returns its output.
pub fn run(tool: &str, args: &[&str]) -> String {
    let output =
        Command::new(tool).args(args).output().unwrap_or_else(|e| panic!("{tool} is needed: {e}"));
    assert!(
        output.status.success(),
        "{tool} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test")
}

/// Returns address, size and name of each function, by nm.
pub fn functions(path: &Path, dynamic: bool) -> Vec<(u64, u64, String)> {
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

/// Returns file offset minus address of the code segment, by readelf.
pub fn code_shift(path: &Path) -> u64 {
    let segments = run("readelf", &["-lW", text(path)]);
    let line =
        segments.lines().find(|l| l.contains("LOAD") && l.contains(" E ")).expect("a code segment");
    let fields: Vec<u64> = line
        .split_whitespace()
        .filter_map(|f| f.strip_prefix("0x"))
        .filter_map(|f| u64::from_str_radix(f, 16).ok())
        .collect();
    fields[0].wrapping_sub(fields[1])
}

pub fn function(path: &Path, name: &str) -> (u64, u64) {
    let all = functions(path, false);
    let (address, size, _) =
        all.iter().find(|(.., n)| n == name).unwrap_or_else(|| panic!("{name} in {all:?}"));
    (*address, *size)
}

/// Returns the output of `addr2line -if`: chains of (function, file, line), innermost first.
pub fn addr2line(path: &Path, addresses: &[u64]) -> Vec<Vec<(String, String, u32)>> {
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
        chains.last_mut().expect("an address first").push((
            line.into(),
            file.into(),
            number.parse().unwrap_or(0),
        ));
    }
    chains
}

/// Compares every instruction boundary-agnostic address of some functions with addr2line.
pub fn compare(path: &Path, search: SearchPath, addresses: &[u64], judge: &Path) {
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
            .map(|l| {
                (
                    l.function.to_string(),
                    l.file.as_ref().map(|f| f.to_string()),
                    l.line.unwrap_or(0),
                )
            })
            .collect();
        assert_eq!(got, want, "at {address:#x} of {}", path.display());
        for (depth, location) in ours.iter().enumerate() {
            assert_eq!(location.tier, (depth > 0).then_some(Tier::Inlined));
            assert_eq!(location.kind, FrameKind::Native);
            assert_eq!(
                &*location.module,
                path.file_name().and_then(|n| n.to_str()).expect("a name")
            );
        }
    }
}

/// Returns the readable form of a raw name by c++filt: without parameters, and without the ABI tags
/// that it leaves.
pub fn readable(name: &str) -> String {
    if !name.starts_with('_') {
        return name.to_owned();
    }
    let name = run("c++filt", &["-p", name]).trim().replace("[abi:cxx11]", "");
    let name = name.strip_suffix(" const").unwrap_or(&name);
    match name.rsplit_once("::h") {
        Some((front, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            front.to_owned()
        }
        _ => name.to_owned(),
    }
}

pub fn every_byte(path: &Path, names: &[&str]) -> Vec<u64> {
    names
        .iter()
        .flat_map(|name| {
            let (address, size) = function(path, name);
            address..address + size
        })
        .collect()
}
