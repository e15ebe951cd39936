//! The source view: which file it asks for, and which row has which time.

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
    view.begin(Location::named("f", FrameKind::Native).into(), false, Pane::Tree);
    view.take(Some(time));
    view
}

fn ask(view: &mut SourceView) -> Option<CodeRequest> {
    view.wanted(Vec::new(), None)
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
    view.begin(Location::named("g", FrameKind::Native).into(), false, Pane::Tree);
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

fn place(file: u32, offset: u64) -> Option<CodePlace> {
    Some(CodePlace { file: FileId(file), offset })
}

/// A view of `f` at `a.c`, after a projection found this.
fn view_at_a(time: FunctionTime) -> SourceView {
    let function = Location { file: Some("a.c".into()), ..Location::named("f", FrameKind::Native) };
    let mut view = SourceView::default();
    view.begin(function.into(), false, Pane::Tree);
    view.take(Some(time));
    view
}

#[test]
fn the_file_of_the_row_is_displayed_although_a_namesake_is_hotter() {
    let lines = [("a.c", 7, 10), ("b.c", 9, 100)];
    let lines = lines.map(|(file, line, ns)| at((Some(file.into()), Some(line)), ns));
    let places = vec![at(place(1, 70), 1), at(place(2, 90), 100)];
    let sources = [(FileId(1), ["a.c".into()].into()), (FileId(2), ["b.c".into()].into())];
    let both = FunctionTime {
        total: totals(101),
        own: totals(101),
        lines: lines.into(),
        places,
        sources: sources.into(),
        ..FunctionTime::default()
    };
    let mut shown = view_at_a(both.clone());
    let request = shown.wanted(Vec::new(), None).expect("a request");
    assert!(matches!(&request.of, CodeOf::Source(of) if of.file.as_deref() == Some("a.c")));
    assert_eq!(request.code.place, place(1, 70));
    // Without time in its file it is the hottest one.
    let mut other = both;
    other.lines.remove(0);
    let request = view_at_a(other).wanted(Vec::new(), None).expect("a request");
    assert!(matches!(&request.of, CodeOf::Source(of) if of.file.as_deref() == Some("b.c")));
    assert_eq!(request.code.place, place(2, 90));
}

/// In another range another file may be the first with time of the same build.
#[test]
fn instructions_keep_their_time_when_another_file_of_the_build_has_it() {
    let in_file = |file: u32, build: &str| FunctionTime {
        total: totals(5),
        own: totals(5),
        places: vec![at(place(file, 12), 5)],
        builds: vec![(FileId(file), build.into())],
        ..FunctionTime::default()
    };
    let mut view = view_at_a(in_file(3, "one"));
    view.switch(10, Metric::Wall);
    let request = view.wanted(Vec::new(), Some(7)).expect("a request");
    assert_eq!(request.code.started_unix_ns, None, "the file says when it was built");
    let instruction = |offset| Instruction { offset, len: 4, ..Instruction::default() };
    let list = (0..8).map(|n| instruction(4 * n)).collect();
    let code = Instructions { list, ..Instructions::default() };
    view.found(CodeRead { number: request.number, read: Found::Instructions(Ok(code.into())) });
    for (file, build, expected) in [(3, "one", Some(3)), (9, "one", Some(3)), (9, "two", None)] {
        view.take(Some(in_file(file, build)));
        view.read(Metric::Wall, 10);
        assert_eq!(view.hot.first().map(|hot| hot.row), expected, "{file} {build}");
    }
}

#[test]
fn code_in_no_file_is_as_old_as_its_process() {
    let java =
        Location { file: Some("A.java".into()), ..Location::named("a.A.f", FrameKind::Java) };
    let mut view = SourceView::default();
    view.begin(java.into(), false, Pane::Tree);
    let line = at((Some("A.java".into()), Some(7)), 5);
    view.take(Some(FunctionTime { lines: vec![line], ..FunctionTime::default() }));
    let request = view.wanted(Vec::new(), Some(7)).expect("a request");
    assert_eq!(request.code.started_unix_ns, Some(7));
}
