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
    /// See [`FunctionKey::has_calls`].
    has_calls: bool,
    pub shown: Shown,
    /// The user chose which one.
    pub(super) chosen: bool,
    /// The view that it was opened from.
    pub(super) before: Pane,
    /// The cursor had been moved there.
    pub(super) had_moved: bool,
    pub time: FunctionTime,
    /// The time is that of the function.
    has_time: bool,
    pub source: Reading<SourceText>,
    pub code: Reading<Instructions>,
    /// The source file with the hottest line, once it was asked for.
    pub file: Option<Arc<str>>,
    /// The mapped file with the hottest place.
    pub mapped: Option<FileId>,
    /// Its build. In another range another file may be the first of that build.
    mapped_build: Option<Arc<str>>,
    pub list: List,
    /// The cursor was on the hottest row, or was moved: it stays on its row.
    placed: bool,
    /// The line under the cursor, where only lines with time are listed.
    line: Option<u32>,
    /// The rows with time, by row.
    pub hot: Vec<Hot>,
    /// Time of the function that no row has: in other files, or in code that is not displayed.
    pub elsewhere: Totals,
    rows: usize,
    /// The number of the newest request. It only grows, also from session to session.
    pub(super) asked: u64,
}

impl SourceView {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the function whose time is wanted.
    pub(super) fn key(&self) -> Option<FunctionKey> {
        let has_calls = self.has_calls;
        let key = |of: &Arc<Location>| FunctionKey { has_calls, ..FunctionKey::of(of) };
        self.function.as_ref().map(key)
    }

    /// Begins with another function. `has_calls`: see [`FunctionKey::has_calls`].
    pub(super) fn begin(&mut self, function: Arc<Location>, has_calls: bool, before: Pane) {
        let (function, asked) = (Some(function), self.asked);
        *self = SourceView { function, has_calls, before, asked, ..SourceView::default() };
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

    /// Sums up the time of the rows. At the first time with text and time the cursor goes to the
    /// hottest row, which is in the middle. Then it stays on its row: who reads shall not be moved.
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
        self.elsewhere = self.time_elsewhere(metric);
        if !self.placed {
            self.go_to(self.hottest(metric), height);
            self.placed = !self.is_reading() && !self.hot.is_empty();
        } else if self.lists_lines()
            && let Some(line) = self.line
        {
            let row = self.known_lines().take_while(|(known, _)| *known < line).count();
            self.list.follow(row, self.rows, height);
        }
        self.list.show(self.rows, height);
        self.keep_line();
    }

    /// Returns the time that no row has: self time; without that, total time.
    fn time_elsewhere(&self, metric: Metric) -> Totals {
        let is_own = self.time.own.value(metric) > 0;
        let of = |hot: &Hot| if is_own { hot.own } else { hot.total };
        let shown = |part: &dyn Fn(Totals) -> u64| self.hot.iter().map(|hot| part(of(hot))).sum();
        let mut elsewhere = if is_own { self.time.own } else { self.time.total };
        elsewhere.wall_ns = elsewhere.wall_ns.saturating_sub(shown(&|time| time.wall_ns));
        elsewhere.cpu_ns = elsewhere.cpu_ns.saturating_sub(shown(&|time| time.cpu_ns));
        elsewhere.off_ns = elsewhere.off_ns.saturating_sub(shown(&|time| time.off_ns));
        elsewhere
    }

    /// Returns whether rows are the lines with time, without their text.
    fn lists_lines(&self) -> bool {
        self.shown == Shown::Source && self.source.text().is_none()
    }

    fn keep_line(&mut self) {
        let lists = self.lists_lines();
        let number = lists.then(|| self.number(self.list.cursor)).flatten();
        self.line = number.and_then(|number| u32::try_from(number).ok());
    }

    /// Puts the cursor on a row, in the middle of the screen.
    fn go_to(&mut self, row: usize, height: usize) {
        self.list = List { cursor: row, top: row.saturating_sub(height / 2) };
        self.list.show(self.rows, height);
        self.keep_line();
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
            let build = self.time.build(of);
            if of != file && (build.is_none() || build != self.mapped_build.as_ref()) {
                continue;
            }
            // A call's place is inside its instruction.
            let after = code.list.partition_point(|next| next.offset <= offset);
            let Some(row) = after.checked_sub(1) else { continue };
            if offset - code.list[row].offset >= u64::from(code.list[row].len) {
                continue;
            }
            // Mostly the last one: places are in order, those of each file.
            let next = hot.partition_point(|hot| hot.row < row);
            match hot.get_mut(next) {
                Some(known) if known.row == row => {
                    known.total.add(&at.total);
                    known.own.add(&at.own);
                }
                _ => hot.insert(next, Hot { row, total: at.total, own: at.own }),
            }
        }
        hot
    }

    /// Returns the hottest row: by self time, then by total. Without time it is the function's line
    /// in the text; else the first row.
    fn hottest(&self, metric: Metric) -> usize {
        let heat = |hot: &&Hot| (hot.own.value(metric), hot.total.value(metric));
        // Of equal ones the first.
        match self.hot.iter().rev().max_by_key(heat) {
            Some(hot) => hot.row,
            None if self.shown == Shown::Instructions || self.lists_lines() => 0,
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
        self.placed = true;
        self.go_to(row, height);
        true
    }

    pub(super) fn step(&mut self, step: Step, height: usize) {
        self.placed |= self.rows > 0;
        self.list.step(step, self.rows, height);
        self.keep_line();
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
        self.placed = false;
        self.read(metric, height);
    }

    /// Returns the source file of the function's hottest line, and its hottest place: of the
    /// row's own file, if it has time. Other functions may have the same name.
    fn main_files(&self) -> (Option<Arc<str>>, Option<CodePlace>) {
        let own = self.function.as_ref().and_then(|function| function.file.as_ref());
        let own = own.filter(|own| self.time.lines.iter().any(|at| at_file(at) == Some(own)));
        let is_own = |source: &Arc<str>| own.is_none_or(|own| own == source);
        let in_own = |place: &CodePlace| match self.time.sources.get(&place.file) {
            Some(sources) => sources.iter().any(is_own),
            None => own.is_none(),
        };
        let heat = |total: &Totals, own: &Totals| {
            let (own, total) = ([own.wall_ns, own.cpu_ns], [total.wall_ns, total.cpu_ns]);
            (own.into_iter().sum::<u64>(), total.into_iter().sum::<u64>())
        };
        let lines = self.time.lines.iter().filter(|at| at_file(at).is_some_and(is_own));
        let line = lines.rev().max_by_key(|at| heat(&at.total, &at.own));
        let places = self.time.places.iter().filter_map(|at| Some((at.at?, at)));
        let place =
            places.rev().max_by_key(|(place, at)| (in_own(place), heat(&at.total, &at.own)));
        (line.and_then(|at| at_file(at).cloned()), place.map(|(place, _)| place))
    }

    /// Returns the request for the displayed text, unless it was made before.
    /// `started`: see [`CodeFile::started_unix_ns`].
    pub(super) fn wanted(
        &mut self,
        processes: Vec<(u32, Arc<str>)>,
        started: Option<i128>,
    ) -> Option<CodeRequest> {
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
        let started_unix_ns = started.filter(|_| place.is_none());
        let (module, build_of) = (function.module.clone(), build.clone());
        let code = CodeFile { place, module, build: build_of, started_unix_ns, processes };
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
                self.mapped_build = build;
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
        let before = self.shown;
        let has_code = !matches!(self.code, Reading::Failed(_));
        if !self.chosen && matches!(self.source, Reading::Failed(_)) && has_code {
            self.shown = Shown::Instructions;
        } else if !self.chosen && !has_code {
            self.shown = Shown::Source;
        }
        self.placed &= self.shown == before;
    }

    /// Says why the displayed text is not there, is not whole or may be another version.
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
                (Reading::Read(text), _) => {
                    let newer = "this file is newer than the program: it may be another version";
                    let newer = text.is_newer.then(|| newer.to_owned());
                    let cut = || format!("only the first {} lines are shown", text.lines.len());
                    let is_java = |function: &Arc<Location>| function.kind == FrameKind::Java;
                    let near = self.function.as_ref().is_some_and(is_java).then(|| {
                        // HotSpot describes few places of compiled code.
                        "compiled code has the lines of safepoints (see docs/java.md)".to_owned()
                    });
                    let notes = [newer, text.is_cut.then(cut), near];
                    let notes: Vec<String> = notes.into_iter().flatten().collect();
                    (!notes.is_empty()).then(|| notes.join("; "))
                }
                (_, no_source) => no_source,
            },
            Shown::Instructions => match self.code.text() {
                Some(code) if code.is_cut => {
                    let shown = code.list.len();
                    let cut = format!("only {shown} instructions around the hottest one are shown");
                    Some(no_source.map_or(cut.clone(), |why| format!("{cut}; {why}")))
                }
                _ => no_code.or(no_source),
            },
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

#[cfg(test)]
mod tests;
