//! Goroutines, as the dump has them.

use std::collections::HashMap;

use crate::formats::dump::goroutines::{DumpGoroutine, DumpGoroutines};
use crate::model::facts::goroutines::{Goroutine, Goroutines};
use crate::model::facts::tables::Location;
use crate::model::projection::role_of;
use crate::model::projection::settings::Settings;
use crate::model::transform::redact::Redactor;
use crate::model::vocabulary::role::{Origin, Role};

/// Returns the goroutines with whose code their frames are, without the program's names if there is
/// a redactor.
pub fn of_processes(
    found: Vec<Goroutines>,
    settings: &Settings,
    mut redactor: Option<Redactor>,
) -> Vec<DumpGoroutines> {
    let mut all: Vec<DumpGoroutines> = found
        .into_iter()
        .filter(|of_process| of_process.found > 0)
        .map(|Goroutines { pid, list, found, on_threads, unreadable }| {
            let mut locks: HashMap<u64, u64> = HashMap::new();
            let list = list.into_iter().map(|goroutine| {
                let goroutine = match &mut redactor {
                    Some(redactor) => redacted(redactor, &mut locks, goroutine),
                    None => goroutine,
                };
                let Goroutine { id, state, waited, lock, labels, frames, created_by } = goroutine;
                let with_role = |(location, origin): (Location, Origin)| -> (Location, Role) {
                    let role = role_of(settings, &location, origin);
                    (location, role)
                };
                let created_by = created_by.map(with_role);
                let frames = frames.into_iter().map(with_role).collect();
                DumpGoroutine { id, state, waited, lock, labels, frames, created_by }
            });
            DumpGoroutines { pid, list: list.collect(), found, on_threads, unreadable }
        })
        .collect();
    all.sort_by_key(|of_process| of_process.pid);
    all
}

/// `locks`: the numbers that the locks of the process have instead of addresses.
fn redacted(
    redactor: &mut Redactor,
    locks: &mut HashMap<u64, u64>,
    goroutine: Goroutine,
) -> Goroutine {
    let mut of =
        |(location, origin): &(Location, Origin)| (redactor.location(location, *origin), *origin);
    let frames = goroutine.frames.iter().map(&mut of).collect();
    let created_by = goroutine.created_by.as_ref().map(of);
    let state = redactor.goroutine_state(&goroutine.state).into();
    let next = locks.len() as u64 + 1;
    let lock = goroutine.lock.map(|lock| *locks.entry(lock).or_insert(next));
    let labels = goroutine.labels.map(|labels| redactor.labels(&labels).into());
    Goroutine { state, lock, labels, frames, created_by, ..goroutine }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::FrameKind;
    use crate::model::transform::redact::Key;

    fn goroutine(state: &str) -> Goroutine {
        let frame = |name: &str, file: &str| Location {
            file: Some(file.into()),
            line: Some(7),
            ..Location::named(name, FrameKind::Native)
        };
        Goroutine {
            id: 17,
            state: state.into(),
            waited: Some(5),
            lock: Some(0xc000_1000 + state.len() as u64),
            labels: Some("[labels acme=settle, tenant=(other)]".into()),
            frames: vec![
                (frame("net/http.(*conn).serve", "server.go"), Origin::Library),
                (frame("acme/pay.Settle", "/src/acme/settle.go"), Origin::App),
            ],
            created_by: Some((frame("acme/pay.Start", "/src/acme/start.go"), Origin::App)),
        }
    }

    fn found(pid: u32) -> Goroutines {
        let list = ["IO wait", "wait for acme"].map(goroutine).into();
        Goroutines { pid, list, found: 9, on_threads: 3, unreadable: 1 }
    }

    #[test]
    fn no_name_of_the_program_is_left() {
        let redactor = Redactor::new(Key([1, 2]));
        let settings = Settings::default();
        let all = of_processes(vec![found(5), found(2)], &settings, Some(redactor));
        assert_eq!([all[0].pid, all[1].pid], [2, 5]);
        let text = format!("{all:?}").to_lowercase();
        assert!(!text.contains("acme") && !text.contains("settle"), "{text}");
        assert_eq!((&*all[0].list[0].state, all[0].list[0].waited), ("IO wait", Some(5)));
        let locks: Vec<_> = all[0].list.iter().map(|one| one.lock).collect();
        assert_eq!(locks, [Some(1), Some(2)], "addresses are numbers");
        let labels = all[0].list[0].labels.as_deref().unwrap_or("");
        assert!(labels.starts_with("[labels ") && labels.ends_with("=(other)]"), "{labels}");
        let plain = of_processes(vec![found(5)], &settings, None);
        let roles =
            |of: &DumpGoroutine| of.frames.iter().map(|(_, role)| *role).collect::<Vec<_>>();
        assert_eq!(roles(&all[0].list[0]), roles(&plain[0].list[0]));
        assert_eq!(plain[0].list[0].lock, Some(0xc000_1007));
    }

    #[test]
    fn frames_have_the_role_of_their_origin() {
        let all = of_processes(vec![found(5), Goroutines::default()], &Settings::default(), None);
        assert_eq!(all.len(), 1, "no goroutines, no list");
        let DumpGoroutines { pid, list, found, on_threads, unreadable } = &all[0];
        assert_eq!((*pid, *found, *on_threads, *unreadable), (5, 9, 3, 1));
        let roles: Vec<Role> = list[0].frames.iter().map(|(_, role)| *role).collect();
        assert_eq!(roles, [Role::Library, Role::App]);
        let created_by = list[0].created_by.as_ref().map(|(by, role)| (&*by.function, *role));
        assert_eq!(created_by, Some(("acme/pay.Start", Role::App)));
        assert_eq!(&*list[1].state, "wait for acme");
    }
}
