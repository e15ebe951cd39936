//! Names of workers, by the scripts that a made-up heap has loaded.

use std::sync::Arc;

use super::super::workers::{Workers, main_script, title};
use super::*;
use crate::process::threads::Stat;

/// A heap of a version, and what r13 is.
struct Isolate {
    program: Program,
    root: u64,
}

/// Roots before the list of scripts.
const BEFORE: u64 = 300;

impl Isolate {
    fn new(version: Version, files: &[&str]) -> Isolate {
        let program = program(version);
        let root = program.world.object(&[0; 400]) - 1;
        let it = Isolate { program, root };
        // Other lists come first.
        let object = it.program.world.object(&[it.map(7), 0, 0, 0]);
        let gone = it.list(&[3, 3, 3]);
        for (nth, other) in
            [0, 9, object, it.list(&[object | 3]), it.list(&[]), gone].into_iter().enumerate()
        {
            it.set_root(nth as u64, other);
        }
        it.load(files);
        it
    }

    fn map(&self, kind: u16) -> u64 {
        self.program.world.map(kind)
    }

    fn set_root(&self, nth: u64, word: u64) {
        self.program.world.set(self.root + 1, 8 * nth, word);
    }

    fn list(&self, elements: &[u64]) -> u64 {
        let kind = kind(self.program.layout.version, "WeakArrayList__WEAK_ARRAY_LIST");
        let head = [self.map(kind), small(100), small(elements.len() as u64)];
        self.program.world.object(&[&head, elements].concat())
    }

    fn load(&self, files: &[&str]) {
        let Program { world, layout, .. } = &self.program;
        let script = |file: &&str| {
            let script = world.object(&[self.map(layout.types.script), 0, 0, 0, 0, 0, 0, 0, 0]);
            if !file.is_empty() {
                world.set(script, layout.script_name, world.string(file));
            }
            // The list does not keep it.
            script | 3
        };
        let mut scripts: Vec<u64> = files.iter().map(script).collect();
        // One was collected.
        scripts.insert(scripts.len().min(1), 3);
        self.set_root(BEFORE, self.list(&scripts));
    }

    fn script(&self, v8: &mut V8<&World>, at: &mut Option<u64>) -> Option<(String, bool)> {
        v8.begin_at(0, Ns::MAX, false);
        main_script(&v8.heap, &v8.layout, &mut v8.functions, self.root, at)
    }
}

#[test]
fn the_first_script_of_the_program_is_a_workers() {
    let own = |file: &str| Some((file.to_owned(), true));
    for version in VERSIONS {
        for (files, expected) in [
            (&["node:internal/worker", "/srv/rank.js", "/srv/lib.js"][..], own("/srv/rank.js")),
            (&["node:fs", "", "file:///srv/a%20b.mjs"], own("/srv/a b.mjs")),
            (&["[worker eval]", "/srv/lib.js"], own("[worker eval]")),
            (&["/srv/node_modules/x/hook.js", "/srv/own.js"], own("/srv/own.js")),
            (
                &["node:fs", "/srv/node_modules/x/a.js", "/srv/node_modules/y/b.js"],
                Some(("/srv/node_modules/x/a.js".into(), false)),
            ),
            (&["node:fs", "node:net"], None),
            (&[], None),
        ] {
            let it = Isolate::new(version, files);
            let (mut v8, mut at) = (reader(&it.program), None);
            assert_eq!(it.script(&mut v8, &mut at), expected, "{version:?} {files:?}");
            assert_eq!(at, Some(8 * BEFORE).filter(|_| !files.is_empty()));
        }
    }
}

#[test]
fn the_list_is_found_where_it_was_before() {
    let it = Isolate::new((13, 6), &["/srv/rank.js"]);
    let (mut v8, mut at) = (reader(&it.program), Some(8 * BEFORE));
    it.program.world.reads.set(0);
    assert_eq!(it.script(&mut v8, &mut at), Some(("/srv/rank.js".into(), true)));
    // Whatever else is among the roots before it.
    let script = it.program.world.object(&[it.map(it.program.layout.types.script), 0, 0, 0]);
    it.set_root(6, it.list(&[script | 3]));
    assert_eq!(it.script(&mut v8, &mut at), Some(("/srv/rank.js".into(), true)));
    assert_eq!(it.script(&mut v8, &mut None), None, "the first one");
    it.set_root(6, 0);
    // Another place than that counts too.
    it.set_root(BEFORE + 1, it.list(&[]));
    let mut wrong = Some(8 * BEFORE + 8);
    assert_eq!(it.script(&mut v8, &mut wrong), Some(("/srv/rank.js".into(), true)));
    assert_eq!(wrong, at);
    // Not one of V8's.
    let nothing = it.program.world.object(&[0; 400]) - 1;
    for root in [0, 8, nothing, u64::MAX - 7] {
        let found = main_script(&v8.heap, &v8.layout, &mut v8.functions, root, &mut at);
        assert_eq!(found, None, "{root:x}");
    }
    // A list with another object in it.
    let other = it.program.world.object(&[it.map(7), 0, 0]);
    let script = it.program.world.object(&[it.map(it.program.layout.types.script), 0, 0, 0]);
    it.set_root(BEFORE, it.list(&[script | 3, other | 3]));
    assert_eq!(it.script(&mut v8, &mut at), None);
}

#[test]
fn a_worker_is_named_by_file_and_folder() {
    for (file, expected) in [
        ("/srv/shop/dist/rank.js", "worker dist/rank.js"),
        ("/srv/rank.js", "worker srv/rank.js"),
        ("/rank.js", "worker /rank.js"),
        ("rank.js", "worker rank.js"),
        ("[worker eval]", "worker eval"),
    ] {
        assert_eq!(title(file), expected);
    }
}

#[test]
fn threads_that_live_and_have_no_name_of_their_own_are_named() {
    let it = Isolate::new((14, 6), &["/srv/node_modules/x/hook.js"]);
    let mut v8 = reader(&it.program);
    let mut workers = Workers::default();
    let mut named = |workers: &mut Workers, threads: &[(u32, &[u8], u64)]| {
        v8.heap.begin(0);
        let V8 { heap, layout, functions, names, .. } = &mut v8;
        let stat = |tid: u32| {
            let (_, name, start) = threads.iter().find(|(it, ..)| *it == tid)?;
            let name = RawName::new(name);
            Some(Stat { name, state: b'S', start: *start, cpu_ticks: 0, processor: 0 })
        };
        let mut found = workers.names(heap, layout, functions, names, &stat);
        found.sort_unstable_by_key(|(tid, _)| *tid);
        found.into_iter().map(|(tid, name)| (tid, v8.names.thread(name))).collect::<Vec<_>>()
    };
    let threads: [(u32, &[u8], u64); 4] =
        [(1, b"WorkerThread", 50), (2, b"node", 51), (3, b"ranker", 52), (4, b"node", 53)];
    assert_eq!(named(&mut workers, &threads), []);
    (1..=3).for_each(|tid| workers.note(tid, it.root));
    let both = |name: &str| [1, 2].map(|tid| (tid, Some(Arc::<str>::from(name))));
    assert_eq!(named(&mut workers, &threads), both("worker x/hook.js"));
    // Until the program has loaded a script of its own.
    it.load(&["/srv/node_modules/x/hook.js", "/srv/own.js"]);
    assert_eq!(named(&mut workers, &threads), both("worker srv/own.js"));
    it.load(&["/srv/other.js"]);
    workers.note(1, it.root + 8);
    assert_eq!(named(&mut workers, &threads), both("worker srv/own.js"), "it has a name");
    // One has ended, and there is another thread with the other's id.
    assert_eq!(named(&mut workers, &[(2, b"node", 60)]), []);
    workers.note(2, it.root);
    let other = [(2, Some(Arc::<str>::from("worker srv/other.js")))];
    assert_eq!(named(&mut workers, &[(2, b"node", 60)]), other);
    // It is not searched for ever.
    let later = it.program.world.object(&[0; 400]) - 1;
    workers.note(4, later);
    (0..8).for_each(|_| assert_eq!(named(&mut workers, &threads), []));
    let list = (&it.program.world).read_u64(it.root + 8 * BEFORE).expect("it is there");
    it.program.world.set(later + 1, 8 * BEFORE, list);
    assert_eq!(named(&mut workers, &threads), []);
    workers.note(4, it.root);
    assert_eq!(named(&mut workers, &threads), [(4, other[0].1.clone())], "of another heap");
}
