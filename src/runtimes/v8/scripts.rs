//! Scripts: their files, and where their lines end.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::vocabulary::text::{NAME_CAP, clean};
use crate::process::memory::ReadMemory;
use crate::runtimes::frame_and_thread_names::Names;
use crate::runtimes::source_maps::paths::unescaped;
use crate::runtimes::v8::heap::{Heap, Text, object, small};
use crate::runtimes::v8::layout::{ELEMENTS, Layout};

/// Maximum scripts remembered, and maximum bytes of the ends of their lines.
const SCRIPTS_MAX: usize = 1 << 16;
const LINES_MAX: usize = 64 << 20;
/// Maximum lines of a script.
const LINES_OF_ONE: u32 = 1 << 22;
/// Attempts to read a script's lines, which fail while its source moves.
const FAILURES_MAX: u8 = 8;
/// Maximum characters of a script's name.
const FILE_MAX: u32 = 4096;
/// Bytes of a script's source that are split in one piece.
const CHUNK: u64 = 1 << 20;

/// Where lines end.
#[derive(Clone, Debug)]
enum Lines {
    /// They could not be read so often.
    Unread(u8),
    /// The offset of the last character of each line's end.
    Ends(Arc<[u32]>),
}

/// What is known of a script.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its name and source, as words: another script at this address has others.
    words: [u64; 2],
    /// Path, or what else it is called; `None` for code of `eval`.
    pub file: Option<Arc<str>>,
    /// Added to its lines: code of `vm.Script` may say where it begins.
    first_line: u32,
    lines: Lines,
    /// It was recorded with its length.
    recorded: bool,
}

/// Scripts by address.
#[derive(Default)]
pub struct Scripts {
    known: FxHashMap<u64, Script>,
    size: usize,
}

impl Scripts {
    /// Returns the script at this address, after a check that it is one.
    pub fn get<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        at: u64,
    ) -> Option<&Script> {
        heap.is(layout, at, layout.types.script).then_some(())?;
        let word = |offset: u64| heap.word(at.checked_add(offset)?);
        let words = [word(layout.script_name)?, word(layout.script_source)?];
        if self.known.get(&at).is_none_or(|script| script.words != words) {
            if self.known.len() >= SCRIPTS_MAX {
                self.clear();
            }
            let name = object(words[0]).and_then(|name| heap.string(layout, name, FILE_MAX));
            // The word behind its name.
            let first_line = word(layout.script_name + 8).and_then(small).unwrap_or(0);
            let script = Script {
                words,
                file: name.filter(|name| !name.is_empty()).map(|name| file(&name).into()),
                first_line: u32::try_from(first_line).unwrap_or(0).min(LINES_OF_ONE),
                lines: Lines::Unread(0),
                recorded: false,
            };
            self.known.insert(at, script);
        }
        self.known.get(&at)
    }

    /// Returns the file of a script that was read before. `pid`: the process that runs it.
    pub fn file<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        names: &Names,
        pid: u32,
        at: u64,
    ) -> Option<Arc<str>> {
        let script = self.known.get_mut(&at)?;
        let file = script.file.clone()?;
        if !script.recorded
            && let Some(source) = object(script.words[1])
            && let Some(text) = heap.text(layout, source)
        {
            script.recorded = true;
            names.script(pid, &file, text.length);
        }
        Some(file)
    }

    /// Returns line, from 1 on, and column, from 0 on, of a place in a script that was read before.
    pub fn place<M: ReadMemory>(
        &mut self,
        heap: &Heap<M>,
        layout: &Layout,
        at: u64,
        offset: u32,
    ) -> Option<(u32, u32)> {
        let script = self.known.get(&at)?;
        let ends = match &script.lines {
            Lines::Ends(ends) => ends.clone(),
            Lines::Unread(failures) if *failures >= FAILURES_MAX => return None,
            Lines::Unread(failures) => {
                let (failures, source) = (*failures, object(script.words[1]));
                let read = computed(heap, layout, at)
                    .map(Ok)
                    .or_else(|| source.map(|source| split(heap, layout, source)));
                let ends: Arc<[u32]> = match read.unwrap_or(Err(Unread::Unreadable)) {
                    Ok(ends) => ends.into(),
                    Err(Unread::Later) => return None,
                    Err(Unread::Unreadable) => {
                        self.known.get_mut(&at)?.lines = Lines::Unread(failures + 1);
                        return None;
                    }
                };
                self.size += 4 * ends.len();
                if self.size > LINES_MAX {
                    self.known.values_mut().for_each(|script| script.lines = Lines::Unread(0));
                    self.size = 4 * ends.len();
                }
                self.known.get_mut(&at)?.lines = Lines::Ends(ends.clone());
                ends
            }
        };
        let before = ends.partition_point(|end| *end < offset);
        let begin = before.checked_sub(1).map_or(0, |above| ends[above] + 1);
        Some((self.known.get(&at)?.first_line + before as u32 + 1, offset - begin))
    }

    /// Returns whether a script has lines, or may have them later.
    pub fn may_have_lines(&self, at: u64) -> bool {
        let lines = self.known.get(&at).map(|script| &script.lines);
        !matches!(lines, Some(Lines::Unread(FAILURES_MAX..)))
    }

    fn clear(&mut self) {
        *self = Scripts::default();
    }
}

/// Returns the path in a script's name.
fn file(name: &str) -> String {
    let Some(path) = name.strip_prefix("file://") else {
        return clean(name, NAME_CAP).into_owned();
    };
    clean(&unescaped(path), NAME_CAP).into_owned()
}

/// Returns the ends of lines that V8 has computed.
fn computed<M: ReadMemory>(heap: &Heap<M>, layout: &Layout, script: u64) -> Option<Vec<u32>> {
    let ends = heap.object(script.checked_add(layout.line_ends)?)?;
    let length = heap.array(layout, ends)?;
    if length == 0 || length > LINES_OF_ONE {
        return None;
    }
    let words = heap.large(ends.checked_add(ELEMENTS)?, 8 * u64::from(length))?;
    let ends = words.chunks_exact(8).map(|word| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        u32::try_from(small(word)?).ok()
    });
    ends.collect::<Option<Vec<u32>>>().filter(|ends| ends.is_sorted())
}

/// Why a source could not be split into lines.
enum Unread {
    /// Enough was read for now.
    Later,
    /// It is in pieces, it moves, or is none.
    Unreadable,
}

/// Splits a source into lines.
fn split<M: ReadMemory>(heap: &Heap<M>, layout: &Layout, source: u64) -> Result<Vec<u32>, Unread> {
    let Text { at, length, width } = heap.text(layout, source).ok_or(Unread::Unreadable)?;
    let (mut ends, mut done, whole) = (Vec::new(), 0u64, u64::from(length) * width);
    let mut last = 0u16;
    while done < whole {
        let chunk = CHUNK.min(whole - done);
        if !heap.has_room(chunk) {
            return Err(Unread::Later);
        }
        let bytes = at.checked_add(done).and_then(|at| heap.large(at, chunk));
        let bytes = bytes.ok_or(Unread::Unreadable)?;
        let first = (done / width) as u32;
        done += bytes.len() as u64;
        let mut see = |at: u32, unit: u16| {
            // A carriage return and the line feed behind it are one end.
            match unit {
                0x0a if last == 0x0d => {
                    if let Some(end) = ends.last_mut() {
                        *end = at;
                    }
                }
                0x0a | 0x0d | 0x2028 | 0x2029 => ends.push(at),
                _ => {}
            }
            last = unit;
        };
        match width {
            1 => (first..).zip(&bytes).for_each(|(at, byte)| see(at, u16::from(*byte))),
            _ => (first..)
                .zip(bytes.chunks_exact(2))
                .for_each(|(at, unit)| see(at, u16::from_le_bytes([unit[0], unit[1]]))),
        }
        if ends.len() > LINES_OF_ONE as usize {
            return Err(Unread::Unreadable);
        }
    }
    ends.push(length);
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_path_without_its_scheme() {
        for (name, path) in [
            ("/srv/a.js", "/srv/a.js"),
            ("file:///srv/a%20b.mjs", "/srv/a b.mjs"),
            ("file:///srv/100%.mjs", "/srv/100%.mjs"),
            ("file:///srv/%zz%4", "/srv/%zz%4"),
            ("node:internal/timers", "node:internal/timers"),
            ("/srv/\u{1b}[2J.js", "/srv/[2J.js"),
        ] {
            assert_eq!(file(name), path);
        }
    }
}
