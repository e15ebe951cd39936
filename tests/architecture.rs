//! Checks ARCHITECTURE.md's rules on modules against the source: which module may use which, which
//! external crates a module may use, and how long a file may be. It reads the paths in every file
//! under src/, in `use` lines and elsewhere. (The compiler checks where `unsafe` may stand:
//! src/lib.rs denies it.)

#[path = "architecture/parents.rs"]
mod parents;
#[path = "architecture/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use source::{cycle, node, related, rust_files, source};

/// Permitted uses between modules. Besides these, every module may use [`ANYONE`]; any other use is
/// forbidden. A longer path permits that part of a module only. `capture::event_ring` counts as a
/// module of its own, because both of its ends use it.
const MAY_USE: &[(&str, &[&str])] = &[
    ("main", &["cli", "commands"]),
    (
        "commands",
        &[
            "demo",
            "doctor",
            "formats",
            "model",
            "process::fatal_signals",
            "process::privileges",
            "push",
            "session",
            "sinks",
        ],
    ),
    ("cli", &["config_file", "model", "sinks::file"]),
    ("config", &["model"]),
    ("config_file", &["model", "sinks::file"]),
    // The only module that uses both sides of the ring.
    (
        "session",
        &[
            "app",
            "capture",
            "clock",
            "config_file",
            "demo",
            "elf",
            "formats",
            "model",
            "process",
            "reducer",
            "runtimes::cpython",
            "runtimes::frame_and_thread_names",
            "runtimes::go",
            "sinks",
            "symbols",
            "tui",
        ],
    ),
    // It transfers bytes, and handles files as exports do.
    ("push", &["sinks::file"]),
    // Tries the same system calls as the sampler.
    ("doctor", &["capture", "process"]),
    ("tui", &["app", "model"]),
    ("app", &["model"]),
    ("formats", &["model"]),
    ("sinks", &[]),
    (
        "reducer",
        &["clock", "capture::event_ring", "symbols", "runtimes::frame_and_thread_names", "model"],
    ),
    ("demo", &["clock", "process"]),
    ("capture", &["clock", "capture::event_ring", "unwinder", "runtimes", "process"]),
    ("capture::event_ring", &[]),
    // Go's function table supplies names to `symbols`, and describes frames to `unwinder`.
    (
        "symbols",
        &[
            "clock",
            "elf",
            "process",
            "model::facts::tables",
            "model::vocabulary::go_functions",
            "pclntab",
        ],
    ),
    ("unwinder", &["clock", "elf", "process", "pclntab"]),
    // Pure: it parses bytes.
    ("pclntab", &["model::vocabulary::go_functions"]),
    // A runtime provides frames to the unwinder, which knows it as `Generated` only.
    (
        "runtimes",
        &[
            "clock",
            "elf",
            "pclntab",
            "unwinder",
            "process",
            "model::facts::tables",
            "model::facts::goroutines",
            "model::vocabulary::anonymous",
            "model::vocabulary::go_functions",
            "model::facts::tasks",
            "model::vocabulary::java_launch",
            "model::vocabulary::java_packages",
            "model::vocabulary::labels",
            "model::vocabulary::state",
        ],
    ),
    // What a call waits for is decided in one place; `process` only resolves its arguments.
    (
        "process",
        &[
            "clock",
            "model::projection::waits",
            "model::vocabulary::host_load",
            "model::vocabulary::wakeup",
        ],
    ),
    // Pure: it uses no other module.
    ("model", &[]),
    ("clock", &[]),
    // Pure: it parses bytes.
    ("elf", &[]),
    ("exit_code", &[]),
];

/// The vocabulary of a stack, the cleaning of foreign text, the settings, the exit codes, and the
/// reports of unit tests that cannot run: every module may use them.
const ANYONE: &[&str] = &[
    "model::vocabulary::blocker",
    "model::vocabulary::event",
    "model::vocabulary::frame",
    "model::vocabulary::role",
    "model::vocabulary::text",
    "config",
    "exit_code",
    "skip",
];

/// The pure part may not use these either.
const PURE: &str = "model";

/// Modules that may use an external crate, besides [`EVERYWHERE`].
const CRATES: &[(&str, &[&str])] = &[
    ("aya", &["capture", "process"]),
    ("aya_obj", &["capture"]),
    ("base64", &["push", "runtimes", "tui"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("cpp_demangle", &["symbols"]),
    ("crossterm", &["tui"]),
    ("flate2", &["formats", "runtimes"]),
    ("framehop", &["unwinder"]),
    ("gimli", &["symbols", "unwinder"]),
    ("humantime", &["app", "cli", "config_file"]),
    ("iced_x86", &["symbols"]),
    ("inferno", &["formats"]),
    ("jiff", &["app", "formats", "push", "session", "sinks", "tui"]),
    ("libc", &["capture", "clock", "doctor", "process", "runtimes", "session", "sinks", "tui"]),
    ("object", &["elf"]),
    ("percent_encoding", &["push"]),
    ("perf_event_open_sys", &["capture"]),
    ("prost", &["formats"]),
    ("ratatui", &["tui"]),
    ("remoteprocess", &["process"]),
    ("rawzip", &["runtimes"]),
    ("ringbuf", &["capture::event_ring"]),
    ("rustc_demangle", &["symbols"]),
    (
        "rustix",
        &[
            "capture",
            "clock",
            "config_file",
            "demo",
            "doctor",
            "process",
            "push",
            "runtimes",
            "session",
            "sinks",
            "symbols",
            "tui",
        ],
    ),
    ("rustls", &["push"]),
    ("rustls_native_certs", &["push"]),
    ("sd_notify", &["session"]),
    ("serde", &["formats", "runtimes"]),
    ("serde_json", &["commands", "demo", "doctor", "formats", "runtimes"]),
    ("signal_hook", &["session"]),
    ("siphasher", &["model", "push"]),
    ("strsim", &["cli"]),
    ("toml_edit", &["config_file"]),
    ("tui_input", &["app"]),
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
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
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
    let lines = |path: &Path| fs::read_to_string(path).expect("text").lines().count();
    let long = |path: &PathBuf| lines(path) > LINES_CAP;
    let name =
        |path: PathBuf| path.strip_prefix(root()).expect("below the root").display().to_string();
    let found: Vec<String> = all_rust_files().filter(long).map(name).collect();
    compare(&format!("more than {LINES_CAP} lines"), &found, MAY_BE_LONG);
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files of the program, its tests, benches and fuzz targets.
fn all_rust_files() -> impl Iterator<Item = PathBuf> {
    ["src", "tests", "benches", "fuzz/src", "fuzz/fuzz_targets", "fuzz/examples"]
        .into_iter()
        .flat_map(|folder| rust_files(&root().join(folder)))
}

/// Maximum columns of a comment, as of code (rustfmt.toml). Tables in comments may be wider.
const COLUMNS_MAX: usize = 100;

/// Words that hide which thread, process or quantity is meant.
const FORBIDDEN: [&str; 7] =
    ["so many", "so long", "nobody", "somebody", "everybody", "told of", "tells of"];

#[test]
fn comments_are_plain_and_wrapped() {
    let mut wrong = Vec::new();
    for path in all_rust_files() {
        let text = fs::read_to_string(&path).expect("a source file is text");
        for (number, line) in text.lines().enumerate() {
            if path.starts_with(root().join("src")) {
                wrong.extend(
                    forbidden(line).map(|w| format!("{}:{}: {w}", path.display(), number + 1)),
                );
            }
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
