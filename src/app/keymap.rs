//! The one table of keys: it drives dispatch, the footer, the help page and docs/guide/keys.md.

use std::fmt::Write;

use super::key::Key;

/// What a key does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    Up,
    Down,
    PageUp,
    PageDown,
    NextPage,
    First,
    Last,
    Expand,
    Open,
    Collapse,
    ExpandHottest,
    CollapseAll,
    Freeze,
    SortSelfTotal,
    SortLeft,
    SortRight,
    SortReverse,
    NextMetric,
    CpuBySelf,
    RollingCumulative,
    CountFromNow,
    KeepBaseline,
    Compare,
    NextGrouping,
    Search,
    NextMatch,
    PreviousMatch,
    NextFinding,
    TreeView,
    MethodsView,
    GraphView,
    GraphBack,
    FlameView,
    BarLeft,
    BarRight,
    FlameOut,
    FlameColors,
    Invert,
    ThreadsView,
    TimelineView,
    PreviousColumn,
    NextColumn,
    PreviousRun,
    NextRun,
    ZoomIn,
    ZoomOut,
    WaitsView,
    Source,
    SourceBack,
    NextHot,
    PreviousHot,
    NextView,
    NextRollUp,
    Filters,
    ShowIdle,
    IdleHere,
    Interval,
    Window,
    EarlierBucket,
    LaterBucket,
    EarlierWindow,
    LaterWindow,
    PreviousPeak,
    NextPeak,
    ShowLive,
    StopSampling,
    Export,
    ShortNames,
    NextLevel,
    Mine,
    CopyStack,
    RowMenu,
    Follow,
    NameRules,
    Wakers,
    UsePtrace,
    SaveChoices,
    UseMouse,
    Pick,
    Mark,
    ProcessTree,
    ColumnLeft,
    ColumnRight,
    Refresh,
    Quit,
    Help,
    Redraw,
    Suspend,
    Escape,
    Interrupt,
}

/// Where a key is valid. Prompts and dialogs take every key themselves, as help says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    Tree,
    Methods,
    Graph,
    Flame,
    Threads,
    Timeline,
    Waits,
    Source,
    Help,
    Picker,
}

impl Place {
    pub const ALL: [Place; 10] = [
        Place::Tree,
        Place::Methods,
        Place::Graph,
        Place::Flame,
        Place::Threads,
        Place::Timeline,
        Place::Waits,
        Place::Source,
        Place::Help,
        Place::Picker,
    ];
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    pub keys: &'static [Key],
    pub action: Action,
    pub places: &'static [Place],
    /// The heading in help.
    pub section: &'static str,
    /// One line, for help and docs/guide/keys.md.
    pub doc: &'static str,
    /// Shown in the footer, most useful first; `None` for the rest.
    pub hint: Option<Hint>,
}

#[derive(Clone, Copy, Debug)]
pub struct Hint {
    /// Priority: lower comes first and is kept longest on a narrow screen.
    pub order: u8,
    pub word: &'static str,
}

/// All but help and the process picker.
const VIEWS: &[Place] = Place::ALL.split_at(8).0;
/// The views whose rows have an order that can be chosen.
const SORTED: &[Place] = &[Place::Tree, Place::Methods, Place::Threads, Place::Waits];
const FLAME: &[Place] = &[Place::Flame];
const TREES: &[Place] = &[Place::Tree, Place::Flame];
const TABLES: &[Place] = &[Place::Tree, Place::Methods, Place::Threads];
/// The views that have a hottest row.
const FOLLOWED: &[Place] = &[Place::Tree, Place::Methods, Place::Flame];
const GRAPH: &[Place] = &[Place::Graph];
const TIMELINE: &[Place] = &[Place::Timeline];
const LISTS: &[Place] = &Place::ALL;
const TREE: &[Place] = &[Place::Tree];
/// The views whose rows may be open.
const FOLDED: &[Place] = &[Place::Tree, Place::Waits];
const HELP: &[Place] = &[Place::Help];
const PICKER: &[Place] = &[Place::Picker];
const NOT_PICKER: &[Place] = Place::ALL.split_at(9).0;
const SOURCE: &[Place] = &[Place::Source];

const MOVE: &str = "Move";
const SHOW: &str = "Show";
const TIME: &str = "Time";
const PROGRAM: &str = "Program";

const fn bind(
    keys: &'static [Key],
    action: Action,
    places: &'static [Place],
    section: &'static str,
    doc: &'static str,
) -> Binding {
    Binding { keys, action, places, section, doc, hint: None }
}

impl Binding {
    const fn hint(mut self, order: u8, word: &'static str) -> Binding {
        self.hint = Some(Hint { order, word });
        self
    }

    pub fn is_valid(&self, place: Place) -> bool {
        self.places.contains(&place)
    }

    /// Returns the keys of this binding at `place`. In the process picker, characters are text, but
    /// for the space.
    fn keys_at(&self, place: Place) -> impl Iterator<Item = Key> {
        let valid = self.is_valid(place);
        let is_text =
            move |key: &Key| place == Place::Picker && matches!(key, Key::Char(c) if *c != ' ');
        self.keys.iter().copied().filter(move |key| valid && !is_text(key))
    }

    /// Returns whether one of its keys has this meaning at `place`.
    pub fn is_usable(&self, place: Place) -> bool {
        self.keys_at(place).next().is_some()
    }

    /// Formats the keys: `up k`, `Space`.
    pub fn keys_text(&self) -> String {
        self.keys.iter().map(Key::to_string).collect::<Vec<_>>().join(" ")
    }
}

use Key::{Char, Ctrl};

/// All keys.
#[rustfmt::skip] // one line per key
pub const TABLE: &[Binding] = &[
    bind(&[Key::Up, Char('k')], Action::Up, LISTS, MOVE, "one row up"),
    bind(&[Key::Down, Char('j')], Action::Down, LISTS, MOVE, "one row down"),
    bind(&[Key::PageUp], Action::PageUp, LISTS, MOVE, "one page up"),
    bind(&[Key::PageDown], Action::PageDown, LISTS, MOVE, "one page down"),
    bind(&[Char(' ')], Action::NextPage, HELP, MOVE, "help: one page down"),
    bind(&[Key::Home, Char('g')], Action::First, LISTS, MOVE, "first row, and stay at the top"),
    bind(&[Key::End, Char('G')], Action::Last, LISTS, MOVE, "last row"),
    bind(&[Key::Right, Char('+')], Action::Expand, FOLDED, MOVE, "expand the row; of a lock: who waited for it and who held it"),
    bind(&[Key::Enter], Action::Open, VIEWS, MOVE, "expand; lock's holder; method: graph; bar, run: zoom; threads: only these; wait: its row"),
    bind(&[Key::Left, Char('-')], Action::Collapse, FOLDED, MOVE, "collapse the row; on a leaf or a closed row: go to its parent"),
    bind(&[Char('E')], Action::ExpandHottest, TREE, MOVE, "expand the hottest path below the row"),
    bind(&[Char('C')], Action::CollapseAll, TREE, MOVE, "collapse all; again: as it was before"),
    bind(&[Char('F')], Action::Follow, FOLLOWED, MOVE, "follow the hottest path as it changes, until a movement; again: as it was before"),
    bind(&[Char(':')], Action::RowMenu, VIEWS, MOVE, "menu: what can be done with the row (focus on it, ignore, hide, only its threads ...)").hint(6, "menu"),
    bind(&[Char('/')], Action::Search, NOT_PICKER, MOVE, "search names (regular expression; small letters match both)").hint(5, "search"),
    bind(&[Char('n')], Action::NextMatch, NOT_PICKER, MOVE, "next match"),
    bind(&[Char('N')], Action::PreviousMatch, NOT_PICKER, MOVE, "previous match"),
    bind(&[Char('!')], Action::NextFinding, VIEWS, MOVE, "go to the row that the sentence above is about; again: that of the next one"),
    bind(&[Char('1')], Action::TreeView, VIEWS, SHOW, "call tree of each thread group"),
    bind(&[Char('2')], Action::MethodsView, VIEWS, SHOW, "methods: one row per function, all its callers summed"),
    bind(&[Char('3')], Action::GraphView, VIEWS, SHOW, "graph: the row's function, its callers above it, its callees below"),
    bind(&[Key::Backspace], Action::GraphBack, GRAPH, SHOW, "graph: the function that was in the middle before"),
    bind(&[Char('4')], Action::FlameView, VIEWS, SHOW, "flame graph: a bar per call, as wide as its share of the time, callees below"),
    bind(&[Key::Left], Action::BarLeft, FLAME, SHOW, "flame: the bar to the left (up: its caller; down: its widest callee)"),
    bind(&[Key::Right], Action::BarRight, FLAME, SHOW, "flame: the bar to the right"),
    bind(&[Key::Backspace], Action::FlameOut, FLAME, SHOW, "flame: zoom out to the caller (Esc: all the way)"),
    bind(&[Char('s')], Action::FlameColors, FLAME, SHOW, "flame: colours say whose code it is, or its threads' state"),
    bind(&[Char('v')], Action::Invert, TREES, SHOW, "tree, flame: the innermost functions first, their callers below; again: callers first"),
    bind(&[Char('5')], Action::ThreadsView, VIEWS, SHOW, "threads: a row per group, or with t per thread; Enter shows only that one"),
    bind(&[Char('6')], Action::TimelineView, VIEWS, SHOW, "timeline: when the row's threads did what, and one thread's runs in order"),
    bind(&[Key::Left], Action::PreviousColumn, TIMELINE, SHOW, "timeline: the cursor one column back in time"),
    bind(&[Key::Right], Action::NextColumn, TIMELINE, SHOW, "timeline: the cursor one column on"),
    bind(&[Char('<')], Action::PreviousRun, TIMELINE, SHOW, "timeline: the cursor to the thread's run before"),
    bind(&[Char('>')], Action::NextRun, TIMELINE, SHOW, "timeline: the cursor to the thread's next run").hint(3, "next run"),
    bind(&[Char('+')], Action::ZoomIn, TIMELINE, SHOW, "timeline: half of the range, around the cursor").hint(2, "zoom"),
    bind(&[Char('-')], Action::ZoomOut, TIMELINE, SHOW, "timeline: twice the range"),
    bind(&[Char('7')], Action::WaitsView, VIEWS, SHOW, "waits: the locks that were waited for, then the long waits one by one"),
    bind(&[Char('a')], Action::Source, VIEWS, SHOW, "source lines of the row's function with their time; again: its instructions"),
    bind(&[Key::Backspace], Action::SourceBack, SOURCE, SHOW, "source: the view that it was opened from").hint(2, "back"),
    bind(&[Char('>')], Action::NextHot, SOURCE, SHOW, "source: the next line by self time").hint(3, "next hot"),
    bind(&[Char('<')], Action::PreviousHot, SOURCE, SHOW, "source: the hotter line before"),
    bind(&[Key::Tab], Action::NextView, VIEWS, SHOW, "next view").hint(4, "view"),
    bind(&[Char('m')], Action::NextMetric, VIEWS, SHOW, "metric: wall, cpu, off (wall without cpu)").hint(9, "metric"),
    bind(&[Char('P')], Action::CpuBySelf, VIEWS, SHOW, "metric cpu, sorted by self time, as in top").hint(12, "cpu"),
    bind(&[Char('s')], Action::SortSelfTotal, SORTED, SHOW, "sort by self time or by total time; waits: the longest or the latest first"),
    bind(&[Char('<')], Action::SortLeft, TABLES, SHOW, "sort by the column to the left of the one with the arrow"),
    bind(&[Char('>')], Action::SortRight, TABLES, SHOW, "sort by the column to the right of it"),
    bind(&[Char('R')], Action::SortReverse, TABLES, SHOW, "reverse the order"),
    bind(&[Char('t')], Action::NextGrouping, VIEWS, SHOW, "group threads by: rules, name, thread, process, blocker, label, none").hint(14, "group"),
    bind(&[Char('T')], Action::NameRules, VIEWS, SHOW, "rules for names of threads: s/REGEX/TEXT/, with the groups that they make"),
    bind(&[Char('b')], Action::NextRollUp, VIEWS, SHOW, "one row per function, line, class, package or module"),
    bind(&[Char('f')], Action::Filters, VIEWS, SHOW, "filters: interesting, focus, ignore, hide, no kernel, threads, daemons, minimum percent").hint(15, "filter"),
    bind(&[Char('i')], Action::ShowIdle, VIEWS, SHOW, "show or hide time spent waiting for work").hint(11, "idle"),
    bind(&[Char('I')], Action::IdleHere, VIEWS, SHOW, "waiting in this row's function is idle; again: it is not"),
    bind(&[Char('c')], Action::ShortNames, VIEWS, SHOW, "short or full names"),
    bind(&[Char('o')], Action::NextLevel, VIEWS, SHOW, "rows: your functions; all functions, chains of calls on one line; each on its own line").hint(10, "code"),
    bind(&[Char('A')], Action::Mine, VIEWS, SHOW, "this row's function is your code, or is not; again: as it was judged"),
    bind(&[Char('u')], Action::Wakers, VIEWS, SHOW, "count for 10 s who wakes this row's threads, by which call"),
    bind(&[Char(' ')], Action::Freeze, VIEWS, TIME, "freeze the screen, or go on; sampling goes on meanwhile").hint(8, "freeze"),
    bind(&[Char('r')], Action::RollingCumulative, VIEWS, TIME, "the last seconds (rolling), or everything since the start (cumulative)"),
    bind(&[Char('w')], Action::Window, VIEWS, TIME, "what time is shown: 30s, 5m, all, 14:03:20 +2s, -75s..-70s, 14:03:20.25 +50ms").hint(13, "range"),
    bind(&[Char('{')], Action::PreviousPeak, VIEWS, TIME, "time cursor to the second before that stands out: many busy threads, or a long wait"),
    bind(&[Char('}')], Action::NextPeak, VIEWS, TIME, "time cursor to the next second that stands out"),
    bind(&[Char(',')], Action::EarlierBucket, VIEWS, TIME, "time cursor one second back (10 s or 1 min where history is older)"),
    bind(&[Char('.')], Action::LaterBucket, VIEWS, TIME, "time cursor one second on"),
    bind(&[Char('(')], Action::EarlierWindow, VIEWS, TIME, "time cursor back by the window that was last shown"),
    bind(&[Char(')')], Action::LaterWindow, VIEWS, TIME, "time cursor on by that window"),
    bind(&[Char('L')], Action::ShowLive, VIEWS, TIME, "live again: the last seconds, not frozen"),
    bind(&[Char('0')], Action::CountFromNow, VIEWS, TIME, "cumulative counts from now; again: as before (deletes nothing)"),
    bind(&[Char('M')], Action::KeepBaseline, VIEWS, TIME, "keep the shown range as the baseline; again: another one in its place"),
    bind(&[Char('=')], Action::Compare, VIEWS, TIME, "tree, methods, flame: differences from the baseline, in percentage points; again: leave"),
    bind(&[Char('d')], Action::Interval, VIEWS, TIME, "sampling interval, 1ms to 10s"),
    bind(&[Char('X')], Action::StopSampling, VIEWS, TIME, "stop sampling (asks), or go on; the gap is marked"),
    bind(&[Char('p')], Action::UsePtrace, VIEWS, TIME, "where offered: also sample running threads by stopping each for microseconds (asks)"),
    bind(&[Key::Enter], Action::Pick, PICKER, PROGRAM, "watch the process, or those that are marked").hint(1, "watch"),
    bind(&[Char(' ')], Action::Mark, PICKER, PROGRAM, "mark the process, to watch several together; again: not").hint(3, "mark"),
    bind(&[Ctrl('t'), Key::F(4)], Action::ProcessTree, PICKER, PROGRAM, "children below their parents, or all processes in one order").hint(4, "tree"),
    bind(&[Key::Left], Action::ColumnLeft, PICKER, PROGRAM, "sort processes by the column to the left").hint(5, "sort"),
    bind(&[Key::Right], Action::ColumnRight, PICKER, PROGRAM, "sort processes by the column to the right"),
    bind(&[Key::F(5)], Action::Refresh, PICKER, PROGRAM, "read the list of processes again, and sort it again").hint(2, "refresh"),
    bind(&[Char('x')], Action::Export, VIEWS, PROGRAM, "save a report and all history: sampletop-HOST-PID-UTC.txt, .sampletop").hint(7, "save"),
    bind(&[Char('W')], Action::SaveChoices, VIEWS, PROGRAM, "save what is chosen (metric, groups, filters, rules, ...) in the configuration file"),
    bind(&[Char('y')], Action::CopyStack, VIEWS, PROGRAM, "copy the row's stack to the clipboard of your terminal (OSC 52)"),
    bind(&[Char('Y')], Action::UseMouse, VIEWS, PROGRAM, "take the mouse, or leave it to the terminal to select and copy text"),
    bind(&[Char('?'), Char('h'), Key::F(1)], Action::Help, LISTS, PROGRAM, "this help, or back").hint(0, "help"),
    bind(&[Ctrl('l')], Action::Redraw, LISTS, PROGRAM, "draw the screen again"),
    bind(&[Ctrl('z')], Action::Suspend, LISTS, PROGRAM, "suspend sampletop (fg continues)"),
    bind(&[Key::Esc], Action::Escape, LISTS, PROGRAM, "leave a prompt, dialog, help, zoom, time cursor, search; then back to the list (asks)"),
    bind(&[Char('q')], Action::Quit, NOT_PICKER, PROGRAM, "quit (in help: back)").hint(1, "quit"),
    bind(&[Ctrl('c')], Action::Interrupt, LISTS, PROGRAM, "leave a prompt, else quit").hint(16, "quit"),
];

/// Returns the action of `key` at `place`.
pub fn action(key: Key, place: Place) -> Option<Action> {
    TABLE.iter().find(|b| b.keys_at(place).any(|k| k == key)).map(|b| b.action)
}

/// Returns the footer's hints at `place`, most useful first: the first key and a word.
pub fn hints(place: Place) -> Vec<(Key, &'static str)> {
    let mut hints: Vec<_> = TABLE
        .iter()
        .filter_map(|b| b.hint.zip(b.keys_at(place).next()).map(|(h, key)| (h.order, key, h.word)))
        .collect();
    hints.sort_by_key(|(order, ..)| *order);
    // Where two keys have the same action, only the first is hinted.
    let mut said = Vec::new();
    hints.retain(|(.., word)| {
        !said.contains(word) && {
            said.push(*word);
            true
        }
    });
    hints.into_iter().map(|(_, key, word)| (key, word)).collect()
}

/// Returns the table of docs/guide/keys.md.
pub fn markdown() -> String {
    let mut text = String::from("| key | what it does |\n|---|---|\n");
    for binding in TABLE {
        let keys: Vec<_> = binding.keys.iter().map(|k| format!("`{k}`")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} | {} |", keys.join(" "), binding.doc);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_key_means_two_things_in_one_place() {
        for place in Place::ALL {
            let mut seen = HashSet::new();
            for binding in TABLE.iter().filter(|b| b.is_valid(place)) {
                for key in binding.keys_at(place) {
                    assert!(seen.insert(key), "{key} twice in {place:?}");
                }
            }
        }
    }

    #[test]
    fn every_place_is_in_the_list_of_places() {
        let numbers: Vec<usize> = Place::ALL.iter().map(|place| *place as usize).collect();
        assert_eq!(numbers, (0..=Place::Picker as usize).collect::<Vec<_>>());
        assert!(!VIEWS.contains(&Place::Help) && VIEWS.last() == Some(&Place::Source));
        assert!(!NOT_PICKER.contains(&Place::Picker) && NOT_PICKER.contains(&Place::Help));
    }

    #[test]
    fn every_line_is_complete() {
        let mut actions = HashSet::new();
        for binding in TABLE {
            assert!(!binding.keys.is_empty() && !binding.places.is_empty(), "{binding:?}");
            assert!(
                binding.doc.len() <= 90
                    && !binding.doc.contains('|')
                    && !binding.doc.ends_with('.'),
                "{binding:?}"
            );
            assert!(actions.insert(binding.action), "{:?} has two lines", binding.action);
        }
    }

    /// Letters that a split arrow key leaves behind (`Esc [ D`, too late to be joined).
    #[test]
    fn torn_arrow_keys_change_and_lose_nothing() {
        for place in Place::ALL {
            for c in "[OABCDFH".chars() {
                let action = action(Char(c), place);
                // These change only the view: pressed again they restore it (tests/screens.rs).
                let is_harmless = matches!(
                    action,
                    None | Some(Action::CollapseAll | Action::Mine | Action::Follow)
                );
                assert!(is_harmless, "{c} does {action:?} in {place:?}");
            }
        }
    }

    #[test]
    fn the_footer_has_no_two_hints_of_one_order() {
        for place in Place::ALL {
            let orders: Vec<_> = TABLE
                .iter()
                .filter(|b| b.is_valid(place))
                .filter_map(|b| b.hint.map(|h| h.order))
                .collect();
            let unique: HashSet<_> = orders.iter().collect();
            assert_eq!(unique.len(), orders.len(), "{place:?}: {orders:?}");
        }
    }

    #[test]
    fn the_markdown_table_has_every_key() {
        let text = markdown();
        assert_eq!(text.lines().count(), TABLE.len() + 2);
        assert!(text.contains(
            "| `right` `+` | expand the row; of a lock: who waited for it and who held it |"
        ));
        assert!(text.lines().all(|l| l.matches('|').count() == 3));
    }
}
