//! Sentences about waits: deadlocks, locks, and calls in which many threads wait.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Evidence, Finding, Kind, More, short_span};
use crate::model::facts::snapshot::ThreadNow;
use crate::model::facts::tables::{Holder, Location};
use crate::model::projection::holder_words;
use crate::model::projection::locks::noun;
use crate::model::projection::observed::most_common;
use crate::model::projection::settings::Metric;
use crate::model::projection::waits::{Asked, Facts, Peer, WaitsFor, describe};
use crate::model::projection::{Bursts, CommonWait, HeldBy, Lock, Stuck};
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::{Ns, SECOND, SOME_GOROUTINES};
use crate::model::vocabulary::go_functions;
use crate::model::vocabulary::state::State;

/// A wait of this duration is worth a sentence.
const LONG: Ns = SECOND;
/// From this share of the busy time on, waits for one lock are worth a sentence, if one of them is
/// this long. Where this many threads wait on average, each wait may be short.
const MUCH_WAITED: f64 = 0.1;
const LONG_FOR_LOCK: Ns = SECOND / 20;
const QUEUE: f64 = 1.0;
/// From this share of the busy time on, waits in one function are worth a sentence, if they are as
/// long or as many as for a lock, or if they wait for a disk; and if this many threads waited on
/// average. Where they are most of the busy time, each may be short, too, and in an event loop.
const MUCH_IN_ONE_PLACE: f64 = 0.25;
const WAITING_THREADS: f64 = 0.1;

impl Evidence<'_> {
    /// Says which threads wait for each other, and where.
    pub(super) fn deadlock(&self) -> Option<Finding> {
        let stuck = self.projection.deadlocks.iter().find(|stuck| !stuck.is_empty())?;
        let (last, others) = stuck.split_last()?;
        let (last, others): (_, Vec<&str>) =
            (&last.name, others.iter().map(|stuck| &*stuck.name).collect());
        let text = match others.len() {
            0 => format!("deadlock: {last} waits for what it holds itself"),
            1..=3 => format!("deadlock: {} and {last} wait for each other", others.join(", ")),
            n => format!("deadlock: {last} and {n} more threads wait for each other"),
        };
        let place = |stuck: &Stuck| {
            let function = stuck.place.last()?;
            Some(format!("{} in {}", stuck.name, self.function(function)))
        };
        let before = stuck.iter().filter_map(place).collect::<Vec<_>>().join(", ");
        let more = Some(More { before, ..More::default() }).filter(|more| !more.before.is_empty());
        let node = stuck
            .iter()
            .find_map(|stuck| self.projection.node_of(stuck.thread, stuck.place.last()?));
        Some(Finding { more, node, lost_ns: u64::MAX, ..Finding::new(Kind::Deadlock, text) })
    }

    /// Returns what waits say. Time waited for the lock that is named is no wait in one place, too.
    /// `named`: functions have their names, which tell whether a wait is one for work.
    pub(super) fn waiting(&self, named: bool) -> Vec<Finding> {
        let allocator = self.allocator();
        let lock = self.longest_waited_lock();
        let claimed = lock.map_or(Vec::new(), |lock| self.projection.waits_for_only(lock));
        let lock = lock.and_then(|lock| self.lock(lock, &claimed));
        let by_lock = lock.is_some();
        let mut found: Vec<Finding> = lock.into_iter().chain(allocator).collect();
        let convoy = self.convoy().filter(|_| found.is_empty());
        let by_address = convoy.is_some();
        let is_told = |wait: &&CommonWait| {
            let is_lock = wait.state == State::Lock;
            let is_claimed = claimed.iter().any(|claimed| std::ptr::eq(*claimed, *wait));
            (by_lock && (is_claimed || wait.locked_ns * 2 >= wait.waited_ns))
                || (is_lock && by_address)
                || (is_lock && found.iter().any(|finding| finding.kind == Kind::Allocator))
        };
        let waits: Vec<Finding> = (self.projection.busy.waits.iter())
            .filter(|wait| named && !is_told(wait))
            .filter_map(|wait| self.common_wait(wait))
            .collect();
        found.extend(convoy);
        found.extend(waits);
        found
    }

    /// Returns the lock with most waited time whose holder is known.
    fn longest_waited_lock(&self) -> Option<&Lock> {
        let is_held = |lock: &&Lock| lock.kind.is_held() && lock.main_holder().is_some();
        self.projection.locks.iter().find(is_held)
    }

    /// Says that threads wait for this lock, for much of their time, and who holds it where.
    fn lock(&self, lock: &Lock, claimed: &[&CommonWait]) -> Option<Finding> {
        let projection = self.projection;
        let waited_ns = claimed.iter().map(|wait| wait.waited_ns).sum::<u64>().max(lock.waited_ns);
        let longest_of_waits = claimed.iter().map(|wait| wait.longest_ns).max().unwrap_or(0);
        let longest_ns = longest_of_waits.max(lock.longest_ns);
        let long = longest_ns >= LONG_FOR_LOCK && waited_ns >= LONG_FOR_LOCK;
        let much = self.share(waited_ns) >= MUCH_WAITED;
        // Of a lock that is waited for in several places one says when only if none goes on.
        let bursts = match claimed.iter().all(|wait| wait.bursts.is_some()) {
            true => claimed.iter().filter_map(|wait| wait.bursts).max_by_key(|found| found.threads),
            false => None,
        };
        if bursts.is_none() && (!much || !(long || self.threads(waited_ns) >= QUEUE)) {
            return None;
        }
        let threads = claimed.iter().map(|wait| wait.threads).max().unwrap_or(0).max(lock.threads);
        let (s, verb) = if threads == 1 { ("", "waits") } else { ("s", "wait") };
        let lock_noun = self.locked_noun(lock);
        let text = match bursts {
            Some(bursts) => {
                let when = self.when(bursts);
                format!("{} threads waited for {lock_noun} {when}", bursts.threads)
            }
            None => {
                let (share, longest) = (self.of_busy(waited_ns), short_span(longest_ns));
                format!("{threads} thread{s} {verb} for {lock_noun}: {share}, up to {longest}")
            }
        };
        let kind = if bursts.is_some() { Kind::Hiccup } else { Kind::Lock };
        let held = lock.main_holder()?;
        let file = self.locked_file(lock);
        let holder = file.as_deref().and_then(|file| file.split_once(", held by "));
        let holder = match holder {
            // With its name.
            Some((_, process)) => process.to_owned(),
            None => holder_words(held.holder, &held.name, lock.pid),
        };
        let mut before = format!("held by {holder}");
        if lock.holder_count > 1 {
            before.push_str(&format!(" and {} more", lock.holder_count - 1));
        }
        let functions = self.functions(held.place.iter().map(|location| &**location));
        if !functions.is_empty() {
            before.push_str(" in");
        }
        let of_holder = match (held.holder, held.place.last()) {
            (Holder::Thread { thread, .. }, Some(function)) => projection.node_of(thread, function),
            _ => None,
        };
        let after = match self.waits_itself(held) {
            waits if !waits.is_empty() => waits,
            _ => self.does(held, of_holder),
        };
        let more = Some(More { before, functions, after });
        let node = of_holder.or_else(|| {
            let place = lock.waiting_in.first().and_then(|(place, _)| place.last())?;
            projection.node_of(lock.longest_thread, place)
        });
        Some(Finding { more, node, lost_ns: waited_ns, ..Finding::new(kind, text) })
    }

    /// Says how long threads waited together, and when: `together for 319 ms at 14:03:20`.
    fn when(&self, bursts: Bursts) -> String {
        let at = (self.wording.clock)(&self.snapshot.session, bursts.last_from);
        let longest = short_span(bursts.longest_ns);
        match bursts.times {
            1 => format!("together for {longest} at {at}"),
            times => format!("{times} times, up to {longest}, last at {at}"),
        }
    }

    /// Returns what a holder does meanwhile: `> fsync`, `(on CPU)`; empty if that is not known.
    fn does(&self, held: &HeldBy, node: Option<u32>) -> String {
        if let Some(waits) = self.what_holder_waits_for(held) {
            return waits;
        }
        let of_library = |by: &&Arc<Location>| {
            held.place.last().is_some_and(|last| last.function != by.function)
        };
        if let Some(by) = held.by.as_ref().filter(of_library) {
            return format!("> {}", self.function(by));
        }
        let state = node.and_then(|node| self.projection.total(node).main_state(Metric::Wall));
        match state {
            Some((State::Run | State::Rdy, _)) if !held.place.is_empty() => "(on CPU)".into(),
            _ => String::new(),
        }
    }

    /// Returns for whom a holder waits itself, and that one for another, and where the last one is;
    /// empty if it waits for no lock.
    fn waits_itself(&self, held: &HeldBy) -> String {
        let (mut text, mut told) = (String::new(), BTreeSet::new());
        let mut at = held;
        while let Some(lock) = at.waits_for.filter(|lock| told.insert(*lock)) {
            let Some(next) = self.projection.locks[lock as usize].main_holder() else { break };
            let pid = self.projection.locks[lock as usize].pid;
            let name = holder_words(next.holder, &next.name, pid);
            text.push_str(&format!(", who waits for {name}"));
            at = next;
        }
        if let (false, Some(last)) = (text.is_empty(), at.place.last()) {
            text.push_str(&format!(" in {}", self.function(last)));
            let does = self.does(at, None);
            if !does.is_empty() {
                text.push_str(&format!(" {does}"));
            }
        }
        text
    }

    fn locked_noun(&self, lock: &Lock) -> String {
        let file = self.locked_file(lock);
        match file.as_deref().map(|file| file.split(", held by ").next().unwrap_or(file)) {
            Some(file) => format!("the lock of {file}"),
            None => self.lock_noun(lock),
        }
    }

    /// Returns the file whose lock this is, with its holder, where that was looked up.
    fn locked_file(&self, lock: &Lock) -> Option<String> {
        if lock.kind != BlockerKind::FileLock {
            return None;
        }
        let (place, _) = lock.waiting_in.first()?;
        let wait = self.projection.busy.waits.iter().find(|wait| wait.place == *place)?;
        let waits = self.waits_in(wait);
        let of_lock =
            |waits: &WaitsFor| matches!(waits.what, "flock" | "fcntl") && !waits.object.is_empty();
        let waits = waits.iter().filter(|(_, waits)| of_lock(waits));
        let (common, others) = most_common(waits.map(|(times, waits)| (*times, waits)))?;
        (!others).then_some(common.waits_for.object)
    }

    /// Returns what a holder itself waits for, if it is found waiting where it holds the lock:
    /// `> write pipe -> logger[77]`.
    fn what_holder_waits_for(&self, held: &HeldBy) -> Option<String> {
        let Holder::Thread { thread, stack, .. } = held.holder else { return None };
        let now = self.snapshot.threads.iter().find(|now| now.thread == thread)?;
        let waits = without_activity(self.waits_for(now).filter(|_| now.stack == stack)?);
        let says = waits.peer.is_some() || (waits.fd.is_some() && !waits.object.is_empty());
        says.then(|| format!("> {}", WaitsFor { fd: None, ..waits }))
    }

    /// Returns what threads wait for: `the monitor of TaxTable`, `the GIL`, `one mutex`.
    fn lock_noun(&self, lock: &Lock) -> String {
        let class = lock.class.as_deref().map(self.wording.class);
        let noun = noun(lock.kind, class);
        match (lock.kind, class) {
            (
                BlockerKind::OwnedLock | BlockerKind::Parked | BlockerKind::ThreadingLock,
                Some(_),
            ) => noun,
            (_, Some(_)) => format!("the {noun}"),
            (BlockerKind::Gil, None) => format!("the {noun}"),
            (_, None) => format!("one {noun}"),
        }
    }

    /// Says that threads wait for the allocator's locks.
    fn allocator(&self) -> Option<Finding> {
        let memory = &self.projection.busy.memory;
        if self.share(memory.allocator_ns) < MUCH_WAITED || memory.allocator_threads < 2 {
            return None;
        }
        let text = format!(
            "{} threads wait for the allocator's locks: {}",
            memory.allocator_threads,
            self.of_busy(memory.allocator_ns)
        );
        let wait = self.projection.busy.waits.iter().find(|wait| wait.state == State::Lock);
        Some(Finding {
            lost_ns: memory.allocator_ns,
            more: wait.and_then(|wait| self.place(wait)),
            node: wait.and_then(|wait| wait.node),
            ..Finding::new(Kind::Allocator, text)
        })
    }

    /// Says how many threads wait for one lock whose holder is not known.
    fn convoy(&self) -> Option<Finding> {
        let now = &self.projection.now;
        let convoy = now.convoy?;
        let thread = self.snapshot.threads.iter().find(|now| now.thread == convoy.longest)?;
        // Of other locks the address says nothing.
        let is_lock = |waits: &WaitsFor| ["mutex", "rwlock", "lock"].contains(&waits.what);
        let lock = self.waits_for(thread).filter(is_lock)?;
        let text =
            format!("{} of {} busy threads wait for one {lock}", convoy.threads, now.busy_count());
        let waits = &self.projection.busy.waits;
        let wait = waits.iter().find(|wait| wait.state == State::Lock);
        let lost_ns = wait.map_or(self.projection.elapsed(), |wait| wait.waited_ns);
        Some(Finding {
            lost_ns,
            more: wait.and_then(|wait| self.place(wait)),
            node: wait.and_then(|wait| wait.node),
            ..Finding::new(Kind::Lock, text)
        })
    }

    /// Says in what function threads wait, for what, and how long.
    fn common_wait(&self, wait: &CommonWait) -> Option<Finding> {
        let threads = self.threads(wait.waited_ns);
        let long =
            wait.longest_ns >= LONG_FOR_LOCK || wait.state == State::Disk || wait.blocks_event_loop;
        let much = self.share(wait.waited_ns) >= MUCH_IN_ONE_PLACE && threads >= WAITING_THREADS;
        if let Some(bursts) = wait.bursts {
            let (what, when) = (self.what(wait), self.when(bursts));
            let noun = if wait.of_goroutines { "goroutines" } else { "threads" };
            let text = format!("{} {noun} waited{what} {when}", bursts.threads);
            let (lost_ns, more) = (wait.waited_ns, self.place(wait));
            let node = wait.node;
            return Some(Finding { lost_ns, more, node, ..Finding::new(Kind::Hiccup, text) });
        }
        // Many threads may sleep a little all the time.
        let many = threads >= QUEUE || self.is_most(wait.waited_ns);
        let queue = many && wait.state != State::Sleep;
        if !much || !(long || queue) {
            return None;
        }
        let (who, is_one) = self.who(wait);
        let verb = match (wait.state, is_one) {
            (State::Sleep, true) => "sleeps",
            (State::Sleep, false) => "sleep",
            (_, true) => "waits",
            (_, false) => "wait",
        };
        let text = format!(
            "{who} {}{verb}{}{}: {}{}",
            match (wait.blocks_event_loop, is_one) {
                (false, _) => "",
                (true, true) => "blocks its event loop, ",
                (true, false) => "block their event loops, ",
            },
            self.what(wait),
            if self.is_never_done(wait) { " for tasks that no thread runs" } else { "" },
            self.of_busy(wait.waited_ns),
            match wait.longest_ns {
                // Goroutines are seen too seldom to tell.
                0 => String::new(),
                longest_ns => format!(", up to {}", short_span(longest_ns)),
            }
        );
        Some(Finding {
            lost_ns: wait.waited_ns,
            more: self.place(wait),
            node: wait.node,
            ..Finding::new(Kind::Wait, text)
        })
    }

    /// Returns who waits, and whether that is one thread: `all 12 worker- threads`.
    fn who(&self, wait: &CommonWait) -> (String, bool) {
        let groups = &self.projection.groups;
        let group = wait.group.and_then(|group| groups.get(group as usize));
        match (wait.threads, group) {
            (0 | 1, _) => (wait.name.to_string(), true),
            (n, _) if wait.of_goroutines => self.goroutines(n, wait),
            (n, Some(group)) if group.known_threads() == (n as usize, false) => {
                let all = if n == 2 { "both".to_owned() } else { format!("all {n}") };
                (format!("{all} {} threads", group.name), false)
            }
            (n, Some(group)) => (format!("{n} {} threads", group.name), false),
            (n, None) => (format!("{n} threads"), false),
        }
    }

    /// Returns how many goroutines wait at the same time, of `all` that waited there, and whether
    /// that is one. Many live shortly, one after the other.
    fn goroutines(&self, all: u32, wait: &CommonWait) -> (String, bool) {
        let on_average = self.threads(wait.waited_ns).round() as u32;
        let count = on_average.max(wait.waiting_now).clamp(1, all);
        let least = match self.snapshot.notice.as_deref() {
            Some(notice) if notice.contains(SOME_GOROUTINES) => "at least ",
            _ => "",
        };
        let noun = if count == 1 { "goroutine" } else { "goroutines" };
        // Where that is nearly all, it needs no word.
        let at_a_time = if count < all / 2 { " at a time" } else { "" };
        (format!("{least}{count} {noun}{at_a_time}"), count == 1)
    }

    /// Returns whether all who wait there now, several, wait for results of tasks that no thread
    /// has begun: a pool that waits for itself does.
    fn is_never_done(&self, wait: &CommonWait) -> bool {
        let threads = self.snapshot.threads.iter().filter(|now| wait.now.contains(&now.thread));
        let blockers: Vec<_> =
            threads.map(|now| self.snapshot.tables.blocker(now.blocker)).collect();
        blockers.len() >= 2
            && (blockers.into_iter().flatten().filter(|blocker| {
                blocker.kind == BlockerKind::Future && blocker.holder == Holder::Free
            }))
            .count()
                == wait.now.len()
    }

    /// Returns what is waited for, with a blank before it; empty if that is not known.
    fn what(&self, wait: &CommonWait) -> String {
        // That they are parked, or at which address, says nothing.
        let is_known = |waits: &WaitsFor| {
            !["futex", "park", "wait", "sleep"].contains(&waits.what)
                && (wait.threads < 2 || !waits.what.starts_with("wait") || waits.peer.is_some())
        };
        let waits = self.waits_in(wait).into_iter();
        let all: Vec<(u32, WaitsFor)> = waits
            .filter(|(_, waits)| is_known(waits))
            // What the other end does changes.
            .map(|(times, waits)| (times, without_activity(waits)))
            .collect();
        let says = |waits: &WaitsFor| !waits.object.is_empty() || waits.peer.is_some();
        let said: Vec<_> = all.iter().filter(|(_, waits)| says(waits)).collect();
        // What was looked up of few is not known of the others.
        let few = !said.is_empty() && said.len() * 2 < all.len();
        let listed = if said.is_empty() { all.iter().collect() } else { said };
        let common = most_common(listed.iter().map(|(times, waits)| (*times, waits)));
        let others = few || common.as_ref().is_some_and(|(_, others)| *others);
        if let Some(lock) = wait.kernel_lock.filter(|_| wait.state == State::Lock) {
            let call = common.as_ref().map(|(common, _)| &common.waits_for);
            // Of two files it is not known whose lock it is.
            let one = |what: &str| !["sendfile", "copy_file_range", "splice"].contains(&what);
            let file = call.filter(|call| !others && !call.object.is_empty() && one(call.what));
            let within = call.map_or(String::new(), |call| format!(" in {}", call.what));
            return format!(" for {}{within}", lock.text(file.map(|call| &*call.object)));
        }
        let others = if others { " and others" } else { "" };
        match (wait.state, common.map(|(common, _)| common)) {
            (State::Sleep, _) => String::new(),
            (State::Lock, Some(lock)) if others.is_empty() => format!(" for one {}", lock.text()),
            (State::Lock, _) => " for a lock".into(),
            (_, Some(mut common)) if says(&common.waits_for) => {
                // The number of the descriptor says nothing.
                common.waits_for.fd = None;
                let (what, text) = (common.waits_for.what, common.text());
                let object = text.strip_prefix(what).unwrap_or(&text).trim_start();
                let object = object.trim_start_matches("-> ");
                // Of an epoll set only this is known: `(2 descriptors)`.
                let inner = object.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
                let inner = inner.filter(|inner| !inner.contains('('));
                let object = inner.unwrap_or(object);
                format!(" for {object}{others} in {what}")
            }
            (State::Disk, None) => " for a disk".into(),
            (_, Some(common)) => format!(" in {}", common.waits_for.what),
            (_, None) if is_child(wait) => " for child processes".into(),
            (_, None) => match &wait.by {
                Some(by) => match go_wait(by) {
                    Some(what) => what.to_owned(),
                    None => format!(" in {}", self.function(by)),
                },
                None => String::new(),
            },
        }
    }

    /// Returns what threads in one place wait for now, and were found to wait for, each with the
    /// number of times.
    fn waits_in(&self, wait: &CommonWait) -> Vec<(u32, WaitsFor)> {
        let threads = self.snapshot.threads.iter().filter(|now| wait.now.contains(&now.thread));
        let now = threads.filter_map(|thread| Some((1, self.waits_for(thread)?)));
        now.chain(wait.observed.iter().cloned()).collect()
    }

    /// Returns in what functions threads wait, with the call that waits.
    fn place(&self, wait: &CommonWait) -> Option<More> {
        let functions = self.functions(wait.place.iter().map(|location| &**location));
        let by = wait.by.as_ref().filter(|by| {
            // A stack without a function of the user is named by its library.
            wait.place.last().is_some_and(|last| last.function != by.function)
                && go_wait(by).is_none()
        });
        let after = by.map_or(String::new(), |by| format!("> {}", self.function(by)));
        (!functions.is_empty()).then(|| More { before: "in".into(), functions, after })
    }

    /// Returns what a thread waits for, as far as that is known.
    fn waits_for(&self, thread: &ThreadNow) -> Option<WaitsFor> {
        let asked = Asked::of(self.snapshot, thread)?;
        let observed = || self.snapshot.observed_wait(thread).cloned();
        (self.answer)(&asked).or_else(observed).or_else(|| describe(&asked, &Facts::default()))
    }

    /// Says who waits longest, where, and for what.
    pub(super) fn longest_wait(&self) -> Option<Finding> {
        let key = self.projection.now.longest_wait?;
        let thread = self.snapshot.threads.iter().find(|thread| thread.thread == key)?;
        let waited = self.snapshot.at.saturating_sub(thread.since);
        if waited < LONG {
            return None;
        }
        let state = self.snapshot.tables.state(thread.state, thread.stack);
        let what = match self.waits_for(thread) {
            Some(waits) if waits.what != "futex" => waits.to_string(),
            _ => state.word().to_owned(),
        };
        let name = self.snapshot.tables.name(thread.name);
        let duration = match waited / SECOND {
            seconds @ 0..60 => format!("{seconds} s"),
            _ => short_span(waited),
        };
        let over =
            if self.snapshot.may_have_begun_before(thread.since) { "more than " } else { "" };
        let text = format!("{name} waits {over}{duration}: {what}");
        Some(Finding { lost_ns: waited, ..Finding::new(Kind::LongWait, text) })
    }
}

fn without_activity(waits: WaitsFor) -> WaitsFor {
    let cause = |peer: &Peer| peer.activity.filter(|activity| activity.is_cause());
    WaitsFor { peer: waits.peer.map(|peer| Peer { activity: cause(&peer), ..peer }), ..waits }
}

/// Returns what a goroutine waits for, with a blank before it, by the function of Go's runtime in
/// which the user's function waits. That function's name says nothing to the user. `None`: it is
/// none of these.
fn go_wait(by: &Location) -> Option<&'static str> {
    let name = by.function.strip_prefix("runtime.")?;
    let is_of_runtime = go_functions::is_go(&by.function, by.file.as_deref())
        && go_functions::package(&by.function) == "runtime";
    is_of_runtime.then_some(match name {
        "chansend" | "chansend1" => " to send to a channel",
        "chanrecv" | "chanrecv1" | "chanrecv2" => " to receive from a channel",
        "selectgo" | "block" => " in select",
        _ => "",
    })
}

/// Returns whether threads wait for processes that they started.
fn is_child(wait: &CommonWait) -> bool {
    let calls = ["wait", "wait3", "wait4", "waitpid", "waitid"];
    let plain = |by: &Location| calls.contains(&by.function.trim_start_matches('_'));
    wait.by.as_deref().is_some_and(plain)
}
