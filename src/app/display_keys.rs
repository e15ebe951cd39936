//! What keys choose of the display: order, groups of threads, which functions are rows, whose code
//! they are, which waits are idle.

use std::collections::HashSet;
use std::sync::Arc;

use super::AppState;
use super::filters::Field;
use super::pane::Pane;
use crate::model::facts::tables::{FrameId, FrameKind, NameId};
use crate::model::projection::settings::{Grouping, Level, Settings, SortColumn, Whose, pattern};

impl AppState {
    pub(super) fn sort(&mut self, column: SortColumn) {
        self.view.settings.sort = column;
        let rows = usize::from(self.layout().rows);
        match self.wants_trends() && !self.view.asked_for_trends {
            true => self.project(),
            false => self.view.reorder(rows),
        }
    }

    pub(super) fn sort_beside(&mut self, step: isize) {
        let columns = self.view.columns(self.width);
        self.sort(columns.sort_beside(self.view.sorted_by(), step));
    }

    /// Sorts by the column whose title is in this cell of the line; by the same column: the other
    /// way round.
    pub(super) fn sort_by_title(&mut self, cell: u16) {
        if matches!(self.view.pane, Pane::ChangedTree | Pane::ChangedMethods) {
            self.view.changes.sort_by_title(self.width, cell);
            return self.view.set_pane(self.view.pane, usize::from(self.layout().rows));
        }
        if !matches!(self.view.pane, Pane::Tree | Pane::Methods | Pane::Threads) {
            return;
        }
        let Some(sort) = self.view.columns(self.width).sort_at(cell) else { return };
        let settings = &mut self.view.settings;
        settings.reverse = sort == settings.sort && !settings.reverse;
        self.sort(sort);
    }

    pub(super) fn next_grouping(&mut self) {
        self.leave_group();
        self.view.settings.grouping = match &self.view.settings.grouping {
            Grouping::Rules => Grouping::Name,
            Grouping::Name => Grouping::Thread,
            Grouping::Thread => Grouping::Process,
            Grouping::Process => Grouping::Blocker,
            Grouping::Blocker => match self.view.projection.label_keys.is_empty() {
                true => Grouping::None,
                false => Grouping::Label(None),
            },
            Grouping::Label(key) => self.next_label(key.as_ref()),
            // Cycling through the groupings keeps the pattern of the command line.
            Grouping::None => match &self.config.settings.grouping {
                Grouping::Frame(pattern) => Grouping::Frame(pattern.clone()),
                _ => Grouping::Rules,
            },
            Grouping::Frame(_) => Grouping::Rules,
        };
        let by = match &self.view.settings.grouping {
            Grouping::Label(Some(key)) => format!("label {key}"),
            other => other.word().to_owned(),
        };
        self.say(format!("threads grouped by {by}"));
        self.view.open_again();
        self.project();
    }

    /// Returns the grouping that follows one by the value of a label, or by all of them: by the
    /// next key, where there are several.
    fn next_label(&self, key: Option<&Arc<str>>) -> Grouping {
        let keys = &self.view.projection.label_keys;
        let next = match key {
            None if keys.len() == 1 => None,
            None => keys.first(),
            Some(key) => keys.iter().find(|next| *next > key),
        };
        next.map_or(Grouping::None, |key| Grouping::Label(Some(key.clone())))
    }

    pub(super) fn set_level(&mut self, level: Level) {
        self.view.settings.level = level;
        self.say(match level {
            Level::Mine => "rows are your functions and what they call",
            Level::Chains => "rows are all functions, chains of calls on one line",
            Level::All => "rows are all functions, each on its own line",
        });
        self.view.open_again();
        self.project();
    }

    /// Calls the row's function the user's own code, or not; again: as it was judged.
    pub(super) fn mine_or_not(&mut self) {
        // A row of threads only names a function.
        let function = self.view.selected_function().filter(|_| self.view.pane != Pane::Threads);
        let Some((location, is_mine)) = function else {
            return self.say("select a call first: a thread group is no code");
        };
        if self.view.shown.roll_up.joins() {
            return self.say("code is yours by function: show functions first (b)");
        }
        let text = format!("^{}$", regex::escape(&location.function));
        let whose = &mut self.view.settings.whose;
        if let Some(at) = whose.iter().position(|w| w.pattern.as_str() == text) {
            whose.remove(at);
            self.say(format!("{} is judged by where it comes from again", location.function));
        } else {
            match pattern(&text) {
                Ok(pattern) => whose.push(Whose { pattern, mine: !is_mine }),
                Err(_) => return self.say("this name is too long for a pattern"),
            }
            // Under [`Level::Mine`] its row goes.
            let word = match is_mine {
                true => "not your code now; A on its row (o shows it) takes that back",
                false => "your code now; A on it takes that back",
            };
            self.say(format!("{} is {word}", location.function));
        }
        self.project();
    }

    /// Adds the row's function to those whose waits are idle, or removes it.
    pub(super) fn idle_here(&mut self) {
        let location = self.view.selected_location().filter(|_| self.view.pane != Pane::Threads);
        let Some(location) = location.cloned() else {
            self.say("select a call first: idle is what a function waits for, not a group");
            return;
        };
        if location.kind == FrameKind::Thread {
            return self
                .say("select a call first: idle is what a function waits for, not a thread");
        }
        if self.view.shown.roll_up.joins() {
            return self.say("idle is what a function waits for: show functions first (b)");
        }
        let text = format!("^{}$", regex::escape(&location.function));
        let idle_at = &mut self.view.settings.idle_at;
        if let Some(at) = idle_at.iter().position(|r| r.as_str() == text) {
            idle_at.remove(at);
            self.say(format!("waiting in {} is no longer idle", location.function));
        } else {
            match pattern(&text) {
                Ok(regex) => idle_at.push(regex),
                Err(_) => return self.say("this name is too long for a pattern"),
            }
            self.say(format!(
                "waiting in {} is idle now; I on this row (shown by i) takes it back",
                location.function
            ));
        }
        self.project();
    }

    /// Groups threads by the changed rules for their names.
    pub(super) fn rules_changed(&mut self) {
        if !matches!(self.view.settings.grouping, Grouping::Rules) {
            self.leave_group();
            self.view.settings.grouping = Grouping::Rules;
            self.say("threads are grouped by rules now");
        }
        self.view.open_again();
        self.project();
    }

    /// Keeps the hottest row under the cursor as time goes on; again: as before.
    pub(super) fn follow(&mut self) {
        let rows = usize::from(self.layout().rows);
        if let Some((expanded, selected)) = self.view.follows.take() {
            (self.view.expanded, self.view.selected) = (expanded, selected);
            self.view.reshape(rows);
            return self.say("the cursor is where it was");
        }
        if self.view.pane.is_compared() {
            return self.say("a comparison has no hottest path (= ends it)");
        }
        self.view.follows = Some((self.view.expanded.clone(), self.view.selected.clone()));
        self.view.go_to_hottest(rows);
        self.say("the cursor follows the hottest path; a movement lets it stay, F goes back");
    }

    /// Returns the names that the field of a filter is about: those that are shown, the heaviest
    /// first, then all others that were seen.
    pub(super) fn names_for(&self, field: Field) -> Vec<Arc<str>> {
        let projection = &self.view.projection;
        let mut names: Vec<Arc<str>> = match field {
            Field::Threads => {
                let groups = projection.ordered(&self.view.shown).groups();
                let groups = groups.into_iter().map(|group| &projection.groups[group as usize]);
                groups.map(|group| group.name.clone()).chain(self.thread_names()).collect()
            }
            Field::MinPercent
            | Field::NoKernel
            | Field::Native
            | Field::SkipDaemon
            | Field::Gil => Vec::new(),
            Field::Interesting | Field::Focus | Field::Ignore | Field::Hide => {
                let by_total = Settings { sort: SortColumn::Total, ..self.view.shown.clone() };
                let methods = projection.ordered(&by_total).methods().into_iter();
                methods.map(|method| self.view.method_location(method).function.clone()).collect()
            }
        };
        // What is hidden now is known too, as calls elsewhere and what another filter hides.
        if let Some(snapshot) = &self.view.snapshot {
            let tables = &snapshot.tables;
            match field {
                Field::Threads => {
                    let all = (0..tables.name_count() as u32).map(NameId);
                    names.extend(all.map(|name| tables.name(name).clone()));
                }
                Field::Interesting | Field::Focus | Field::Ignore | Field::Hide => {
                    let all = (0..tables.frame_count() as u32).map(FrameId);
                    let locations = all.flat_map(|frame| tables.named(frame).locations.iter());
                    names.extend(locations.map(|location| location.function.clone()));
                }
                Field::MinPercent
                | Field::NoKernel
                | Field::Native
                | Field::SkipDaemon
                | Field::Gil => {}
            }
        }
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }
}
