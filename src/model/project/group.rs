//! What a thread is shown under.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::rows::Rows;
use crate::model::frame::{ThreadKey, ThreadKind};
use crate::model::settings::{Grouping, Rename, Settings};
use crate::model::snapshot::Snapshot;
use crate::model::tables::NameId;

/// Shown for a name of which the rules leave nothing.
pub const UNNAMED: &str = "(unnamed)";
/// The group of stacks without a frame that matches, under [`Grouping::Frame`].
pub const NO_MATCH: &str = "(no match)";
/// The one group of [`Grouping::None`].
pub const ALL: &str = "(all)";
/// The group of threads that a runtime made for itself, under [`Grouping::Rules`]; inside of it
/// they go by their names. (There is one runtime yet whose own threads are known.)
pub const INTERNAL: &str = "[JVM]";

/// The name a thread called `name` is grouped under: the default rules, then `rename` in order.
pub fn by_rules(name: &str, rename: &[Rename]) -> String {
    let mut name = named(default_rules(name));
    for rule in rename {
        name = named(rule.pattern.replace_all(&name, rule.text.as_str()).into_owned());
    }
    name
}

fn named(name: String) -> String {
    if name.trim().is_empty() { UNNAMED.to_owned() } else { name }
}

/// Removes `[0-9a-f]{16,}`, then `[.:\d]+`, then squeezes repeated separators.
fn default_rules(name: &str) -> String {
    let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let run = rest.find(|c| !is_hex(c)).unwrap_or(rest.len());
        let end = if run == 0 { c.len_utf8() } else { run };
        if run < 16 {
            kept.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    let mut squeezed = String::with_capacity(kept.len());
    for c in kept.chars().filter(|c| !matches!(c, '.' | ':' | '0'..='9')) {
        let separates =
            matches!(c, '-' | '_' | ' ' | '/' | '#' | '@' | ',' | ';' | '|' | '+' | '=');
        if !(separates && squeezed.ends_with(c)) {
            squeezed.push(c);
        }
    }
    squeezed
}

/// What threads of a runtime itself are called inside of [`INTERNAL`]: without the number at their
/// end, which is all that tells those apart that do the same (`G1 Conc#0`); other digits are part
/// of the name (`C2 CompilerThread1`).
pub fn internal_name(name: &str, rename: &[Rename]) -> String {
    let mut name =
        named(name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '#').to_owned());
    for rule in rename {
        name = named(rule.pattern.replace_all(&name, rule.text.as_str()).into_owned());
    }
    name
}

/// What decides a fact's group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Name(NameId),
    Thread(ThreadKey),
    Process(u32),
    /// The first frame that matches, a location of [`Rows`].
    Frame(Option<u32>),
    All,
}

/// What a group is called. Several with one name, of which some have an inner one, are shown as
/// one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Label {
    pub name: Arc<str>,
    /// The row of these threads inside of it.
    pub inner: Option<Arc<str>>,
}

impl Label {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [Some(&self.name), self.inner.as_ref()].into_iter().flatten().map(|name| &**name)
    }
}

/// Gives every group a number. What was looked at once is not looked at again.
#[derive(Default)]
pub(super) struct Groups {
    labels: Vec<Label>,
    by_label: HashMap<Label, u32>,
    by_key: FxHashMap<Key, u32>,
}

impl Groups {
    /// Other settings: everybody is grouped anew.
    pub(super) fn forget(&mut self) {
        *self = Groups::default();
    }

    /// A target that makes threads and names all day must not fill this memory.
    pub(super) fn bound(&mut self) {
        if self.by_key.len() > 200_000 {
            self.forget();
        }
    }

    /// The group of a fact; `frame` is the first frame that matches, under [`Grouping::Frame`].
    pub(super) fn of(
        &mut self,
        snapshot: &Snapshot,
        settings: &Settings,
        rows: &Rows,
        (thread, name): (ThreadKey, NameId),
        frame: Option<u32>,
    ) -> u32 {
        let key = match settings.grouping {
            Grouping::Rules | Grouping::Name => Key::Name(name),
            Grouping::Thread => Key::Thread(thread),
            Grouping::Process => Key::Process(thread.pid),
            Grouping::None => Key::All,
            Grouping::Frame(_) => Key::Frame(frame),
        };
        if let Some(group) = self.by_key.get(&key) {
            return *group;
        }
        let text = || snapshot.tables.name(name);
        let internal = snapshot.tables.kind(name) == ThreadKind::Internal;
        let mut inner = None;
        let label: Arc<str> = match settings.grouping {
            Grouping::Rules if internal => {
                inner = Some(internal_name(text(), &settings.rename).into());
                INTERNAL.into()
            }
            Grouping::Rules => by_rules(text(), &settings.rename).into(),
            Grouping::Name => text().clone(),
            Grouping::Thread => thread_label(text(), thread).into(),
            Grouping::Process => {
                match snapshot.targets.iter().rfind(|target| target.pid == thread.pid) {
                    Some(target) => format!("{} {}", target.pid, target.command).into(),
                    None => thread.pid.to_string().into(),
                }
            }
            Grouping::None => ALL.into(),
            Grouping::Frame(_) => {
                frame.map_or_else(|| NO_MATCH.into(), |l| rows.location(l).function.clone())
            }
        };
        let label = Label { name: label, inner };
        let next = self.labels.len() as u32;
        let group = match settings.grouping {
            // One group each, whatever two threads are called.
            Grouping::Thread => next,
            _ => *self.by_label.entry(label.clone()).or_insert(next),
        };
        if group == next {
            self.labels.push(label);
        }
        self.by_key.insert(key, group);
        group
    }

    /// Groups are numbered from 0 to this.
    pub(super) fn count(&self) -> usize {
        self.labels.len()
    }

    pub(super) fn label(&self, group: u32) -> &Label {
        &self.labels[group as usize]
    }
}

/// What a thread's own group is called.
pub(super) fn thread_label(name: &str, thread: ThreadKey) -> String {
    format!("{name} ({})", thread.tid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_rules_leave_what_threads_have_in_common() {
        for (name, group) in [
            ("work-1", "work-"),
            ("work-12", "work-"),
            ("http-nio-8080-exec-7", "http-nio-exec-"),
            ("pool-3-thread-11", "pool-thread-"),
            ("kworker/0:1H", "kworker/H"),
            ("conn 10.0.3.9:5432 x", "conn x"),
            ("main", "main"),
            ("1234", "(unnamed)"),
            ("", "(unnamed)"),
            (" 7 ", "(unnamed)"),
            ("req 0123456789abcdef done", "req done"),
            ("req 0123456789abcde done", "req abcde done"),
            ("req deadbeefdeadbeefdeadbeef", "req "),
            ("decade", "decade"),
            ("größe-2", "größe-"),
        ] {
            assert_eq!(by_rules(name, &[]), group, "{name}");
        }
    }

    #[test]
    fn threads_of_a_runtime_keep_the_digits_of_their_names() {
        for (name, inner) in [
            ("C2 CompilerThread0", "C2 CompilerThread"),
            ("GC Thread#12", "GC Thread"),
            ("G1 Main Marker", "G1 Main Marker"),
            ("VM Periodic Tas", "VM Periodic Tas"),
            ("7", UNNAMED),
        ] {
            assert_eq!(internal_name(name, &[]), inner, "{name}");
        }
        let rename = [Rename::parse("s/^C[12] CompilerThread/compiler/").unwrap()];
        assert_eq!(internal_name("C2 CompilerThread0", &rename), "compiler");
    }

    #[test]
    fn renames_follow_the_rules_in_order() {
        let rules = ["s/^http-nio-exec-$/http/", "s/^h(t+)p/$1/", "s/x//"]
            .map(|text| Rename::parse(text).unwrap());
        assert_eq!(by_rules("http-nio-8080-exec-7", &rules), "tt");
        assert_eq!(by_rules("x", &rules), UNNAMED);
        let unnamed = [Rename::parse("s/^.unnamed.$/numbers/").unwrap()];
        assert_eq!(by_rules("42", &unnamed), "numbers");
    }
}
