//! Turns inputs into what is shown and what the session shall do. Pure: no I/O, no clock, no
//! terminal.
//!
//! ```text
//! event      inputs (keys, snapshots, results) and outputs (effects)
//! keymap     the one table of keys        key, line_edit   single keys and a line of text
//! view, expanding   what is displayed: snapshot, settings, projection, rows; opening rows
//! overlay_keys, actions, display_keys, mouse   what keys and the mouse do
//! selection, opening   what is under the cursor, and what Enter does with it
//! baseline, comparing   what the range is compared with; the keys for that
//! changes, change_rows, change_columns, change_search   the views of the comparison
//! columns    which columns fit the screen, and by which rows are sorted
//! carried, carrying   what was chosen, for the next view
//! row_path, rows, list, keyed_list  expansion and selection by path; rows of the tree; scrolling
//! pane       which view is displayed; method_list, call_graph, walking, thread_list, timeline,
//!            wait_list, wait_words   the views
//! prompt, filters, rules, menu, help, page_search   drawn over the view
//! picker, process_order   the list of processes
//! explain, insight, title         the line about the selected row; those of the header
//! short_names  names of functions in rows
//! history_line, time_cursor, time_range, zoom   the history line; going to a part of history
//! flame, flame_keys, inverting   bars of calls; moving and zooming there; turning trees around
//! flame_changes   how a bar differs from the baseline
//! source_view, source_keys, code_text   the source or the instructions of a function; their text
//! wakers     who woke the threads of a row
//! looked_up  waits and wakeups that saved files keep
//! trends     time of the visible rows over the range
//! projectors   answers requests for projections and comparisons
//! ```

pub mod baseline;
pub mod call_graph;
mod carried;
mod carrying;
pub mod change_columns;
pub mod change_rows;
mod change_search;
pub mod changes;
pub mod code_text;
pub mod columns;
mod comparing;
mod display_keys;
pub mod event;
mod expanding;
pub mod explain;
pub mod filters;
pub mod flame;
pub mod flame_changes;
mod flame_keys;
pub mod help;
pub mod history_line;
pub mod insight;
mod inverting;
pub mod key;
pub mod keyed_list;
pub mod keymap;
pub mod layout;
pub mod line_edit;
pub mod list;
mod looked_up;
pub mod menu;
pub mod method_list;
mod mouse;
mod opening;
mod overlay_keys;
mod page_search;
pub mod pane;
pub mod picker;
pub mod process_order;
pub mod projectors;
pub mod prompt;
pub mod row_path;
pub mod rows;
pub mod rules;
mod search;
mod selection;
pub mod short_names;
mod source_keys;
pub mod source_view;
pub mod thread_list;
pub mod time_cursor;
mod time_range;
pub mod timeline;
pub mod title;
mod trends;
pub mod view;
pub mod wait_chain;
pub mod wait_list;
pub mod wait_words;
pub mod wakers;
mod walking;
mod zoom;

mod actions;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use baseline::Baseline;
pub use event::{
    AppConfig, Counted, Effect, Input, ProcessRow, Projected, READ_WITHIN, Request, Severity,
};
use filters::Dialog;
use keymap::Place;
use layout::Layout;
use list::{List, Step};
use looked_up::LookedUp;
use menu::Menu;
use page_search::PageSearch;
use pane::Pane;
use picker::Picker;
use prompt::{Ask, Prompt};
use row_path::Expanded;
use rules::RulesDialog;
use time_cursor::TimeCursor;
use view::View;
use wakers::Wakers;

use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::seconds_for_one_percent;
use crate::model::projection::settings::{Filter, Range, SortColumn};
use crate::model::projection::waits::Asked;
use crate::model::vocabulary::frame::{Ns, ThreadKey, ThreadKind};

/// An overlay over the view, which takes its keys.
#[derive(Clone, PartialEq, Debug)]
pub enum Overlay {
    Prompt(Prompt),
    Filters(Dialog),
    Rules(RulesDialog),
    /// Of the row under the cursor.
    Menu(Menu),
    Ask(Ask),
    Help(List),
    /// The page of [`AppState::wakers`].
    Wakers(List),
}

/// What is said at the first start.
const FIRST_KEYS: &str =
    "first keys: Enter opens, Tab next view, Space freezes, / searches, ? shows all";

/// The complete state of the live view.
pub struct AppState {
    pub(crate) config: AppConfig,
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) interval: Duration,
    pub(crate) view: View,
    /// The newest snapshot, even while an older one is frozen on the screen.
    pub(crate) newest: Option<Arc<Snapshot>>,
    pub(crate) frozen: bool,
    /// The frozen snapshot, with names found since; `None` while there is nothing yet.
    held: Option<Arc<Snapshot>>,
    /// The number of the newest request, see [`Request::number`], and of the displayed one.
    asked: u64,
    shown: u64,
    request: Option<Request>,
    /// The waits queried last.
    waits: Vec<Asked>,
    /// The sentence to whose row the key goes next.
    next_finding: usize,
    pub(crate) overlay: Option<Overlay>,
    /// The time of the present input, since any fixed moment.
    pub(crate) now: Duration,
    pub(crate) picker: Option<Picker>,
    /// One sentence on the last line, until the next key.
    pub(crate) notice: Option<(String, Severity)>,
    pub(crate) ptrace_helps: bool,
    /// Who wakes the threads of a row: being counted, or counted last.
    wakers: Option<Wakers>,
    page_search: PageSearch,
    looked_up: LookedUp,
    /// The window to restore after cumulative counts, ns.
    pub(crate) window: Ns,
    /// The range to restore when the key `0` is pressed again; `None` while `0` is not in effect.
    pub(crate) before_mark: Option<Range>,
    /// The filter of threads to restore after one group alone was shown.
    before_group: Option<Filter<regex::Regex>>,
    /// What the shown range can be compared with.
    pub(crate) baseline: Option<Baseline>,
    /// It is compared with it.
    comparing: bool,
    /// The range to restore after those of a time cursor.
    before_cursor: Option<Range>,
    /// The cursor on the history line.
    pub(crate) time_cursor: Option<TimeCursor>,
    /// A search that found nothing in the user's code goes on among all frames.
    wider_search: Option<WiderSearch>,
}

struct WiderSearch {
    /// 1: forward, -1: backward.
    step: isize,
    /// What was expanded before; it is again if nothing is found.
    expanded: Expanded,
}

impl AppState {
    pub fn new(config: AppConfig) -> AppState {
        let window = match config.settings.range {
            Range::Rolling(window) => window,
            Range::Cumulative { .. } | Range::Between { .. } => {
                30 * crate::model::vocabulary::frame::SECOND
            }
        };
        AppState {
            width: 80,
            height: 24,
            interval: config.interval,
            view: View::new(config.settings.clone(), config.screen.names),
            newest: None,
            frozen: false,
            held: None,
            asked: 0,
            shown: 0,
            request: None,
            waits: Vec::new(),
            next_finding: 0,
            overlay: None,
            now: Duration::ZERO,
            picker: config.pick.then(Picker::default),
            notice: (config.first_start && !config.pick)
                .then(|| (FIRST_KEYS.to_owned(), Severity::Info)),
            ptrace_helps: false,
            wakers: None,
            page_search: PageSearch::default(),
            looked_up: LookedUp::default(),
            window,
            before_mark: None,
            before_group: None,
            baseline: config.against.clone(),
            comparing: config.against.is_some(),
            before_cursor: None,
            time_cursor: None,
            wider_search: None,
            config,
        }
    }

    /// Sets the time for every [`AppState::update`] that follows.
    pub fn set_time(&mut self, now: Duration) {
        self.now = now;
    }

    /// Handles an input; returns the effects for the session, in order.
    pub fn update(&mut self, input: Input) -> Vec<Effect> {
        let newer = matches!(input, Input::Projected(_));
        let moved = newer || matches!(input, Input::Key(_) | Input::Mouse(_));
        let mut effects = self.react(input);
        let (rows, wanted) = (self.layout().rows, self.wants_trends());
        self.view.read_trends(if wanted { usize::from(rows) } else { 0 });
        // One request, however many settings a key changed.
        effects.extend(self.request.take().map(|request| Effect::Project(Box::new(request))));
        effects.extend(self.wanted_code());
        if moved {
            effects.extend(self.ask_for_waits(newer));
        }
        effects
    }

    /// Queries what the selected row's threads wait for when that may have changed. Not for a
    /// frozen screen, which shows the past.
    fn ask_for_waits(&mut self, newer: bool) -> Option<Effect> {
        if self.frozen || self.picker.is_some() || self.config.saved {
            return None;
        }
        let mut asked = explain::asked(&self.view);
        let others = insight::asked(self).into_iter().chain(wait_chain::asked(&self.view));
        for wait in others {
            if !asked.contains(&wait) {
                asked.push(wait);
            }
        }
        if asked.is_empty() || !newer && asked == self.waits {
            return None;
        }
        if let Some(snapshot) = &self.view.snapshot {
            self.looked_up.asked(snapshot, &asked);
        }
        self.waits.clone_from(&asked);
        Some(Effect::AskWaits(asked))
    }

    fn react(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Key(key) => return self.key(key),
            Input::Mouse(mouse) => return self.mouse(mouse),
            Input::Resize { width, height } => {
                (self.width, self.height) = (width, height);
                self.page_search.forget_line();
                self.view.resize(width, usize::from(self.layout().rows));
                self.keep_on_screen();
                let has_columns = self.view.pane == Pane::Timeline;
                if has_columns || self.wants_trends() && !self.view.asked_for_trends {
                    self.project();
                }
            }
            Input::Snapshot(snapshot) => self.take(snapshot),
            Input::Projected(projected) => self.show(*projected),
            Input::Waits(answers) => {
                self.looked_up.answered(&answers);
                self.view.waits =
                    answers.into_iter().map(|answer| (answer.asked.thread, answer)).collect();
            }
            Input::Processes(rows) => {
                let height = self.picker_rows();
                if let Some(picker) = &mut self.picker {
                    picker.set(rows, self.now, height);
                }
            }
            Input::Detached => {
                self.picker = Some(Picker::default());
                self.forget_session();
            }
            Input::AttachFailed(error) => {
                let picker = self.picker.get_or_insert_default();
                picker.error = Some(error);
                return vec![Effect::Refresh];
            }
            Input::PtraceHelps(helps) => {
                if helps && !self.ptrace_helps {
                    self.notice = Some((
                        "Running threads cannot be sampled here; p also stops each for microseconds to read its stack"
                            .into(),
                        Severity::Warning,
                    ));
                }
                self.ptrace_helps = helps;
            }
            Input::Notice(text, severity) => self.notice = Some((text, severity)),
            Input::Exported(Ok(paths)) => {
                let mut text = String::new();
                for path in paths {
                    text += &match path.extension() {
                        Some(extension) if !text.is_empty() => {
                            format!(", .{}", extension.display())
                        }
                        _ => format!("saved {}", path.display()),
                    };
                }
                self.notice = Some((text, Severity::Info));
            }
            Input::Woken(counted) => self.show_wakers(counted),
            Input::Code(read) => self.take_code(read),
            Input::Exported(Err(error)) => self.notice = Some((error, Severity::Error)),
        }
        Vec::new()
    }

    /// Returns the names of the threads of the shown range, and of those that exist now but have no
    /// time there, as they wait for work; without a runtime's own.
    pub fn thread_names(&self) -> Vec<Arc<str>> {
        let threads = || self.view.projection.groups.iter().flat_map(|group| &group.threads);
        // One that executes goroutines is in several groups.
        let mut met = HashSet::new();
        let named = threads().filter(|of| met.insert((of.thread, of.name.clone())));
        let named = named.filter(|thread| thread.kind != ThreadKind::Internal);
        let mut names: Vec<Arc<str>> = named.map(|thread| thread.name.clone()).collect();
        if let Some(snapshot) = &self.view.snapshot {
            let shown: HashSet<ThreadKey> = threads().map(|of| of.thread).collect();
            let others = snapshot.threads.iter().filter(|now| !shown.contains(&now.thread));
            let tables = &snapshot.tables;
            let others = others.filter(|now| tables.kind(now.name) != ThreadKind::Internal);
            names.extend(others.map(|now| tables.name(now.name).clone()));
        }
        names
    }

    /// Returns whether the screen is frozen.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Returns whether trends of rows are shown: on a wide screen, or because rows are sorted by
    /// them.
    fn wants_trends(&self) -> bool {
        self.width >= layout::TRENDS_FROM || self.view.settings.sort == SortColumn::Change
    }

    /// Returns the displayed snapshot.
    pub fn shown_snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.view.whole.as_ref()
    }

    /// Returns the display settings.
    pub fn settings(&self) -> &crate::model::projection::settings::Settings {
        &self.view.settings
    }

    /// Returns the snapshot with what was looked up, as files keep it.
    pub fn with_looked_up(&self, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
        self.looked_up.with(snapshot)
    }

    /// Returns the place that decides what keys do (a prompt or dialog aside).
    pub fn place(&self) -> Place {
        match &self.overlay {
            Some(Overlay::Help(_) | Overlay::Wakers(_)) => Place::Help,
            _ => self.place_below(),
        }
    }

    /// Returns the same, whatever page is drawn over it.
    fn place_below(&self) -> Place {
        match &self.picker {
            Some(_) => Place::Picker,
            None => match self.view.pane {
                Pane::Tree | Pane::ChangedTree => Place::Tree,
                Pane::Methods | Pane::ChangedMethods => Place::Methods,
                Pane::Graph => Place::Graph,
                Pane::Flame | Pane::ChangedFlame => Place::Flame,
                Pane::Threads => Place::Threads,
                Pane::Timeline => Place::Timeline,
                Pane::Waits => Place::Waits,
                Pane::Source => Place::Source,
            },
        }
    }

    pub fn layout(&self) -> Layout {
        Layout::new(self.width, self.height, self.view.has_filters())
    }

    /// Returns the lines of the page that is drawn over the view.
    pub fn page_lines(&self) -> Vec<help::Line> {
        match (self.page(), &self.wakers) {
            (Some(Overlay::Wakers(_)), Some(wakers)) => {
                wakers::lines(wakers, &self.view, self.width)
            }
            _ => self.help_lines(),
        }
    }

    fn help_lines(&self) -> Vec<help::Line> {
        let measurement = self.view.snapshot.as_ref().map(|snapshot| {
            let projection = &self.view.projection;
            let metric = self.view.settings.metric;
            let certain = seconds_for_one_percent(&projection.total, metric, projection.elapsed());
            help::measurement(snapshot, self.interval, certain)
        });
        let about = (self.config.version.as_str(), &measurement.unwrap_or_default()[..]);
        help::lines(self.place_below(), about, self.width)
    }

    fn take(&mut self, snapshot: Arc<Snapshot>) {
        let notice = |s: &Option<Arc<Snapshot>>| s.as_ref().and_then(|s| s.notice.clone());
        if snapshot.notice.is_some() && snapshot.notice != notice(&self.newest) {
            self.notice = snapshot.notice.as_ref().map(|n| (n.to_string(), Severity::Warning));
        }
        self.name_baseline(&snapshot);
        self.keep_detail(&snapshot);
        match &self.held {
            None => self.ask(snapshot.clone(), false),
            // Adds names that were found since; ids never change meaning.
            Some(held) if held.health.naming || snapshot.health.naming => {
                let mut renamed = Snapshot::clone(held);
                renamed.tables = snapshot.tables.clone();
                renamed.health.naming = snapshot.health.naming;
                let renamed = Arc::new(renamed);
                self.held = Some(renamed.clone());
                self.ask(renamed, false);
            }
            Some(_) => {}
        }
        self.newest = Some(snapshot);
    }

    fn ask(&mut self, snapshot: Arc<Snapshot>, urgent: bool) {
        let mut settings = self.view.settings.clone();
        let against = self.baseline.clone().filter(|_| self.comparing);
        settings.inverted &= self.view.pane.compared(against.is_some()).has_trees();
        self.request = Some(Request {
            number: self.asked,
            snapshot,
            settings,
            against,
            trends: self.wants_trends(),
            timeline: (self.view.pane == Pane::Timeline).then(|| self.view.timeline.wanted()),
            function: self.view.source.key().filter(|_| self.view.pane == Pane::Source),
            urgent,
            spare: self.view.spare.take().or_else(|| self.request.take()?.spare),
        });
    }

    /// Requests a projection after a setting changed; the view keeps its content until then.
    fn project(&mut self) {
        if let Some(snapshot) = self.held.clone().or_else(|| self.newest.clone()) {
            self.asked += 1;
            self.ask(snapshot, true);
        }
    }

    /// Invalidates all earlier requests.
    fn ask_nothing(&mut self) {
        self.asked += 1;
        self.shown = self.asked;
        self.request = None;
    }

    fn show(&mut self, projected: Projected) {
        let Projected { request, projection, compared, busy_threads, timeline, function_time } =
            projected;
        let other = self.held.as_ref().is_some_and(|held| !Arc::ptr_eq(held, &request.snapshot));
        if request.number != self.asked || other {
            self.view.spare = Some(Box::new(projection));
            return;
        }
        self.shown = request.number;
        if self.frozen {
            self.held = Some(request.snapshot.clone());
        }
        let height = usize::from(self.layout().rows);
        self.view.busy_threads = busy_threads;
        // An answer to a request of another view has none.
        if let (Pane::Timeline, Some(timeline)) = (self.view.pane, timeline) {
            self.view.timeline.read(timeline, height);
        }
        self.view.source.take(function_time);
        self.view.show(request, projection, compared, height);
        if let Some(search) = self.wider_search.take() {
            self.end_wider_search(search, height);
        }
    }

    /// Returns true while the view does not reflect the settings yet.
    pub fn is_behind(&self) -> bool {
        self.shown != self.asked
    }

    fn keep_on_screen(&mut self) {
        let height = usize::from(self.layout().rows);
        self.view.keep_on_screen(height);
        let picker_rows = self.picker_rows();
        if let Some(picker) = &mut self.picker {
            picker.list.show(picker.rows.len(), picker_rows);
        }
        let (lines, page) = (self.page_lines().len(), self.help_rows());
        if let Some(Overlay::Help(list) | Overlay::Wakers(list)) = &mut self.overlay {
            scroll(list, Step::Up(0), lines, page);
        }
    }

    /// Returns the picker's lines for processes: all but its title, column titles and footer.
    pub fn picker_rows(&self) -> usize {
        usize::from(self.height.saturating_sub(3)).max(1)
    }

    /// Returns the help page's lines for text: all but its footer.
    pub fn help_rows(&self) -> usize {
        usize::from(self.height.saturating_sub(1)).max(1)
    }

    pub(super) fn step(&mut self, step: Step) {
        let rows = usize::from(self.layout().rows);
        let picker_rows = self.picker_rows();
        if matches!(self.overlay, Some(Overlay::Help(_) | Overlay::Wakers(_))) {
            let (lines, page) = (self.page_lines().len(), self.help_rows());
            if let Some(Overlay::Help(list) | Overlay::Wakers(list)) = &mut self.overlay {
                scroll(list, step, lines, page);
            }
        } else if self.overlay.is_some() {
        } else if let Some(picker) = &mut self.picker {
            picker.step(step, picker_rows);
        } else {
            self.view.step(step, rows);
        }
    }

    fn say(&mut self, text: impl Into<String>) {
        self.notice = Some((text.into(), Severity::Info));
    }
}

/// Scrolls help, which has no cursor: its first line moves.
fn scroll(list: &mut List, step: Step, len: usize, page: usize) {
    let last = len.saturating_sub(page);
    list.top = match step {
        Step::Up(n) => list.top.saturating_sub(n),
        Step::Down(n) => list.top.saturating_add(n),
        Step::First => 0,
        Step::Last => last,
        Step::To(line) => line,
    }
    .min(last);
    list.cursor = list.top;
}
