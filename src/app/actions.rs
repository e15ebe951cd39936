//! Implements each action.

use std::time::Duration;

use super::event::{Counted, Effect, Severity};
use super::filters::Dialog;
use super::flame::Move;
use super::keymap::{Action, Place};
use super::list::{List, Step};
use super::looked_up::LookedUp;
use super::page_search::PageSearch;
use super::pane::Pane;
use super::picker::Refusal;
use super::prompt::{Ask, Prompt, Question};
use super::rules::RulesDialog;
use super::time_cursor::Go;
use super::time_range;
use super::view::View;
use super::wakers::{self, Wakers};
use super::{AppState, Overlay, WiderSearch, insight};
use crate::config::{Choices, Wanted};
use crate::model::projection::settings::{Level, Metric, Range, RollUp, SortColumn};

/// Windows are at least this; at most a day.
const SECOND: Duration = Duration::from_secs(1);

impl AppState {
    pub(super) fn act(&mut self, action: Action) -> Vec<Effect> {
        let rows = usize::from(self.layout().rows);
        let page = match self.place() {
            Place::Help => self.help_rows(),
            Place::Picker => self.picker_rows(),
            Place::Timeline => self.view.timeline.lines(rows).0,
            Place::Tree
            | Place::Methods
            | Place::Graph
            | Place::Flame
            | Place::Threads
            | Place::Waits
            | Place::Source => rows,
        };
        // One row of the previous page stays on the screen.
        let page = page.saturating_sub(1).max(1);
        match action {
            Action::Up => self.step(Step::Up(1)),
            Action::Down => self.step(Step::Down(1)),
            Action::PageUp => self.step(Step::Up(page)),
            Action::PageDown | Action::NextPage => self.step(Step::Down(page)),
            Action::First => self.step(Step::First),
            Action::Last => self.step(Step::Last),
            Action::Expand => self.view.expand(rows),
            Action::Open => self.open(rows),
            Action::Collapse => self.view.collapse(rows),
            Action::ExpandHottest => self.view.expand_hottest(rows),
            Action::CollapseAll => self.view.collapse_all(rows),
            Action::Freeze => self.freeze(),
            Action::SortSelfTotal if self.view.pane == Pane::Waits => {
                let list = &mut self.view.wait_list;
                list.latest_first = !list.latest_first;
                list.read(&self.view.projection, rows);
            }
            Action::SortSelfTotal | Action::SortLeft | Action::SortRight | Action::SortReverse
                if self.view.pane.is_compared() =>
            {
                self.sort_changes(action);
            }
            Action::SortSelfTotal => {
                let by_self = self.view.settings.sort == SortColumn::SelfTime;
                self.sort(if by_self { SortColumn::Total } else { SortColumn::SelfTime });
            }
            Action::SortLeft => self.sort_beside(-1),
            Action::SortRight => self.sort_beside(1),
            Action::SortReverse => {
                self.view.settings.reverse = !self.view.settings.reverse;
                self.view.reorder(rows);
            }
            Action::NextMetric => {
                self.view.settings.metric = next(&Metric::ALL, self.view.settings.metric);
                self.metric_changed();
            }
            Action::CpuBySelf => {
                self.view.settings.metric = Metric::Cpu;
                self.view.settings.reverse = false;
                self.sort(SortColumn::SelfTime);
                self.metric_changed();
            }
            Action::RollingCumulative => {
                self.set_range(match self.view.settings.range {
                    Range::Rolling(_) => Range::Cumulative { since: None },
                    Range::Cumulative { .. } | Range::Between { .. } => Range::Rolling(self.window),
                });
            }
            Action::EarlierBucket => self.move_time_cursor(Go::Buckets(-1)),
            Action::LaterBucket => self.move_time_cursor(Go::Buckets(1)),
            Action::EarlierWindow => self.move_time_cursor(Go::Windows(-1)),
            Action::LaterWindow => self.move_time_cursor(Go::Windows(1)),
            Action::PreviousPeak => self.move_time_cursor(Go::PreviousPeak),
            Action::NextPeak => self.move_time_cursor(Go::NextPeak),
            Action::ShowLive => self.show_live(),
            Action::CountFromNow => self.count_from_now(),
            Action::KeepBaseline => self.keep_baseline(),
            Action::Compare => self.compare(),
            Action::NextGrouping => self.next_grouping(),
            Action::Search if self.page().is_some() => self.ask_page(),
            Action::NextMatch if self.page().is_some() => self.next_line(1),
            Action::PreviousMatch if self.page().is_some() => self.next_line(-1),
            Action::Search => self.ask_for(Question::Search, String::new()),
            Action::NextMatch => self.next_match(1),
            Action::PreviousMatch => self.next_match(-1),
            Action::NextFinding => self.next_finding(),
            Action::TreeView => self.show_pane(Pane::Tree),
            Action::MethodsView => self.show_pane(Pane::Methods),
            Action::GraphView => self.show_graph(),
            Action::GraphBack => self.graph_back(),
            Action::FlameView => self.show_pane(Pane::Flame),
            Action::BarLeft => self.view.go_to_bar(Move::Left, rows),
            Action::BarRight => self.view.go_to_bar(Move::Right, rows),
            Action::FlameOut => self.zoom_out(),
            Action::FlameColors => self.next_bar_colors(),
            Action::Invert => self.invert(),
            Action::ThreadsView => self.show_pane(Pane::Threads),
            Action::TimelineView => self.show_timeline(),
            Action::PreviousColumn => self.step_column(-1),
            Action::NextColumn => self.step_column(1),
            Action::PreviousRun => self.step_run(-1),
            Action::NextRun => self.step_run(1),
            Action::ZoomIn => self.zoom_by(false),
            Action::ZoomOut => self.zoom_by(true),
            Action::WaitsView => self.show_pane(Pane::Waits),
            Action::Source => self.show_source(),
            Action::SourceBack => _ = self.leave_source(),
            Action::NextHot => self.next_hot(1),
            Action::PreviousHot => self.next_hot(-1),
            Action::NextView => match next(&Pane::ALL, self.view.pane.compared(false)) {
                Pane::Graph => self.show_graph(),
                Pane::Timeline => self.show_timeline(),
                pane => self.show_pane(pane),
            },
            Action::NextRollUp => {
                self.view.settings.roll_up = next(&RollUp::ALL, self.view.settings.roll_up);
                self.say(format!("rows are {}", self.view.settings.roll_up.plural()));
                self.view.graph.forget();
                self.view.open_again();
                self.project();
            }
            Action::Filters => self.overlay = Some(Overlay::Filters(Dialog::default())),
            Action::ShowIdle => {
                self.view.settings.idle = !self.view.settings.idle;
                self.project();
            }
            Action::IdleHere => self.idle_here(),
            Action::Interval | Action::StopSampling | Action::UsePtrace if self.config.saved => {
                self.say("this is a saved profile: nothing is sampled");
            }
            Action::Interval => {
                let now = humantime::format_duration(self.interval).to_string();
                self.ask_for(Question::Interval, now);
            }
            Action::Window => match self.time() {
                Some(clock) => {
                    let now = clock.range_words(self.view.settings.range);
                    self.ask_for(Question::Window, now);
                }
                None => self.say("there is no history yet"),
            },
            Action::StopSampling => return self.stop_sampling(),
            Action::Export => return self.export(),
            Action::UseMouse => {
                let taken = !self.config.screen.mouse;
                self.config.screen.mouse = taken;
                self.say(match taken {
                    true => "the mouse selects and scrolls rows; Y leaves it to the terminal",
                    false => "the mouse is the terminal's, to select and copy text",
                });
                return vec![Effect::UseMouse(taken)];
            }
            Action::SaveChoices => return self.save_choices(),
            Action::ShortNames => self.view.short_names = !self.view.short_names,
            Action::NextLevel => {
                self.set_level(next(&Level::ALL, self.view.settings.level));
            }
            Action::Mine => self.mine_or_not(),
            Action::CopyStack => return self.copy_stack(),
            Action::RowMenu => self.open_menu(),
            Action::Follow => self.follow(),
            Action::NameRules => self.overlay = Some(Overlay::Rules(RulesDialog::default())),
            Action::Wakers => return self.count_wakers(),
            Action::UsePtrace => {
                if self.ptrace_helps {
                    self.overlay = Some(Overlay::Ask(Ask::UsePtrace));
                } else {
                    self.say("the way of capture in use needs no help from stopping threads");
                }
            }
            Action::Pick => return self.pick(),
            Action::Mark => {
                let rows = self.picker_rows();
                if let Some(Err(Refusal::Full)) = self.picker.as_mut().map(|p| p.mark(rows)) {
                    self.say(format!("at most {} processes are watched at once", Wanted::AT_ONCE));
                }
            }
            Action::ProcessTree => {
                let rows = self.picker_rows();
                self.picker.iter_mut().for_each(|picker| picker.toggle_tree(rows));
            }
            Action::ColumnLeft => self.sort_processes(-1),
            Action::ColumnRight => self.sort_processes(1),
            Action::Refresh => {
                let rows = self.picker_rows();
                if let Some(picker) = &mut self.picker {
                    picker.sort(rows);
                }
                return vec![Effect::Refresh];
            }
            Action::Quit if self.place() == Place::Help => self.overlay = None,
            Action::Quit => return self.quit(),
            Action::Interrupt if self.overlay.is_some() => self.overlay = None,
            Action::Interrupt => return self.quit(),
            Action::Help => {
                self.page_search = PageSearch::default();
                self.overlay = if self.place() == Place::Help {
                    None
                } else {
                    Some(Overlay::Help(List::default()))
                };
            }
            Action::Redraw => return vec![Effect::Redraw],
            Action::Suspend => return vec![Effect::Suspend],
            Action::Escape => {
                let pending = self.time_cursor.is_some_and(|cursor| !cursor.is_range);
                if self.overlay.take().is_none() {
                    let in_timeline = self.view.pane == Pane::Timeline;
                    let in_flame = self.view.pane.is_flame();
                    match pending {
                        true => self.time_cursor = None,
                        false if in_timeline && self.zoom_back() => {}
                        false if self.view.search.take().is_some() => {}
                        false if in_flame && self.view.zoom_out_fully(rows) => {}
                        false if self.leave_source() => {}
                        // The list of processes that this session began with.
                        false if self.is_picked() => {
                            self.overlay = Some(Overlay::Ask(Ask::PickAgain));
                        }
                        false => {}
                    }
                }
            }
        }
        Vec::new()
    }

    pub(super) fn copy_stack(&mut self) -> Vec<Effect> {
        match self.view.stack_text() {
            Some(text) => {
                self.say("stack copied, where the terminal allows it (OSC 52)");
                vec![Effect::Copy(text)]
            }
            None => {
                self.say("select a call first: a thread group has no stack to copy");
                Vec::new()
            }
        }
    }

    fn quit(&mut self) -> Vec<Effect> {
        if self.config.ask_on_quit && !self.target_ended() {
            self.overlay = Some(Overlay::Ask(Ask::Quit));
            return Vec::new();
        }
        vec![Effect::Quit { end_child: false }]
    }

    fn target_ended(&self) -> bool {
        self.newest.as_ref().is_some_and(|s| s.is_over())
    }

    pub(super) fn freeze(&mut self) {
        self.frozen = !self.frozen;
        self.view.timeline.has_frozen = false;
        self.held = if self.frozen { self.view.whole.clone() } else { None };
        if !self.frozen || self.is_behind() {
            self.project();
        } else {
            // Discards pending projections of newer facts, so that they do not replace the frozen
            // ones.
            self.ask_nothing();
        }
    }

    pub(super) fn set_range(&mut self, range: Range) {
        if let Range::Rolling(window) = range {
            self.window = window;
        }
        self.before_mark = None;
        self.time_cursor = None;
        self.forget_zoom();
        self.view.settings.range = range;
        let without_trends = matches!(range, Range::Cumulative { since: None });
        if without_trends && self.view.settings.sort == SortColumn::Change {
            self.say("all time since the start has no +/-: rows are sorted by total");
        }
        self.project();
    }

    fn count_from_now(&mut self) {
        self.time_cursor = None;
        self.forget_zoom();
        if let Some(before) = self.before_mark.take() {
            self.view.settings.range = before;
            self.say("counts as before");
        } else if let Some(snapshot) = &self.view.snapshot {
            self.before_mark = Some(self.view.settings.range);
            self.view.settings.range = Range::Cumulative { since: Some(snapshot.at) };
            self.say("counting from now; 0 again: as before");
        }
        self.project();
    }

    /// Goes to the row of the next sentence that is about one.
    fn next_finding(&mut self) {
        let nodes: Vec<u32> = insight::nodes(self);
        let Some(node) = nodes.get(self.next_finding % nodes.len().max(1)) else {
            self.say("no sentence is about a row");
            return;
        };
        self.next_finding = (self.next_finding + 1) % nodes.len();
        self.go_to(*node);
    }

    pub(super) fn next_match(&mut self, step: isize) {
        let rows = usize::from(self.layout().rows);
        if self.view.search.is_none() {
            self.say("nothing is searched for; / asks");
        } else if !self.view.next_match(step, rows) {
            if self.view.settings.level == Level::Mine && !self.view.pane.is_compared() {
                let expanded = self.view.expanded.clone();
                self.set_level(Level::All);
                self.wider_search = Some(WiderSearch { step, expanded });
                return self.say("no match in your code: all frames are searched (o: yours alone)");
            }
            self.say("no match");
        }
    }

    /// Searches among all frames, which are shown now.
    pub(super) fn end_wider_search(&mut self, search: WiderSearch, height: usize) {
        if self.view.settings.level != Level::Mine && !self.view.next_match(search.step, height) {
            self.set_level(Level::Mine);
            self.view.open_as_before(search.expanded);
            self.say("no match");
        }
    }

    pub(super) fn time(&self) -> Option<time_range::Clock<'_>> {
        let snapshot = self.view.snapshot.as_ref()?;
        Some(time_range::Clock { snapshot, zone: &self.config.zone })
    }

    fn ask_for(&mut self, question: Question, text: String) {
        self.overlay = Some(Overlay::Prompt(Prompt::new(question, text)));
    }

    /// Counts who wakes the threads of the row; shows what was counted while another page was open.
    pub(super) fn count_wakers(&mut self) -> Vec<Effect> {
        match &self.wakers {
            Some(Wakers { counted: None, .. }) => {
                self.say("still counting who wakes whom");
                return Vec::new();
            }
            Some(Wakers { counted: Some(_), is_shown: false, .. }) => {
                self.open_wakers();
                return Vec::new();
            }
            _ => {}
        }
        let kept = self.view.snapshot.as_ref().and_then(|snapshot| snapshot.wakeups.clone());
        let kept = kept.filter(|_| self.config.saved);
        if self.config.saved && kept.is_none() {
            self.say("who woke whom was not counted for this profile (record --wakers)");
            return Vec::new();
        }
        if kept.is_none() && self.target_ended() {
            self.say("the process has ended: nothing wakes its threads");
            return Vec::new();
        }
        let Some(row) = wakers::row_threads(&self.view) else {
            self.say("select a group or a call first: its threads are counted");
            return Vec::new();
        };
        self.wakers = Some(Wakers { row, counted: None, is_shown: false });
        if let Some(kept) = kept {
            return vec![Effect::NameWakers(kept)];
        }
        let seconds = wakers::TIME.as_secs();
        self.say(format!("counting who wakes whom for {seconds} s: at most 0.2 us a wakeup"));
        vec![Effect::CountWakeups(wakers::TIME)]
    }

    pub(super) fn show_wakers(&mut self, counted: Result<Box<Counted>, String>) {
        match (counted, &mut self.wakers) {
            (Err(sentence), wakers) => {
                *wakers = None;
                self.notice = Some((sentence, Severity::Error));
            }
            (Ok(counted), Some(wakers)) => {
                self.looked_up.counted(counted.wakeups.clone());
                let cost = wakers::cost(&counted.wakeups);
                wakers.counted = Some(*counted);
                if self.overlay.is_none() && self.picker.is_none() {
                    self.open_wakers();
                    self.say(cost);
                } else {
                    self.say(format!("{cost} (u shows them)"));
                }
            }
            (Ok(_), None) => {}
        }
    }

    fn open_wakers(&mut self) {
        if let Some(wakers) = &mut self.wakers {
            wakers.is_shown = true;
            self.page_search = PageSearch::default();
            self.overlay = Some(Overlay::Wakers(List::default()));
        }
    }

    fn stop_sampling(&mut self) -> Vec<Effect> {
        if self.newest.as_ref().is_some_and(|s| s.stopped) {
            self.say("sampling goes on");
            return vec![Effect::PauseSampling(false)];
        }
        self.overlay = Some(Overlay::Ask(Ask::StopSampling));
        Vec::new()
    }

    fn export(&mut self) -> Vec<Effect> {
        if self.config.secure {
            self.notice = Some(("nothing is written under --secure".into(), Severity::Error));
            return Vec::new();
        }
        match &self.view.whole {
            None => {
                self.say("there is nothing to save yet");
                Vec::new()
            }
            Some(snapshot) => {
                let effect = Effect::Export {
                    snapshot: self.looked_up.with(snapshot),
                    settings: Box::new(self.view.settings.clone()),
                };
                self.say("saving ...");
                vec![effect]
            }
        }
    }

    /// Saves what is chosen; filters that are off are not among them.
    fn save_choices(&mut self) -> Vec<Effect> {
        if self.config.secure {
            self.notice = Some(("nothing is written under --secure".into(), Severity::Error));
            return Vec::new();
        }
        // Its settings are its own, and some keys of the file were not read for it.
        if self.config.saved {
            self.say("a saved profile has its own settings: W saves those of a live session");
            return Vec::new();
        }
        vec![Effect::SaveChoices(Box::new(self.choices()))]
    }

    /// Returns what is chosen now.
    pub fn choices(&self) -> Choices {
        let mut settings = self.view.settings.clone();
        // A group that is shown alone for a while is no choice for later runs.
        if let Some(before) = &self.before_group {
            settings.filters.threads = before.clone();
        }
        Choices {
            settings,
            window: Duration::from_nanos(self.window).clamp(SECOND, 24 * 3600 * SECOND),
            interval: self.interval,
            mouse: self.config.screen.mouse,
            names: self.view.names(),
        }
    }

    fn pick(&mut self) -> Vec<Effect> {
        let Some(picker) = &self.picker else { return Vec::new() };
        let pids = match picker.pick(self.now) {
            Ok(pids) => pids,
            Err(Refusal::Moved) => {
                self.say(
                    "the list has just changed: check the selected process, then press Enter again",
                );
                return Vec::new();
            }
            Err(Refusal::NoMatch | Refusal::Full) => {
                self.say("no process matches: nothing to watch");
                return Vec::new();
            }
        };
        self.picker = None;
        self.forget_session();
        // The list of processes has other keys.
        if std::mem::take(&mut self.config.first_start) {
            self.say(super::FIRST_KEYS);
        }
        vec![Effect::Attach(pids)]
    }

    /// Returns whether a process was picked from the list.
    fn is_picked(&self) -> bool {
        self.config.pick && self.picker.is_none()
    }

    /// Forgets what was seen; what the user chose stays.
    pub(super) fn forget_session(&mut self) {
        self.leave_group();
        let asked = self.view.source.asked;
        self.view = View::new(self.view.settings.clone(), self.view.names());
        // A text that was asked for may still come.
        self.view.source.asked = asked;
        self.view.resize(self.width, usize::from(self.layout().rows));
        // Other ranges are parts of this session's time.
        if !matches!(
            self.view.settings.range,
            Range::Rolling(_) | Range::Cumulative { since: None }
        ) {
            self.view.settings.range = Range::Rolling(self.window);
        }
        self.before_mark = None;
        (self.newest, self.held, self.wakers) = (None, None, None);
        (self.frozen, self.ptrace_helps) = (false, false);
        (self.time_cursor, self.before_cursor) = (None, None);
        self.looked_up = LookedUp::default();
        // A range of this session is no baseline for another.
        self.baseline.take_if(|baseline| baseline.file.is_none());
        self.comparing &= self.baseline.is_some();
        self.waits.clear();
        self.ask_nothing();
    }

    fn sort_processes(&mut self, step: isize) {
        let (width, rows) = (self.width, self.picker_rows());
        self.picker.iter_mut().for_each(|picker| picker.sort_beside(step, width, rows));
    }
}

/// Returns the value after `now`, the first after the last.
fn next<T: Copy + PartialEq>(all: &[T], now: T) -> T {
    let at = all.iter().position(|x| *x == now).unwrap_or(0);
    all[(at + 1) % all.len()]
}
