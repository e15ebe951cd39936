//! Summarizes many waits on one line, the most frequent first.

use std::collections::BTreeMap;

use super::WaitsFor;

/// Maximum kinds of waits that are listed by object; more are listed only by call.
const APART: usize = 4;

/// Counts what these threads wait for. Waits for the same object are counted together, whatever the
/// descriptor (`recv fd.. -> 10.0.3.9:5432`). If nearly all threads wait for different objects,
/// counts only the calls. The most frequent first, equal ones by text.
pub fn summary<'a>(waits: impl Iterator<Item = &'a WaitsFor>) -> Vec<(usize, String)> {
    let mut alike: BTreeMap<(&str, &str), Group<'a>> = BTreeMap::new();
    for wait in waits {
        alike.entry((wait.what, &wait.object)).or_insert_with(|| Group::new(wait)).add(wait);
    }
    let single: Vec<(&str, &str)> =
        alike.iter().filter(|(_, group)| group.count == 1).map(|(key, _)| *key).collect();
    if single.len() > APART {
        for key in single {
            let Some(group) = alike.remove(&key) else { continue };
            match alike.get_mut(&(key.0, "")) {
                Some(calls) => calls.join(&group),
                None => drop(alike.insert((key.0, ""), Group { object: "", ..group })),
            }
        }
    }
    let mut all: Vec<(usize, String)> =
        alike.values().map(|group| (group.count, group.text())).collect();
    all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    all
}

struct Group<'a> {
    count: usize,
    what: &'static str,
    fd: Option<i32>,
    /// The descriptors differ.
    fds: bool,
    object: &'a str,
}

impl<'a> Group<'a> {
    fn new(wait: &'a WaitsFor) -> Group<'a> {
        Group { count: 0, what: wait.what, fd: wait.fd, fds: false, object: &wait.object }
    }

    fn add(&mut self, wait: &WaitsFor) {
        self.count += 1;
        self.fds |= self.fd != wait.fd;
    }

    fn join(&mut self, other: &Group<'_>) {
        self.count += other.count;
        self.fds |= other.fds || self.fd != other.fd;
    }

    fn text(&self) -> String {
        if self.fds {
            let object = if self.object.is_empty() { "" } else { " " };
            return format!("{} fd..{object}{}", self.what, self.object);
        }
        WaitsFor { what: self.what, fd: self.fd, object: self.object.to_owned() }.to_string()
    }
}
