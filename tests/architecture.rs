//! Checks ARCHITECTURE.md's rules on modules against the source: which module may use which, which
//! external crates a module may use, and how long a file may be. It reads the paths in every file
//! under src/, in `use` lines and elsewhere. (The compiler checks where `unsafe` may stand:
//! src/lib.rs denies it.)

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Permitted uses between modules. Besides these, every module may use [`ANYONE`]; any other use is
/// forbidden. A longer path permits that part of a module only. `capture::ring` counts as a module
/// of its own, because both of its ends use it.
const MAY_USE: &[(&str, &[&str])] = &[
    ("main", &["cli", "session", "demo"]),
    ("cli", &["model"]),
    ("config", &["model"]),
    // The only module that uses both sides of the ring.
    (
        "session",
        &[
            "app",
            "capture",
            "demo",
            "doctor",
            "formats",
            "headless",
            "model",
            "process",
            "reducer",
            "runtimes::names",
            "sinks",
            "symbols",
            "tui",
        ],
    ),
    ("headless", &["formats", "sinks", "model", "push"]),
    // It transfers bytes, and handles files as exports do.
    ("push", &["sinks::file"]),
    // Tries the same system calls as the sampler.
    ("doctor", &["capture", "process"]),
    ("tui", &["app", "model"]),
    ("app", &["model"]),
    ("formats", &["model"]),
    ("sinks", &[]),
    ("reducer", &["capture::ring", "symbols", "runtimes::names", "model"]),
    ("demo", &["process"]),
    ("capture", &["capture::ring", "unwinder", "runtimes", "process"]),
    ("capture::ring", &[]),
    // Go's function table supplies names to `symbols`, and describes frames to `unwinder`.
    ("symbols", &["process", "model::facts::tables", "pclntab"]),
    ("unwinder", &["process", "pclntab"]),
    // Pure: it parses bytes.
    ("pclntab", &[]),
    // A runtime provides frames to the unwinder, which knows it as `Generated` only.
    ("runtimes", &["unwinder", "process", "model::facts::tables"]),
    // What a call waits for is decided in one place; `process` only resolves its arguments.
    ("process", &["model::projection::waits"]),
    // Pure: it uses no other module.
    ("model", &[]),
];

/// The vocabulary of a stack, the cleaning of foreign text, and the settings: every module may use
/// them.
const ANYONE: &[&str] = &["model::vocabulary::frame", "model::vocabulary::text", "config"];

/// The pure part may not use these either.
const PURE: &str = "model";

/// Modules that may use an external crate, besides [`EVERYWHERE`].
const CRATES: &[(&str, &[&str])] = &[
    ("aya", &["capture"]),
    ("aya_obj", &["capture"]),
    ("base64", &["push", "tui"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("cpp_demangle", &["symbols"]),
    ("crossterm", &["tui"]),
    ("flate2", &["formats"]),
    ("framehop", &["unwinder"]),
    ("gimli", &["symbols", "unwinder"]),
    ("humantime", &["app", "cli", "tui"]),
    ("inferno", &["formats"]),
    ("jiff", &["formats", "push", "sinks", "tui"]),
    ("libc", &["capture", "demo", "doctor", "process", "runtimes", "session", "sinks", "tui"]),
    ("object", &["symbols"]),
    ("percent_encoding", &["push"]),
    ("perf_event_open_sys", &["capture"]),
    ("prost", &["formats"]),
    ("ratatui", &["tui"]),
    ("remoteprocess", &["process"]),
    ("ringbuf", &["capture::ring"]),
    ("rustc_demangle", &["symbols"]),
    (
        "rustix",
        &[
            "capture", "demo", "doctor", "process", "push", "reducer", "runtimes", "session",
            "sinks", "symbols", "tui",
        ],
    ),
    ("rustls", &["push"]),
    ("rustls_native_certs", &["push"]),
    ("sd_notify", &["session"]),
    ("serde", &["formats"]),
    ("serde_json", &["demo", "doctor", "formats", "headless"]),
    ("signal_hook", &["session"]),
    ("siphasher", &["model", "push"]),
    ("strsim", &["cli"]),
    ("unicode_segmentation", &["app", "tui"]),
    ("unicode_width", &["tui"]),
    ("unwind", &["unwinder"]),
    // `cli` parses an address with it, and does not connect.
    ("ureq", &["cli", "push"]),
];

/// Without input and output: tables' hashes, patterns.
const EVERYWHERE: &[&str] = &["regex", "rustc_hash"];

/// Crates for tests only.
const OF_TESTS: &[&str] = &["insta", "proptest", "rcgen", "tempfile", "vt100"];

/// Maximum length of a file, lines: 600, and some room for the formatter's line breaks.
const LINES_CAP: usize = 660;

/// Longer files, each with the reason why it is one unit.
const MAY_BE_LONG: &[(&str, &str)] = &[];

#[test]
fn modules_use_only_what_is_below_them() {
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> =
        MAY_USE.iter().flat_map(|(from, below)| below.iter().map(|to| (*from, *to))).collect();
    for file in source() {
        let (from, _) = file.module();
        let Some((_, below)) = MAY_USE.iter().find(|(name, _)| *name == from) else {
            wrong.push(format!("{}: the module `{from}` is not in the table", file.path));
            continue;
        };
        for used in file.uses() {
            let to = node(&used);
            let word = used.join("::");
            let within = |place: &&str| word == **place || word.starts_with(&format!("{place}::"));
            let free = from != PURE && ANYONE.iter().any(&within);
            unused.retain(|(user, place)| *user != from || !(within(place) || *place == to));
            if to != from && !free && !below.iter().any(|place| within(place) || *place == to) {
                wrong.push(format!("{}: `{from}` may not use `{word}`", file.path));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "edges that ARCHITECTURE.md does not allow:\n  {}",
        wrong.join("\n  ")
    );
    assert!(unused.is_empty(), "permissions that no file uses: {unused:?}");
}

#[test]
fn external_crates_stay_where_their_work_is() {
    let names = dependencies();
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> =
        CRATES.iter().flat_map(|(name, users)| users.iter().map(|user| (*name, *user))).collect();
    for file in source() {
        let (from, _) = file.module();
        for name in file.crates(&names) {
            let allowed = CRATES
                .iter()
                .any(|(other, users)| *other == name && users.contains(&from.as_str()));
            unused.retain(|(other, user)| *other != name || *user != from);
            if !allowed
                && !EVERYWHERE.contains(&name.as_str())
                && !OF_TESTS.contains(&name.as_str())
            {
                wrong.push(format!("{}: `{from}` may not use the crate `{name}`", file.path));
            }
        }
    }
    assert!(wrong.is_empty(), "crates in other modules than their own:\n  {}", wrong.join("\n  "));
    assert!(unused.is_empty(), "permissions that no file uses: {unused:?}");
    let unknown: Vec<&str> =
        CRATES.iter().map(|(name, _)| *name).filter(|name| !names.contains(*name)).collect();
    assert!(unknown.is_empty(), "no dependencies: {unknown:?}");
}

/// Returns the dependencies in Cargo.toml, by their names in code.
fn dependencies() -> BTreeSet<String> {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .expect("Cargo.toml");
    let mut section = "";
    let mut names = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if matches!(section, "[dependencies]" | "[dev-dependencies]")
            && let Some((name, _)) = line.split_once('=').filter(|(name, _)| !name.starts_with('#'))
        {
            names.insert(name.trim().replace('-', "_"));
        }
    }
    names
}

/// The parts of `model`; each uses only those before it.
const ROOMS: [&str; 4] = ["vocabulary", "facts", "projection", "transform"];

#[test]
fn rooms_of_the_model_use_only_those_before_them() {
    let room = |path: &[String]| {
        ROOMS.iter().position(|room| path.first().is_some_and(|m| m == PURE) && path[1] == *room)
    };
    let mut wrong = Vec::new();
    for file in source().iter().filter(|file| file.place.len() > 1) {
        let Some(from) = room(&file.place) else { continue };
        for used in file.uses().iter().filter(|used| used.len() > 1) {
            if room(used).is_some_and(|to| to > from) {
                wrong.push(format!("{}: uses `{}`", file.path, used.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "rooms that use a later one:\n  {}", wrong.join("\n  "));
}

#[test]
fn no_module_uses_itself_by_a_detour() {
    // Between the modules of the table, and between the files of each module (which meet in its
    // mod.rs).
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let known: BTreeSet<String> = source().iter().map(|file| file.place.join("::")).collect();
    for file in source() {
        let (from, is_top) = file.module();
        for used in file.uses() {
            let to = node(&used);
            if to != from {
                modules.entry(from.clone()).or_default().insert(to);
            }
            // The longest prefix of the path that is a file, not the facade of a whole module.
            let here = file.place.join("::");
            let target = (2..=used.len())
                .rev()
                .map(|n| used[..n].join("::"))
                .find(|path| known.contains(path));
            if let Some(target) =
                target.filter(|target| !is_top && *target != here && !related(target, &here))
            {
                files.entry(here).or_default().insert(target);
            }
        }
    }
    for (what, graph) in [("modules", modules), ("files", files)] {
        if let Some(cycle) = cycle(&graph) {
            panic!("{what} that use each other in a circle: {}", cycle.join(" -> "));
        }
    }
}

#[test]
fn files_have_one_job() {
    let found: Vec<String> =
        source().iter().filter(|f| f.lines > LINES_CAP).map(|f| f.path.clone()).collect();
    compare(&format!("more than {LINES_CAP} lines"), &found, MAY_BE_LONG);
}

/// Maximum columns of a comment, as of code (rustfmt.toml). Tables in comments may be wider.
const COLUMNS_MAX: usize = 100;

/// Words that hide which thread, process or quantity is meant.
const FORBIDDEN: [&str; 7] =
    ["so many", "so long", "nobody", "somebody", "everybody", "told of", "tells of"];

#[test]
fn comments_are_plain_and_wrapped() {
    let mut wrong = Vec::new();
    for path in ["src", "tests", "benches", "fuzz/src", "fuzz/fuzz_targets", "fuzz/examples"]
        .iter()
        .flat_map(|folder| rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)))
    {
        let text = fs::read_to_string(&path).expect("a source file is text");
        for (number, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let table = comment.trim_start_matches(['/', '!']).trim_start().starts_with('|');
            if line.chars().count() > COLUMNS_MAX && !table {
                wrong.push(format!("{}:{}: too long", path.display(), number + 1));
            }
            // What is quoted is a name.
            let plain: String = comment.split('`').step_by(2).collect();
            wrong.extend(
                forbidden(&plain).map(|w| format!("{}:{}: {w}", path.display(), number + 1)),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(forbidden("Nobody knows").collect::<Vec<_>>(), ["nobody"]);
    assert_eq!(forbidden("also longer, so manyfold").count(), 0);
}

/// The forbidden words in a text; whole words only.
fn forbidden(text: &str) -> impl Iterator<Item = &'static str> {
    let text = text.to_lowercase();
    FORBIDDEN.into_iter().filter(move |word| {
        text.match_indices(word).any(|(at, _)| {
            let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            !is_word(text[..at].chars().next_back())
                && !is_word(text[at + word.len()..].chars().next())
        })
    })
}

/// Compares exactly: no entry is missing, and none is unused.
fn compare(what: &str, found: &[String], allowed: &[(&str, &str)]) {
    let unknown: Vec<_> =
        found.iter().filter(|path| !allowed.iter().any(|(a, _)| a == *path)).collect();
    let needless: Vec<_> =
        allowed.iter().filter(|(a, _)| !found.iter().any(|path| path == a)).collect();
    assert!(
        unknown.is_empty(),
        "{what}, and not on the list in tests/architecture.rs: {unknown:?}"
    );
    assert!(needless.is_empty(), "on the list for {what} without need: {needless:?}");
}

/// One file of src/.
struct SourceFile {
    /// From the package's root.
    path: String,
    /// Its module path: `["capture", "ring"]`.
    place: Vec<String>,
    tokens: Vec<String>,
    lines: usize,
}

impl SourceFile {
    /// Returns its node in the table, and whether it is a module's own file (`x.rs` or `x/mod.rs`).
    fn module(&self) -> (String, bool) {
        (node(&self.place), self.place.len() == 1)
    }

    /// Returns the lines without the unit tests at its end.
    fn shipped(&self) -> &[String] {
        let tests = ["#", "[", "cfg", "(", "test", ")", "]", "mod"];
        let end = self.tokens.windows(tests.len()).position(|w| w.iter().eq(tests.iter()));
        &self.tokens[..end.unwrap_or(self.tokens.len())]
    }

    /// Returns the external crates that it names in paths.
    fn crates(&self, names: &BTreeSet<String>) -> BTreeSet<String> {
        let of_path = |at: usize| {
            let word = &self.tokens[at];
            let first = at == 0 || self.tokens[at - 1] != "::";
            let path = self.tokens.get(at + 1).is_some_and(|next| next == "::");
            (first && path && names.contains(word)).then(|| word.clone())
        };
        (0..self.tokens.len()).filter_map(of_path).collect()
    }

    /// Returns every path from the root of the crate that it names, by `crate::`, by the crate's
    /// name, or by `super`.
    fn uses(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            let mut start: Vec<String> = match self.tokens[at].as_str() {
                "crate" => Vec::new(),
                "sampletop" if self.place == ["main"] => Vec::new(),
                "super" if self.tokens.get(at + 1).is_some_and(|t| t == "::") => {
                    let mut ups = 1;
                    while self.tokens.get(at + 2).is_some_and(|t| t == "super") {
                        (at, ups) = (at + 2, ups + 1);
                    }
                    // Inline modules (tests) are one level deeper; that they reach one level less
                    // up does not matter here.
                    if at > self.shipped().len() {
                        ups -= 1;
                    }
                    self.place[..self.place.len().saturating_sub(ups)].to_vec()
                }
                _ => {
                    at += 1;
                    continue;
                }
            };
            if self.tokens.get(at + 1).is_some_and(|t| t == "::") {
                at = expand(&self.tokens, at + 2, &mut start, &mut paths);
            } else {
                at += 1; // `pub(crate)`
            }
        }
        paths.retain(|path| !path.is_empty() && path[0].starts_with(|c: char| c.is_lowercase()));
        paths
    }
}

/// Reads `a::{b, c::d}` from `at` on and adds the paths; returns where it ends.
fn expand(
    tokens: &[String],
    mut at: usize,
    base: &mut Vec<String>,
    paths: &mut Vec<Vec<String>>,
) -> usize {
    let depth = base.len();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|t| t != "}") {
                    at = expand(tokens, at, base, paths);
                    while tokens.get(at).is_some_and(|t| t != "," && t != "}") {
                        at += 1; // `as name`
                    }
                    if tokens.get(at).is_some_and(|t| t == ",") {
                        at += 1;
                    }
                }
                base.truncate(depth);
                return at + 1;
            }
            Some(word) => base.push(word.to_owned()),
            None => break,
        }
        at += 1;
        if tokens.get(at).is_some_and(|t| t == "::") {
            at += 1;
        } else {
            paths.push(base.clone());
            break;
        }
    }
    base.truncate(depth);
    at
}

fn node(path: &[String]) -> String {
    match path {
        [a, b, ..] if a == "capture" && b == "ring" => "capture::ring".to_owned(),
        [a, ..] => a.clone(),
        [] => String::new(),
    }
}

/// Returns whether one is the other, or contains it.
fn related(a: &str, b: &str) -> bool {
    a.starts_with(&format!("{b}::")) || b.starts_with(&format!("{a}::"))
}

fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit(
        at: &str,
        graph: &BTreeMap<String, BTreeSet<String>>,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|p| p == at) {
            path.push(at.to_owned());
            return Some(path[start..].to_vec());
        }
        if !done.contains(at) {
            path.push(at.to_owned());
            for next in graph.get(at).into_iter().flatten() {
                if let Some(found) = visit(next, graph, path, done) {
                    return Some(found);
                }
            }
            path.pop();
            done.insert(at.to_owned());
        }
        None
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| visit(start, graph, &mut Vec::new(), &mut done))
}

/// Returns every file of src/ except lib.rs, which only lists the modules.
fn source() -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = rust_files(&root.join("src"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file is text");
        let path = path.strip_prefix(root).expect("below the root");
        let place = path.strip_prefix("src").expect("in src").with_extension("");
        let mut place: Vec<String> =
            place.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        place.pop_if(|last| last == "mod");
        SourceFile {
            path: path.display().to_string(),
            place,
            tokens: tokens(&text),
            lines: text.lines().count(),
        }
    };
    found.into_iter().map(read).filter(|file| file.place != ["lib"]).collect()
}

/// The Rust files below a folder, sorted.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, &mut found);
    found.sort();
    found
}

/// Returns the words and signs of Rust source, without comments, strings and characters.
fn tokens(text: &str) -> Vec<String> {
    let c: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let mut i = 0;
    while i < c.len() {
        let next = |n: usize| c.get(i + n).copied().unwrap_or('\0');
        if c[i] == '/' && next(1) == '/' {
            while i < c.len() && c[i] != '\n' {
                i += 1;
            }
        } else if c[i] == '/' && next(1) == '*' {
            i += 2;
            while i < c.len() && !(c[i] == '*' && c.get(i + 1) == Some(&'/')) {
                i += 1;
            }
            i += 2;
        } else if c[i] == '"' {
            i += 1;
            while i < c.len() && c[i] != '"' {
                i += if c[i] == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if c[i] == '\'' {
            // A character, or a lifetime.
            if next(1) == '\\' {
                i += 3; // the escaped one may be a quote itself
                while i < c.len() && c[i] != '\'' {
                    i += 1;
                }
                i += 1;
            } else {
                i += if next(2) == '\'' { 3 } else { 1 };
            }
        } else if c[i].is_alphanumeric() || c[i] == '_' {
            let start = i;
            while i < c.len() && (c[i].is_alphanumeric() || c[i] == '_') {
                i += 1;
            }
            let word: String = c[start..i].iter().collect();
            let hashes = c[i..].iter().take_while(|c| **c == '#').count();
            if matches!(word.as_str(), "r" | "br" | "cr") && c.get(i + hashes) == Some(&'"') {
                let end: Vec<char> =
                    std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                i += hashes + 1;
                while i < c.len() && !c[i..].starts_with(&end) {
                    i += 1;
                }
                i += end.len();
            } else {
                out.push(word);
            }
        } else if c[i] == ':' && next(1) == ':' {
            out.push("::".to_owned());
            i += 2;
        } else {
            if !c[i].is_whitespace() {
                out.push(c[i].to_string());
            }
            i += 1;
        }
    }
    out
}

#[test]
fn the_reader_of_source_reads_rust() {
    let text = r##"
        // use crate::comment;
        use crate::model::vocabulary::frame::{Ns, RawFrame};
        use crate::model::vocabulary::text as words;
        use crate::model::projection::settings;
        pub(crate) fn f<'a>(x: &'a str) -> char { let _ = "crate::string \" unsafe"; let _ = r#"crate::"raw""#; '\'' }
        fn g() { crate::process::launch::go(); super::sibling::h() }
        #[cfg(test)]
        mod tests { use super::*; use crate::demo; unsafe {} }
    "##;
    let place = ["tui", "tree"].map(String::from).to_vec();
    let file = SourceFile { path: String::new(), place, tokens: tokens(text), lines: 0 };
    let mut uses: Vec<String> = file.uses().iter().map(|path| path.join("::")).collect();
    uses.sort();
    let expected = [
        "crate::demo",
        "crate::model::projection::settings",
        "crate::model::vocabulary::frame::Ns",
        "crate::model::vocabulary::frame::RawFrame",
        "crate::model::vocabulary::text",
        "crate::process::launch::go",
        "crate::tui::sibling::h",
        "crate::tui::tree::*",
    ];
    assert_eq!(uses, expected.map(|path| path.trim_start_matches("crate::").to_owned()));
    assert!(
        file.tokens.contains(&"unsafe".to_owned())
            && !file.shipped().contains(&"unsafe".to_owned())
    );
    let graph = |edges: &[(&str, &str)]| {
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    };
    assert_eq!(cycle(&graph(&[("a", "b"), ("a", "c"), ("b", "c")])), None);
    assert_eq!(
        cycle(&graph(&[("a", "b"), ("b", "c"), ("c", "b")])).map(|c| c.join(">")),
        Some("b>c>b".to_owned())
    );
}
