//! The command line of a bench: words, and options that several benches have.

use std::path::{Path, PathBuf};

/// A build of sampletop that is measured.
#[derive(Clone)]
pub struct Program {
    pub path: PathBuf,
    /// What tables call it: its path if there are several, else nothing.
    pub label: String,
}

pub struct Arguments {
    pub words: Vec<String>,
    /// All are measured in turn, so that they meet the same machine.
    pub programs: Vec<Program>,
}

impl Arguments {
    /// Reads the words of the command line, and `--program PATH` as often as it is given.
    pub fn read() -> Arguments {
        let (mut words, mut paths) = (Vec::new(), Vec::new());
        let mut given = std::env::args().skip(1);
        while let Some(word) = given.next() {
            match word.as_str() {
                "--program" => paths.push(given.next().expect("--program needs a PATH").into()),
                _ => words.push(word),
            }
        }
        if paths.is_empty() {
            paths.push(built());
        }
        let several = paths.len() > 1;
        let label =
            |path: &Path| if several { format!(" {}", path.display()) } else { String::new() };
        // Absolute: a terminal would look for another one in PATH.
        let programs: Vec<Program> = (paths.into_iter())
            .map(|path| Program {
                label: label(&path),
                path: path.canonicalize().unwrap_or_else(|_| {
                    panic!("{} is not there: cargo build --release", path.display())
                }),
            })
            .collect();
        Arguments { words, programs }
    }

    /// Takes the first word that is a number.
    pub fn take_number(&mut self) -> Option<usize> {
        let at = self.words.iter().position(|word| word.parse::<usize>().is_ok())?;
        self.words.remove(at).parse().ok()
    }

    /// Takes the words that are in the list.
    pub fn take<'a>(&mut self, known: &[&'a str]) -> Vec<&'a str> {
        let is_given = |name: &&&str| self.words.iter().any(|word| word == **name);
        let taken: Vec<&str> = known.iter().filter(is_given).copied().collect();
        self.words.retain(|word| !taken.contains(&word.as_str()));
        taken
    }
}

/// Returns sampletop, built beside this bench: `target/release/examples/cost` measures
/// `target/release/sampletop`.
fn built() -> PathBuf {
    let this = std::env::current_exe().expect("a path");
    this.ancestors().nth(2).expect("a folder of examples").join("sampletop")
}
