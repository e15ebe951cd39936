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
            Shown::Instructions => match self.code.text().filter(|code| code.is_cut) {
                Some(code) => Some(format!(
                    "only {} instructions around the hottest one are shown",
                    code.list.len()
                )),
                None => no_code.or(no_source),
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
mod tests {
    use super::*;
    use crate::app::code_text::Instruction;

    fn totals(wall_ns: u64) -> Totals {
        Totals { wall_ns, ..Totals::default() }
    }

    /// Self time is a tenth of the total.
    fn at<Key>(at: Key, wall_ns: u64) -> TimeAt<Key> {
        TimeAt { at, total: totals(wall_ns), own: totals(wall_ns / 10) }
    }

    fn view(time: FunctionTime) -> SourceView {
        let mut view = SourceView::default();
        view.begin(Location::named("f", FrameKind::Native).into(), Pane::Tree);
        view.take(Some(time));
        view
    }

    fn ask(view: &mut SourceView) -> Option<CodeRequest> {
        view.wanted(Vec::new())
    }

    fn answer(view: &mut SourceView, number: u64, read: Found) {
        view.found(CodeRead { number, read });
        view.read(Metric::Wall, 10);
    }

    fn source(lines: usize) -> Found {
        let lines = vec!["text".to_owned(); lines];
        Found::Source(Ok(Arc::new(SourceText { lines, ..SourceText::default() })))
    }

    /// Instructions at these offsets, with these lengths.
    fn code(list: &[(u64, u8)]) -> Found {
        let instruction = |(offset, len): &(u64, u8)| Instruction {
            offset: *offset,
            len: *len,
            ..Instruction::default()
        };
        let list = list.iter().map(instruction).collect();
        Found::Instructions(Ok(Arc::new(Instructions { list, ..Instructions::default() })))
    }

    /// Returns the rows with time: total and self.
    fn rows(view: &SourceView) -> Vec<(usize, u64, u64)> {
        view.hot.iter().map(|hot| (hot.row, hot.total.wall_ns, hot.own.wall_ns)).collect()
    }

    #[test]
    fn a_line_of_another_file_or_behind_the_end_has_no_row() {
        let line = |file: &str, line, time| at((Some(file.into()), Some(line)), time);
        let lines = vec![
            at((None, None), 70),
            at((Some("a.c".into()), None), 60),
            line("a.c", 1, 100),
            line("a.c", 3, 90),
            line("a.c", 4, 80),
            line("b.h", 2, 50),
        ];
        let mut view = view(FunctionTime { lines, own: totals(45), ..FunctionTime::default() });
        let request = ask(&mut view).expect("a request");
        assert!(matches!(&request.of, CodeOf::Source(of) if of.file.as_deref() == Some("a.c")));
        answer(&mut view, request.number, source(3));
        assert_eq!(rows(&view), [(0, 100, 10), (2, 90, 9)]);
        assert_eq!((view.rows(), view.elsewhere.wall_ns), (3, 26));
    }

    #[test]
    fn the_file_of_the_line_with_most_self_time_is_read() {
        let line = |file: &str, line, total, own| TimeAt {
            at: (Some(file.into()), Some(line)),
            total: totals(total),
            own: totals(own),
        };
        let lines = vec![line("a.h", 1, 100, 1), line("b.c", 1, 50, 9), line("c.h", 1, 60, 2)];
        let mut view = view(FunctionTime { lines, ..FunctionTime::default() });
        let request = ask(&mut view).expect("a request");
        assert!(matches!(&request.of, CodeOf::Source(of) if of.file.as_deref() == Some("b.c")));
    }

    /// A place is the start of an instruction, or the last byte of a call.
    #[test]
    fn a_place_is_in_the_instruction_that_holds_it() {
        let place = |file, offset| Some(CodePlace { file: FileId(file), offset });
        let places = vec![
            at(None, 1000),
            at(place(1, 0x0f), 10),
            at(place(1, 0x10), 20),
            at(place(1, 0x12), 30),
            at(place(1, 0x13), 40),
            at(place(1, 0x17), 500),
            at(place(1, 0x18), 60),
            at(place(1, 0x20), 70),
            at(place(1, 0x24), 80),
            at(place(2, 0x13), 90),
        ];
        let total = totals(2000);
        let builds = vec![(FileId(1), "0a".into()), (FileId(2), "0b".into())];
        let time = FunctionTime { places, builds, total, own: total, ..FunctionTime::default() };
        let mut view = view(time);
        view.switch(10, Metric::Wall);
        let request = ask(&mut view).expect("a request");
        assert_eq!((request.of, request.code.place), (CodeOf::Instructions, place(1, 0x17)));
        assert_eq!(request.code.build.as_deref(), Some("0a"));
        // Between 0x18 and 0x20 is what another function has there.
        answer(&mut view, request.number, code(&[(0x10, 3), (0x13, 5), (0x20, 4)]));
        assert_eq!(rows(&view), [(0, 50, 5), (1, 540, 54), (2, 70, 7)]);
        assert_eq!(view.list.cursor, 1);
        assert_eq!(view.elsewhere.wall_ns, 2000 - 66);
        assert_eq!(view.hot(1).map(|hot| hot.own.wall_ns), Some(54));
    }

    #[test]
    fn instructions_of_an_older_request_are_dropped() {
        let place = Some(CodePlace { file: FileId(1), offset: 0x10 });
        let time = || FunctionTime {
            places: vec![at(place, 10)],
            total: totals(10),
            ..FunctionTime::default()
        };
        let mut view = view(time());
        view.switch(10, Metric::Wall);
        let old = ask(&mut view).expect("a request").number;
        view.begin(Location::named("g", FrameKind::Native).into(), Pane::Tree);
        view.take(Some(time()));
        view.switch(10, Metric::Wall);
        let new = ask(&mut view).expect("a request").number;
        answer(&mut view, old, code(&[(0x10, 1)]));
        assert!(view.is_reading() && view.rows() == 0);
        answer(&mut view, new, code(&[(0x10, 1), (0x11, 1)]));
        assert_eq!(view.rows(), 2);
    }

    /// Its place is known only where it has time.
    #[test]
    fn a_function_without_time_is_asked_for_once_it_has_some() {
        let mut view = view(FunctionTime::default());
        view.switch(10, Metric::Wall);
        assert!(ask(&mut view).is_none() && view.is_reading());
        let place = Some(CodePlace { file: FileId(1), offset: 0x10 });
        let places = vec![at(place, 10)];
        let total = totals(10);
        view.take(Some(FunctionTime { places, total, ..FunctionTime::default() }));
        assert!(ask(&mut view).is_some_and(|request| request.code.place == place));
    }

    #[test]
    fn the_cursor_is_on_the_first_of_equally_hot_lines() {
        let line = |line| at((Some("a.c".into()), Some(line)), 100);
        let lines = vec![line(2), line(5), line(8)];
        let mut view = view(FunctionTime { lines, ..FunctionTime::default() });
        let number = ask(&mut view).expect("a request").number;
        answer(&mut view, number, source(9));
        assert_eq!(view.list.cursor, 1);
    }

    #[test]
    fn a_text_that_is_cut_says_so() {
        let place = Some(CodePlace { file: FileId(1), offset: 0x10 });
        let lines = vec![at((Some("a.c".into()), Some(1)), 10)];
        let (places, total) = (vec![at(place, 10)], totals(10));
        let mut view = view(FunctionTime { lines, places, total, ..FunctionTime::default() });
        let number = ask(&mut view).expect("a request").number;
        let text = SourceText { lines: vec!["a".into()], is_cut: true, ..SourceText::default() };
        answer(&mut view, number, Found::Source(Ok(Arc::new(text))));
        assert_eq!(view.trouble().as_deref(), Some("only the first 1 lines are shown"));
        view.switch(10, Metric::Wall);
        let number = ask(&mut view).expect("a request").number;
        let list = vec![Instruction { offset: 0x10, len: 1, ..Instruction::default() }];
        let code = Instructions { list, is_cut: true, ..Instructions::default() };
        answer(&mut view, number, Found::Instructions(Ok(Arc::new(code))));
        let words = "only 1 instructions around the hottest one are shown";
        assert_eq!(view.trouble().as_deref(), Some(words));
    }
}
