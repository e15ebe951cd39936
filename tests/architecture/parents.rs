//! Circles among the files of a folder that pass through its mod.rs: a file names `super::Name`,
//! and mod.rs has `Name` from another file. That a file uses what its mod.rs defines itself, while
//! mod.rs uses the file, is normal and no circle here.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{SourceFile, expand, related, source, tokens};

/// Files that use each other, with the reason.
const MAY_BE_CIRCLES: &[(&[&str], &str)] = &[];

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns for each file the other files that it uses, except its parents and children.
fn uses_of_files(files: &[SourceFile]) -> Graph {
    let known: BTreeSet<String> = files.iter().map(|file| file.place.join("::")).collect();
    // The longest part of a path that is a file, and its length.
    let file_of = |path: &[String]| {
        let file = |n: usize| Some((path[..n].join("::"), n)).filter(|(f, _)| known.contains(f));
        (1..=path.len()).rev().find_map(file)
    };
    // What each file takes from others, by name.
    let mut taken: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for file in files {
        let here = file.place.join("::");
        for path in file.uses().into_iter().chain(uses_of_children(file, &known)) {
            if let (Some((from, _)), Some(name)) = (file_of(&path), path.last())
                && from != here
            {
                taken.entry(here.clone()).or_default().insert(name.clone(), from);
            }
        }
    }
    let mut graph = Graph::new();
    for file in files {
        let here = file.place.join("::");
        let mut targets = BTreeSet::new();
        for path in file.uses() {
            let Some((target, n)) = file_of(&path) else { continue };
            if !here.starts_with(&format!("{target}::")) {
                targets.insert(target);
                continue;
            }
            let taken = taken.get(&target).into_iter().flatten();
            match path.get(n).map(String::as_str) {
                // Those whose names appear.
                Some("*") => targets.extend(
                    taken
                        .filter(|(name, _)| file.tokens.contains(name))
                        .map(|(_, from)| from.clone()),
                ),
                Some(word) => {
                    targets.extend(taken.filter(|(name, _)| *name == word).map(|(_, f)| f.clone()))
                }
                None => {}
            }
        }
        targets.retain(|target| !related(target, &here));
        graph.insert(here, targets);
    }
    graph
}

/// Returns the paths of `use child::Name`, where `child` is a file.
fn uses_of_children(file: &SourceFile, known: &BTreeSet<String>) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (at, pair) in file.tokens.windows(2).enumerate() {
        let child = || format!("{}::{}", file.place.join("::"), pair[1]);
        if pair[0] == "use" && known.contains(&child()) {
            expand(&file.tokens, at + 1, &mut file.place.clone(), &mut paths);
        }
    }
    paths
}

/// Returns the sets of files that reach each other, sorted.
fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let (mut found, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            open.extend(
                graph.get(at).into_iter().flatten().filter(|to| found.insert((*to).clone())),
            );
        }
        found
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|file| (file, reach(file))).collect();
    let circle = |file: &&String| -> Vec<String> {
        let back = |other: &&String| reached.get(*other).is_some_and(|r| r.contains(*file));
        reached[*file].iter().filter(back).cloned().collect()
    };
    let found: BTreeSet<Vec<String>> =
        graph.keys().collect::<Vec<_>>().iter().map(circle).collect();
    found.into_iter().filter(|files| files.len() > 1).collect()
}

/// Returns the files without their unit tests, which may use everything.
fn shipped(files: Vec<SourceFile>) -> Vec<SourceFile> {
    let plain = |file: SourceFile| SourceFile { tokens: file.shipped().to_vec(), ..file };
    files
        .into_iter()
        .filter(|file| !file.place.iter().any(|part| part == "tests"))
        .map(plain)
        .collect()
}

#[test]
fn files_of_a_folder_do_not_use_each_other_through_their_parent() {
    let graph = uses_of_files(&shipped(source()));
    // Its `super::Totals` is another file's.
    assert!(graph["model::projection::confidence"].contains("model::projection::totals"));
    let found = circles(&graph);
    let unknown: Vec<_> =
        found.iter().filter(|c| !MAY_BE_CIRCLES.iter().any(|(a, _)| a == c)).collect();
    assert!(unknown.is_empty(), "files that use each other, and no permission: {unknown:#?}");
    for (files, reason) in MAY_BE_CIRCLES {
        assert!(found.iter().any(|c| c == files), "a permission without use: {files:?}: {reason}");
    }
}

#[test]
fn a_circle_through_a_parent_is_seen() {
    let file = |place: &str, text: &str| SourceFile {
        path: String::new(),
        place: place.split("::").map(str::to_owned).collect(),
        tokens: tokens(text),
    };
    let files = |ring: &str| {
        let parent = "pub use crate::a::ring::Ring; pub use disc::{Disc}; pub struct Own;";
        vec![
            file("a", parent),
            file("a::ring", ring),
            file("a::disc", "use super::*; use super::Own; fn f(_: Ring, _: Own) {}"),
        ]
    };
    let found = |ring: &str| circles(&uses_of_files(&files(ring)));
    assert_eq!(found("use super::Disc;"), [["a::disc", "a::ring"]]);
    assert_eq!(found("fn f() { super::disc::f() }"), [["a::disc", "a::ring"]]);
    // What the parent defines itself.
    assert_eq!(found("use super::Own;"), Vec::<Vec<String>>::new());
    assert_eq!(found("use super::*; fn f(_: Own) {}"), Vec::<Vec<String>>::new());
}
