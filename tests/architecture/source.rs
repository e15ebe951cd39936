//! Reads Rust source: the paths that a file uses, and circles among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// One file of src/.
pub struct SourceFile {
    /// From the package's root.
    pub path: String,
    /// Its module path: `["capture", "event_ring"]`.
    pub place: Vec<String>,
    pub tokens: Vec<String>,
}

impl SourceFile {
    /// Returns its node in the table, and whether it is a module's own file (`x.rs` or `x/mod.rs`).
    pub fn module(&self) -> (String, bool) {
        (node(&self.place), self.place.len() == 1)
    }

    /// Returns the tokens without the unit tests at its end.
    pub fn shipped(&self) -> &[String] {
        let tests = ["#", "[", "cfg", "(", "test", ")", "]", "mod"];
        // `mod tests;` names a file, and shipped code may follow it.
        let inline = |at: &usize| self.tokens.get(at + tests.len() + 1).is_some_and(|t| t == "{");
        let starts = self.tokens.windows(tests.len()).enumerate();
        let mut starts = starts.filter(|(_, w)| w.iter().eq(tests.iter())).map(|(at, _)| at);
        let end = starts.find(inline);
        &self.tokens[..end.unwrap_or(self.tokens.len())]
    }

    /// Returns the external crates that it names in paths.
    pub fn crates(&self, names: &BTreeSet<String>) -> BTreeSet<String> {
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
    pub fn uses(&self) -> Vec<Vec<String>> {
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
pub fn expand(
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

pub fn node(path: &[String]) -> String {
    match path {
        [a, b, ..] if a == "capture" && b == "event_ring" => "capture::event_ring".to_owned(),
        [a, ..] => a.clone(),
        [] => String::new(),
    }
}

/// Returns whether one is the other, or contains it.
pub fn related(a: &str, b: &str) -> bool {
    a.starts_with(&format!("{b}::")) || b.starts_with(&format!("{a}::"))
}

pub fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    pub fn visit(
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
pub fn source() -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = rust_files(&root.join("src"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file is text");
        let path = path.strip_prefix(root).expect("below the root");
        let place = path.strip_prefix("src").expect("in src").with_extension("");
        let mut place: Vec<String> =
            place.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        place.pop_if(|last| last == "mod");
        SourceFile { path: path.display().to_string(), place, tokens: tokens(&text) }
    };
    found.into_iter().map(read).filter(|file| file.place != ["lib"]).collect()
}

/// The Rust files below a folder, sorted.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    pub fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
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
pub fn tokens(text: &str) -> Vec<String> {
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
    let file = SourceFile { path: String::new(), place, tokens: tokens(text) };
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
