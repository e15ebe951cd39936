//! Finds the processes to watch, attaches to them, and keeps the list of all present and past ones.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::capture::{Control, Controller};
use crate::config::Wanted;
use crate::exit_code::Failure;
use crate::model::facts::snapshot;
use crate::process::process_list::{Proc, lineage};
use crate::process::select::{Processes, Select};
use crate::process::target::{AttachError, Target, command_of};

/// Interval between two searches for processes that match a name or a group.
const EVERY: Duration = Duration::from_millis(500);
/// The same where children are watched too, which may be short-lived.
const CHILDREN_EVERY: Duration = Duration::from_millis(250);
/// Pause after a search, in multiples of the search's duration, so that it costs at most a
/// hundredth of a core. The pause is at most [`EVERY_AT_LEAST`], even where that costs more.
const COSTS: u32 = 100;
const EVERY_AT_LEAST: Duration = Duration::from_secs(1);

/// Maximum targets remembered; beyond it the oldest exited ones are forgotten.
const REMEMBERED: usize = 1_000;
/// Maximum reasons for not watching processes that are listed one by one.
const REASONS: usize = 3;
/// Number of searches after a process appears that each reread its command line. Later only one in
/// this many does. An exec changes it.
const YOUNG: u32 = 20;

/// The processes of this machine. In tests others stand in for them.
struct Machine {
    processes: Box<dyn Processes + Send>,
    attach: fn(u32) -> Result<Target, AttachError>,
}

impl Machine {
    fn here() -> Machine {
        Machine { processes: Box::new(Proc), attach: Target::attach }
    }
}

/// Searches for processes.
pub struct Choosing {
    machine: Machine,
    select: Select,
    wanted: Wanted,
    every: Duration,
    /// Only the first search selects processes.
    once: bool,
    list: List,
}

/// All processes that are or were watched, and notices about others.
#[derive(Clone, Default)]
pub struct List(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    entries: Vec<Entry>,
    /// Why processes are not watched, by pid.
    refused: BTreeMap<u32, String>,
    dropped: usize,
    /// Processes that exited before they could be attached to.
    missed: u64,
}

struct Entry {
    facts: snapshot::Target,
    /// `None` once it has exited.
    living: Option<Arc<Target>>,
    /// Searches since it appeared.
    scan: u32,
    /// Its command line is known from a better source than /proc.
    named: bool,
}

impl Choosing {
    /// Creates the search. `children`: also watch the children of processes found.
    pub fn new(wanted: Wanted, children: bool) -> Choosing {
        Choosing::on(Machine::here(), lineage(), wanted, children)
    }

    /// `own`: see [`Select::new`].
    fn on(machine: Machine, own: Vec<u32>, wanted: Wanted, children: bool) -> Choosing {
        Choosing {
            machine,
            select: Select::new(wanted.clone(), children, own),
            every: if children { CHILDREN_EVERY } else { EVERY },
            once: !children && !wanted.waits(),
            wanted,
            list: List::default(),
        }
    }

    pub fn list(&self) -> List {
        self.list.clone()
    }

    /// Returns the processes that exist now. Empty only in wait mode; an error if none of them can
    /// be watched.
    pub fn first(&mut self) -> Result<Vec<Arc<Target>>, Failure> {
        let mut errors = Vec::new();
        let mut targets = Vec::new();
        if let Wanted::Pids(pids) = self.wanted.clone() {
            // Missing pids are reported too.
            for pid in pids {
                match (self.machine.attach)(pid) {
                    Ok(target) => targets.push(self.list.enter(target)),
                    Err(error) => errors.push((pid, error)),
                }
            }
        }
        // One search takes only some of them. The loop is bounded: in a fork storm each search
        // finds others.
        while targets.len() < Wanted::AT_ONCE {
            let (more, refused) = self.observe();
            let found = !more.is_empty();
            targets.extend(more);
            errors.extend(refused);
            if !found {
                break;
            }
        }
        if targets.is_empty() && !errors.is_empty() {
            // Reasons that the user can fix go first.
            let weight = |error: &AttachError| match error {
                AttachError::NotPermitted { .. } => 0,
                AttachError::CannotProfile { .. } | AttachError::Internal { .. } => 1,
                AttachError::ThreadOf { .. }
                | AttachError::EndedEarly { .. }
                | AttachError::NoSuchProcess { .. } => 2,
            };
            errors.sort_by_key(|(_, error)| weight(error));
            return Err(errors.swap_remove(0).1.into());
        }
        let mut inner = self.list.inner();
        inner.refused.extend(errors.into_iter().map(|(pid, error)| (pid, error.to_string())));
        drop(inner);
        Ok(targets)
    }

    /// Sleeps until there are any processes to watch.
    pub fn wait(&mut self) -> Result<Vec<Arc<Target>>, Failure> {
        loop {
            std::thread::sleep(self.every);
            let targets = self.first()?;
            if !targets.is_empty() {
                return Ok(targets);
            }
        }
    }

    /// Keeps searching and hands new processes to the sampler, until the returned value is dropped.
    pub fn follow(mut self, sampler: Controller) -> std::io::Result<Following> {
        let (stop, stopped) = channel();
        if self.once {
            return Ok(Following { _stop: stop });
        }
        std::thread::Builder::new().name("choosing".into()).spawn(move || {
            let mut pause = self.every;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let begin = Instant::now();
                let (targets, refused) = self.observe();
                for target in targets {
                    sampler.control(Control::Add(target));
                }
                self.list
                    .inner()
                    .refused
                    .extend(refused.into_iter().map(|(pid, error)| (pid, error.to_string())));
                pause = self.every.max(begin.elapsed() * COSTS).min(EVERY_AT_LEAST.max(self.every));
            }
        })?;
        Ok(Following { _stop: stop })
    }

    /// Searches once: returns the processes to watch from now on, and those that cannot be watched.
    fn observe(&mut self) -> (Vec<Arc<Target>>, Vec<(u32, AttachError)>) {
        self.list.read_commands();
        let living = self.list.inner().living();
        let mut refused = Vec::new();
        let mut targets = Vec::new();
        let room = Wanted::AT_ONCE.saturating_sub(living);
        for pid in self.select.observe(&mut *self.machine.processes, room) {
            if self.list.inner().is_watched(pid) {
                continue;
            }
            match (self.machine.attach)(pid) {
                Ok(target) => targets.push(self.list.enter(target)),
                Err(AttachError::EndedEarly { .. } | AttachError::NoSuchProcess { .. }) => {
                    self.list.inner().missed += 1
                }
                Err(AttachError::CannotProfile { .. })
                    if self.machine.processes.read(pid).is_none_or(|found| !found.watchable) =>
                {
                    self.list.inner().missed += 1;
                }
                Err(error) => refused.push((pid, error)),
            }
        }
        self.list.inner().dropped = self.select.dropped();
        (targets, refused)
    }
}

/// Ends the search when dropped. Does not join the thread, since a search may block.
pub struct Following {
    _stop: Sender<()>,
}

impl List {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, target: Target) -> Arc<Target> {
        let target = Arc::new(target);
        let mut inner = self.inner();
        if inner.entries.len() >= REMEMBERED
            && let Some(oldest) = inner.entries.iter().position(|entry| entry.living.is_none())
        {
            inner.entries.remove(oldest);
        }
        inner.refused.remove(&target.pid());
        let facts = facts(&target);
        inner.entries.push(Entry { facts, living: Some(target.clone()), scan: 0, named: false });
        target
    }

    /// Reads the command lines that may have changed. This may block (the kernel takes a lock of
    /// the process), so the list is not locked meanwhile.
    fn read_commands(&self) {
        let due = self.inner().due();
        for target in due {
            let Some(command) = command_of(target.pid()).filter(|_| target.alive()) else {
                continue;
            };
            let mut inner = self.inner();
            let is_it = |entry: &&mut Entry| {
                entry.living.as_ref().is_some_and(|living| Arc::ptr_eq(living, &target))
            };
            if let Some(entry) = inner
                .entries
                .iter_mut()
                .find(is_it)
                .filter(|entry| *command != *entry.facts.command)
            {
                entry.facts.command = command.into();
            }
        }
    }

    /// Sets a process's command line where /proc does not show it (yet).
    pub fn name(&self, pid: u32, command: &str) {
        if let Some(entry) = self.inner().entries.iter_mut().rfind(|entry| entry.facts.pid == pid) {
            entry.facts.command = command.into();
            entry.named = true;
        }
    }

    /// Returns the targets in order of appearance. `runtime`: the runtime that is known so far for
    /// a process.
    pub fn targets(&self, runtime: impl Fn(u32) -> &'static str) -> Arc<[snapshot::Target]> {
        let inner = self.inner();
        let facts = inner.entries.iter().map(|entry| &entry.facts);
        facts
            .map(|facts| snapshot::Target { runtime: runtime(facts.pid), ..facts.clone() })
            .collect()
    }

    /// Returns the targets that have not exited.
    pub fn now(&self) -> Vec<snapshot::Target> {
        let inner = self.inner();
        let living = |entry: &&Entry| entry.living.as_ref().is_some_and(|target| target.alive());
        inner.entries.iter().filter(living).map(|entry| entry.facts.clone()).collect()
    }

    /// Returns what the user has to know about processes that are not watched.
    pub fn notice(&self) -> Option<String> {
        let inner = self.inner();
        let mut notices: Vec<String> = inner.refused.values().take(REASONS).cloned().collect();
        if inner.refused.len() > REASONS {
            notices.push(format!(
                "and {} more processes cannot be watched",
                inner.refused.len() - REASONS
            ));
        }
        if inner.dropped > 0 {
            notices.push(format!(
                "{} more processes are not watched: at most {} are at once; name fewer",
                inner.dropped,
                Wanted::AT_ONCE
            ));
        }
        match inner.missed {
            0 => {}
            1 => notices.push("1 process exited before it could be observed".into()),
            missed => {
                notices.push(format!("{missed} processes exited before they could be observed"))
            }
        }
        (!notices.is_empty()).then(|| notices.join("; "))
    }
}

impl Inner {
    fn is_watched(&self, pid: u32) -> bool {
        self.entries.iter().any(|entry| entry.facts.pid == pid && entry.living.is_some())
    }

    /// Marks exited targets. Returns the others whose command lines are due to be reread.
    fn due(&mut self) -> Vec<Arc<Target>> {
        let mut due = Vec::new();
        for entry in &mut self.entries {
            entry.living.take_if(|target| !target.alive());
            let Some(target) = &entry.living else { continue };
            if !entry.named && (entry.scan < YOUNG || entry.scan % YOUNG == 0) {
                due.push(target.clone());
            }
            entry.scan = entry.scan.wrapping_add(1);
        }
        due
    }

    fn living(&self) -> usize {
        self.entries.iter().filter(|entry| entry.living.is_some()).count()
    }
}

fn facts(target: &Target) -> snapshot::Target {
    snapshot::Target {
        pid: target.pid(),
        start: target.start(),
        command: target.command().into(),
        // Determined later, when its code is seen.
        runtime: "native",
        uid: target.uid(),
        unit: target.unit().map(Arc::from),
        started_unix_ns: target.started_unix_ns(),
        ended: None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Child, Command};

    use super::*;
    use crate::process::select::Found;

    /// The pid of a process that may not be watched, and of one that is gone before it can be.
    const SECRET: u32 = 1 << 23;
    const GONE: u32 = SECRET + 1;

    /// Real processes, to be found under chosen names.
    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<BTreeMap<u32, &'static str>>>);

    impl Fake {
        fn add(&self, pid: u32, name: &'static str) {
            self.0.lock().unwrap().insert(pid, name);
        }

        fn choosing(&self, wanted: Wanted) -> Choosing {
            let attach = |pid| match pid {
                SECRET => Err(AttachError::NotPermitted {
                    pid,
                    why: "it is secret".into(),
                    fix: "be root".into(),
                }),
                GONE => Err(AttachError::NoSuchProcess { pid }),
                pid => Target::attach(pid),
            };
            let machine = Machine { processes: Box::new(self.clone()), attach };
            Choosing::on(machine, vec![std::process::id()], wanted, false)
        }
    }

    impl Processes for Fake {
        fn all(&mut self) -> Vec<u32> {
            self.0.lock().unwrap().keys().copied().collect()
        }
        fn read(&mut self, pid: u32) -> Option<Found> {
            let name = self.0.lock().unwrap().get(&pid)?.to_string();
            Some(Found { command: name.clone(), name, parent: 1, start: 1, watchable: true })
        }
        fn members(&mut self, _: &Path) -> Vec<u32> {
            self.all()
        }
        fn of_unit(&mut self, _: &str) -> Vec<u32> {
            self.all()
        }
        fn in_file(&mut self, _: &Path) -> Option<u32> {
            None
        }
    }

    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> Sleeper {
            Sleeper(Command::new("sleep").arg("1000").spawn().expect("it starts"))
        }

        fn pid(&self) -> u32 {
            self.0.id()
        }

        fn end(&mut self) {
            self.0.kill().expect("our child");
            self.0.wait().expect("our child");
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn named(name: &str) -> Wanted {
        Wanted::Name(regex::Regex::new(name).expect("an expression"))
    }

    fn pids(targets: &[Arc<Target>]) -> Vec<u32> {
        targets.iter().map(|target| target.pid()).collect()
    }

    #[test]
    fn processes_that_appear_later_are_found_once_and_remembered_when_they_have_exited() {
        let (machine, mut first, second) = (Fake::default(), Sleeper::new(), Sleeper::new());
        let mut choosing = machine.choosing(named("shop"));
        assert!(choosing.first().expect("nothing to refuse").is_empty());
        machine.add(first.pid(), "shop");
        machine.add(second.pid(), "bakery");
        assert_eq!(pids(&choosing.first().expect("one")), [first.pid()]);
        assert!(choosing.observe().0.is_empty(), "it is watched");
        let third = Sleeper::new();
        machine.add(third.pid(), "shop");
        assert_eq!(pids(&choosing.observe().0), [third.pid()]);
        first.end();
        choosing.observe();
        let list = choosing.list();
        let now: Vec<u32> = list.now().iter().map(|target| target.pid).collect();
        assert_eq!((now, list.targets(|_| "native").len()), (vec![third.pid()], 2));
    }

    #[test]
    fn what_cannot_be_watched_is_said_and_an_error_only_if_nothing_else_is_there() {
        let (machine, living) = (Fake::default(), Sleeper::new());
        machine.add(SECRET, "shop");
        machine.add(GONE, "shop");
        let failure = machine.choosing(named("shop")).first().expect_err("nothing to watch");
        assert!(failure.sentence.contains("it is secret"), "{failure:?}");
        machine.add(living.pid(), "shop");
        let mut choosing = machine.choosing(named("shop"));
        assert_eq!(pids(&choosing.first().expect("one")), [living.pid()]);
        let notice = choosing.list().notice().expect("two are missing");
        assert!(notice.contains("it is secret"), "{notice}");
        assert!(notice.ends_with("; 1 process exited before it could be observed"), "{notice}");
    }

    #[test]
    fn a_pid_that_does_not_exist_is_an_error_by_itself_and_a_notice_beside_another() {
        let (machine, living) = (Fake::default(), Sleeper::new());
        machine.add(living.pid(), "shop");
        let failure = machine.choosing(Wanted::Pids(vec![GONE])).first().expect_err("none");
        assert!(failure.sentence.contains(&GONE.to_string()), "{failure:?}");
        let mut choosing = machine.choosing(Wanted::Pids(vec![GONE, living.pid()]));
        assert_eq!(pids(&choosing.first().expect("one")), [living.pid()]);
        assert!(choosing.list().notice().is_some_and(|text| text.contains(&GONE.to_string())));
    }

    #[test]
    fn a_command_line_from_a_better_source_stays() {
        let (machine, living) = (Fake::default(), Sleeper::new());
        let mut choosing = machine.choosing(Wanted::Pids(vec![living.pid()]));
        choosing.first().expect("one");
        let list = choosing.list();
        list.name(living.pid(), "shop --port 80");
        choosing.observe();
        assert_eq!(&*list.now()[0].command, "shop --port 80");
    }
}
