//! The view of one function's source lines or instructions, each with its share of the function's
//! time.

use std::sync::Arc;

use super::code_text::{CodeFile, CodeOf, CodeRead, CodeRequest, Found, Instructions, SourceText};
use super::list::{List, Step};
use super::pane::Pane;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::Metric;
use crate::model::projection::{CodePlace, FunctionKey, FunctionTime, TimeAt, Totals};
use crate::model::vocabulary::frame::FileId;

/// Which text of the function is displayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shown {
    #[default]
    Source,
    Instructions,
}

/// A text that is read by another thread.
#[derive(Clone, Debug, Default)]
pub enum Reading<Text> {
    #[default]
    NotAsked,
    /// By the request of this number.
    Asked(u64),
    Read(Arc<Text>),
    /// Why there is none, in one sentence.
    Failed(String),
}

impl<Text> Reading<Text> {
    pub fn text(&self) -> Option<&Arc<Text>> {
        match self {
            Reading::Read(text) => Some(text),
            _ => None,
        }
    }

    fn is_of(&self, number: u64) -> bool {
        matches!(self, Reading::Asked(asked) if *asked == number)
    }

    fn set(&mut self, found: Result<Arc<Text>, String>) {
        *self = found.map_or_else(Reading::Failed, Reading::Read);
    }
}

/// A row with time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hot {
    pub row: usize,
    pub total: Totals,
    pub own: Totals,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct SourceView {
    /// The function as the row named it; its line is the row's.
    pub function: Option<Arc<Location>>,
    pub shown: Shown,
    /// The user chose which one.
    pub(super) chosen: bool,
    /// The view that it was opened from.
    pub(super) before: Pane,
    pub time: FunctionTime,
    /// The time is that of the function.
    has_time: bool,
    pub source: Reading<SourceText>,
    pub code: Reading<Instructions>,
    /// The source file with the hottest line, once it was asked for.
    pub file: Option<Arc<str>>,
    /// The mapped file with the hottest place.
    pub mapped: Option<FileId>,
    pub list: List,
    /// The cursor was moved: it stays on its row.
    moved: bool,
    /// The rows with time, by row.
    pub hot: Vec<Hot>,
    /// Time of the function that no row has: in other files, or in code that is not displayed.
    pub elsewhere: Totals,
    rows: usize,
    /// The number of the newest request.
    asked: u64,
}

impl SourceView {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the function whose time is wanted.
    pub(super) fn key(&self) -> Option<FunctionKey> {
        self.function.as_ref().map(|function| FunctionKey::of(function))
    }

    /// Begins with another function.
    pub(super) fn begin(&mut self, function: Arc<Location>, before: Pane) {
        let asked = self.asked;
        *self = SourceView { function: Some(function), before, asked, ..SourceView::default() };
    }

    /// Returns the time of a row.
    pub fn hot(&self, row: usize) -> Option<&Hot> {
        let at = self.hot.binary_search_by_key(&row, |hot| hot.row).ok()?;
        Some(&self.hot[at])
    }

    /// Returns the number of a source line, or the address of an instruction.
    pub fn number(&self, row: usize) -> Option<u64> {
        match self.shown {
            Shown::Source if self.source.text().is_some() => Some(row as u64 + 1),
            Shown::Source => self.known_lines().nth(row).map(|(line, _)| u64::from(line)),
            Shown::Instructions => Some(self.code.text()?.list.get(row)?.address),
        }
    }

    pub fn text(&self, row: usize) -> Option<&str> {
        match self.shown {
            Shown::Source => self.source.text()?.lines.get(row).map(String::as_str),
            Shown::Instructions => self.code.text()?.list.get(row).map(|at| at.text.as_str()),
        }
    }

    /// Returns the lines of the file that have time, in order.
    fn known_lines(&self) -> impl Iterator<Item = (u32, (Totals, Totals))> {
        let of_file = |at: &&TimeAt<_>| at_file(at) == self.file.as_ref();
        let lines = self.time.lines.iter().filter(of_file);
        lines.filter_map(|at| Some((at.at.1?, (at.total, at.own))))
    }

    /// Sums up the time of the rows. The cursor stays on its row; until it is moved it is on the
    /// hottest one, which is in the middle.
    pub(super) fn read(&mut self, metric: Metric, height: usize) {
        self.hot = match self.shown {
            Shown::Source => self.hot_lines(),
            Shown::Instructions => self.hot_instructions(),
        };
        self.rows = match self.shown {
            Shown::Source => match self.source.text() {
                Some(text) => text.lines.len(),
                None => self.hot.len(),
            },
            Shown::Instructions => self.code.text().map_or(0, |code| code.list.len()),
        };
        let mut elsewhere = self.time.own;
        let shown = |of: &dyn Fn(&Totals) -> u64| self.hot.iter().map(|hot| of(&hot.own)).sum();
        elsewhere.wall_ns = elsewhere.wall_ns.saturating_sub(shown(&|own| own.wall_ns));
        elsewhere.cpu_ns = elsewhere.cpu_ns.saturating_sub(shown(&|own| own.cpu_ns));
        elsewhere.off_ns = elsewhere.off_ns.saturating_sub(shown(&|own| own.off_ns));
        self.elsewhere = elsewhere;
        if !self.moved {
            self.go_to(self.hottest(metric), height);
        }
        self.list.show(self.rows, height);
    }

    /// Puts the cursor on a row, in the middle of the screen.
    fn go_to(&mut self, row: usize, height: usize) {
        self.list = List { cursor: row, top: row.saturating_sub(height / 2) };
        self.list.show(self.rows, height);
    }

    fn hot_lines(&self) -> Vec<Hot> {
        let hot = |row, (total, own)| Hot { row, total, own };
        match self.source.text() {
            None => {
                let lines = self.known_lines().enumerate();
                lines.map(|(row, (_, time))| hot(row, time)).collect()
            }
            Some(text) => {
                let rows = self.known_lines().filter_map(|(line, time)| {
                    let row = (line as usize).checked_sub(1)?;
                    (row < text.lines.len()).then(|| hot(row, time))
                });
                rows.collect()
            }
        }
    }

    fn hot_instructions(&self) -> Vec<Hot> {
        let (Some(code), Some(file)) = (self.code.text(), self.mapped) else { return Vec::new() };
        let mut hot: Vec<Hot> = Vec::new();
        for at in &self.time.places {
            let Some(CodePlace { file: of, offset }) = at.at else { continue };
            if of != file {
                continue;
            }
            // A call's place is inside its instruction.
            let after = code.list.partition_point(|next| next.offset <= offset);
            let Some(row) = after.checked_sub(1) else { continue };
            if offset - code.list[row].offset >= u64::from(code.list[row].len) {
                continue;
            }
            match hot.last_mut() {
                Some(last) if last.row == row => {
                    last.total.add(&at.total);
                    last.own.add(&at.own);
                }
                _ => hot.push(Hot { row, total: at.total, own: at.own }),
            }
        }
        hot
    }

    /// Returns the hottest row: by self time, then by total. Without time it is the row's line.
    fn hottest(&self, metric: Metric) -> usize {
        let heat = |hot: &&Hot| (hot.own.value(metric), hot.total.value(metric));
        // Of equal ones the first.
        match self.hot.iter().rev().max_by_key(heat) {
            Some(hot) => hot.row,
            None => {
                let line = self.function.as_ref().and_then(|function| function.line).unwrap_or(1);
                (line as usize).saturating_sub(1)
            }
        }
    }

    /// Goes to the next (1) or previous (-1) row by time, the hottest first. Returns false if there
    /// is none.
    pub(super) fn next_hot(&mut self, by: isize, metric: Metric, height: usize) -> bool {
        let mut order: Vec<&Hot> = self.hot.iter().collect();
        let heat = |hot: &&Hot| (hot.own.value(metric), hot.total.value(metric));
        order.sort_by_key(|hot| (std::cmp::Reverse(heat(hot)), hot.row));
        let here = order.iter().position(|hot| hot.row == self.list.cursor);
        let next = match here {
            Some(here) => here.checked_add_signed(by),
            None => Some(0),
        };
        let Some(row) = next.and_then(|next| order.get(next)).map(|hot| hot.row) else {
            return false;
        };
        self.moved = true;
        self.go_to(row, height);
        true
    }

    pub(super) fn step(&mut self, step: Step, height: usize) {
        self.moved = true;
        self.list.step(step, self.rows, height);
    }

    /// Takes the time of the displayed range.
    pub(super) fn take(&mut self, time: Option<FunctionTime>) {
        if let Some(time) = time {
            self.time = time;
            self.has_time = true;
        }
    }

    /// Switches between source and instructions.
    pub(super) fn switch(&mut self, height: usize, metric: Metric) {
        self.shown = match self.shown {
            Shown::Source => Shown::Instructions,
            Shown::Instructions => Shown::Source,
        };
        self.moved = false;
        self.read(metric, height);
    }

    /// Returns the source file of the function's hottest line, and its hottest place.
    fn main_files(&self) -> (Option<Arc<str>>, Option<CodePlace>) {
        let heat = |total: &Totals, own: &Totals| {
            let (own, total) = ([own.wall_ns, own.cpu_ns], [total.wall_ns, total.cpu_ns]);
            (own.into_iter().sum::<u64>(), total.into_iter().sum::<u64>())
        };
        let lines = self.time.lines.iter().filter(|at| at_file(at).is_some());
        let line = lines.rev().max_by_key(|at| heat(&at.total, &at.own));
        let places = self.time.places.iter().filter(|at| at.at.is_some());
        let place = places.rev().max_by_key(|at| heat(&at.total, &at.own));
        (line.and_then(|at| at_file(at).cloned()), place.and_then(|at| at.at))
    }

    /// Returns the request for the displayed text, unless it was made before.
    pub(super) fn wanted(&mut self, processes: Vec<(u32, Arc<str>)>) -> Option<CodeRequest> {
        let function = self.function.clone()?;
        let is_asked = match self.shown {
            Shown::Source => !matches!(self.source, Reading::NotAsked),
            Shown::Instructions => !matches!(self.code, Reading::NotAsked),
        };
        if !self.has_time || is_asked {
            return None;
        }
        let (file, place) = self.main_files();
        let build = place.and_then(|place| self.time.build(place.file).cloned());
        let code = CodeFile { place, module: function.module.clone(), build, processes };
        let number = self.asked + 1;
        let of = match self.shown {
            Shown::Source => {
                self.file = file.or_else(|| function.file.clone());
                let Some(file) = &self.file else {
                    self.source = Reading::Failed(no_lines(&function));
                    return None;
                };
                self.source = Reading::Asked(number);
                CodeOf::Source(Location { file: Some(file.clone()), ..(*function).clone() }.into())
            }
            // No place of it is known where it has no time.
            Shown::Instructions if self.time.total == Totals::default() => return None,
            Shown::Instructions => {
                if let Some(why) = no_instructions(&function, place) {
                    self.code = Reading::Failed(why.to_owned());
                    return None;
                }
                self.mapped = place.map(|place| place.file);
                self.code = Reading::Asked(number);
                CodeOf::Instructions
            }
        };
        self.asked = number;
        Some(CodeRequest { number, of, code })
    }

    /// Takes a result of the newest request of its kind.
    pub(super) fn found(&mut self, CodeRead { number, read }: CodeRead) {
        match read {
            Found::Source(found) if self.source.is_of(number) => self.source.set(found),
            Found::Instructions(found) if self.code.is_of(number) => self.code.set(found),
            // Of another function.
            _ => {}
        }
    }

    /// Shows the other text where the first one cannot be read, unless the user chose it.
    pub(super) fn fall_back(&mut self) {
        let has_code = !matches!(self.code, Reading::Failed(_));
        if !self.chosen && matches!(self.source, Reading::Failed(_)) && has_code {
            self.shown = Shown::Instructions;
        } else if !self.chosen && !has_code {
            self.shown = Shown::Source;
        }
    }

    /// Returns in one sentence why the displayed text is not there, or may be another version.
    pub fn trouble(&self) -> Option<String> {
        let no_source = match &self.source {
            Reading::Failed(why) => Some(format!("no source: {why}")),
            _ => None,
        };
        let no_code = match &self.code {
            Reading::Failed(why) => Some(format!("no instructions: {why}")),
            _ => None,
        };
        match self.shown {
            Shown::Source => match (&self.source, no_source) {
                (Reading::Read(text), _) if text.is_newer => Some(
                    "this file is newer than the program: it may be another version".to_owned(),
                ),
                (Reading::Read(text), _) if text.is_cut => {
                    Some(format!("only the first {} lines are shown", text.lines.len()))
                }
                (_, no_source) => no_source,
            },
            Shown::Instructions => no_code.or(no_source),
        }
    }

    pub fn is_reading(&self) -> bool {
        match self.shown {
            Shown::Source => matches!(self.source, Reading::NotAsked | Reading::Asked(_)),
            Shown::Instructions => matches!(self.code, Reading::NotAsked | Reading::Asked(_)),
        }
    }
}

fn at_file(at: &TimeAt<(Option<Arc<str>>, Option<u32>)>) -> Option<&Arc<str>> {
    at.at.0.as_ref()
}

/// Says why no line of a function is known.
fn no_lines(function: &Location) -> String {
    match function.kind {
        FrameKind::Native => "the program has no debug info with lines of it (build with -g)",
        FrameKind::Kernel => "lines of the kernel are not known",
        _ => "no line of it is known",
    }
    .to_owned()
}

/// Says why a function has no instructions that could be read.
fn no_instructions(function: &Location, place: Option<CodePlace>) -> Option<&'static str> {
    Some(match (function.kind, place) {
        (FrameKind::Kernel, _) => "the kernel's code is not read",
        (FrameKind::Java, _) => "Java's compiled code is in no file, and changes as it runs",
        (FrameKind::Python, _) => "an interpreter executes it",
        (FrameKind::Jit, None) => "this code was made at run time: it is in no file",
        (_, None) => "no place of it in a file is known, as in redacted, merged and old profiles",
        (_, Some(_)) => return None,
    })
}
