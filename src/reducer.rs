//! Drains the rings, requests names, folds facts, publishes snapshots. Its thread is the only
//! writer of the model.
//!
//! It never waits for a symbol file. A frame has a placeholder until its name arrives; then the
//! stacks folded meanwhile get the name too. Only an explicit [`Reducer::snapshot`] waits, for a
//! bounded time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::capture::event_ring::Reader;
use crate::clock;
use crate::model::facts::recorder::{Former, Limits, Recorder, View};
use crate::model::facts::snapshot::{Health, Session, Snapshot, Target};
use crate::model::facts::tables::Named;
use crate::model::vocabulary::event::Event;
use crate::model::vocabulary::frame::{Ns, RawFrame};
use crate::model::vocabulary::host_load::HostLoad;
use crate::runtimes::frame_and_thread_names::Names;
use crate::symbols::Symbols;

/// Interval between drains. 25 wake-ups a second cost nearly nothing, and the ring holds events of
/// a much longer time.
const DRAIN_EVERY: Duration = Duration::from_millis(40);
/// The longest interval if the last drain returned fewer than [`ALL_BUT_EMPTY`] events: then
/// wake-ups are the main cost.
const REST: Duration = Duration::from_millis(100);
const ALL_BUT_EMPTY: usize = 250;
/// Time over which sampletop's own CPU use is averaged.
const OWN_CPU_SPAN: Duration = Duration::from_secs(5);

/// The state of capture that a snapshot shows; read at each publication.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The backend, as the header names it.
    pub capture: Arc<str>,
    pub notice: Option<Arc<str>>,
    /// False where system time is not sampled (perf_event_paranoid 2).
    pub kernel_visible: bool,
    pub targets: Arc<[Target]>,
    pub stopped: bool,
    /// The requested interval, ns.
    pub interval_ns: Ns,
    /// `None` where it is unknown.
    pub host: Option<HostLoad>,
}

/// The arguments of [`Reducer::start`].
pub struct Inputs {
    pub rings: Vec<Reader>,
    pub symbols: Symbols,
    /// Names of runtimes' frames and threads.
    pub names: Names,
    pub session: Session,
    /// Time from attaching to the first observation, ns.
    pub startup_ns: Ns,
    pub limits: Limits,
    pub conditions: Box<dyn FnMut() -> Conditions + Send>,
    /// Receives snapshots at an interval; `None`: snapshots are made only on request.
    pub publication: Option<Publication>,
    /// The reducer stores its own CPU time here, ns, for the governor.
    pub used_ns: Arc<AtomicU64>,
}

/// Time after the first snapshot during which one is published every [`YOUNG_EVERY`]: the user
/// waits for the first rows and their names.
const YOUNG: Duration = Duration::from_secs(1);
const YOUNG_EVERY: Duration = Duration::from_millis(100);

/// Receives each new snapshot. `every` applies after the first second (at most 10 Hz). `to` runs on
/// the reducer's thread and must not block.
pub struct Publication {
    pub every: Duration,
    pub to: Box<dyn FnMut(Arc<Snapshot>) + Send>,
}

enum Command {
    /// Replies with a snapshot once all names have arrived, or after `names_within`. `cut`: history
    /// then starts anew.
    Snapshot { names_within: Duration, cut: bool, reply: SyncSender<Arc<Snapshot>> },
    /// Drains the rings, books carried time, replies and ends the thread.
    Finish { names_within: Duration, reply: SyncSender<Arc<Snapshot>> },
}

/// Handle of the running thread; dropping it ends the thread.
pub struct Reducer {
    asker: Option<Asker>,
    thread: Option<JoinHandle<()>>,
}

impl Reducer {
    pub fn start(inputs: Inputs) -> std::io::Result<Reducer> {
        let (commands, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("reducer".into())
            .spawn(move || Worker::new(inputs).run(&receiver))?;
        Ok(Reducer { asker: Some(Asker { commands }), thread: Some(thread) })
    }

    /// See [`Asker::snapshot`].
    pub fn snapshot(&self, names_within: Duration) -> Option<Arc<Snapshot>> {
        self.asker.as_ref()?.snapshot(names_within)
    }

    /// See [`Asker::cut`].
    pub fn cut(&self, names_within: Duration) -> Option<Arc<Snapshot>> {
        self.asker.as_ref()?.cut(names_within)
    }

    /// Returns a handle for another thread, which may wait. The reducer's thread ends once all
    /// handles are dropped, or after [`Reducer::finish`].
    pub fn asker(&self) -> Option<Asker> {
        self.asker.clone()
    }

    /// Returns the last snapshot, like [`Reducer::snapshot`], after it has booked carried time. The
    /// sampler must have stopped.
    pub fn finish(mut self, names_within: Duration) -> Option<Arc<Snapshot>> {
        let (reply, answer) = sync_channel(1);
        self.asker.as_ref()?.commands.send(Command::Finish { names_within, reply }).ok()?;
        let snapshot = answer.recv().ok();
        self.join();
        snapshot
    }

    fn join(&mut self) {
        self.asker = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Reducer {
    fn drop(&mut self) {
        self.join();
    }
}

/// Requests snapshots from a running reducer.
#[derive(Clone)]
pub struct Asker {
    commands: Sender<Command>,
}

impl Asker {
    /// Returns a snapshot of this moment; waits up to `names_within` for names that are still being
    /// loaded. `None` only if the reducer's thread has ended.
    pub fn snapshot(&self, names_within: Duration) -> Option<Arc<Snapshot>> {
        self.ask(names_within, false)
    }

    /// Does the same; later bookings go to a new history that starts there.
    pub fn cut(&self, names_within: Duration) -> Option<Arc<Snapshot>> {
        self.ask(names_within, true)
    }

    fn ask(&self, names_within: Duration, cut: bool) -> Option<Arc<Snapshot>> {
        let (reply, answer) = sync_channel(1);
        self.commands.send(Command::Snapshot { names_within, cut, reply }).ok()?;
        answer.recv().ok()
    }
}

struct Worker {
    rings: Vec<Reader>,
    symbols: Symbols,
    names: Names,
    recorder: Recorder,
    session: Arc<Session>,
    startup_ns: Ns,
    conditions: Box<dyn FnMut() -> Conditions + Send>,
    publication: Option<Publication>,
    own_cpu: OwnCpu,
    used_ns: Arc<AtomicU64>,
    /// Processes that exited (pid, time), in order of exit.
    ended: Vec<(u32, Ns)>,
    /// Frames of which it is not yet known whose code they are.
    unplaced: Vec<RawFrame>,
    /// Targets that exited in an earlier history, by pid and start time.
    over: Vec<(u32, u64)>,
}

impl Worker {
    fn new(inputs: Inputs) -> Worker {
        Worker {
            rings: inputs.rings,
            symbols: inputs.symbols,
            names: inputs.names,
            recorder: Recorder::new(inputs.session.started, inputs.limits),
            session: Arc::new(inputs.session),
            startup_ns: inputs.startup_ns,
            conditions: inputs.conditions,
            publication: inputs.publication,
            own_cpu: OwnCpu::begin(),
            used_ns: inputs.used_ns,
            ended: Vec::new(),
            unplaced: Vec::new(),
            over: Vec::new(),
        }
    }

    fn run(&mut self, commands: &Receiver<Command>) {
        let mut conditions_due = Instant::now();
        // Publishes the first snapshot as soon as there are any events.
        let mut due = None;
        let mut first = None;
        let mut wait = DRAIN_EVERY;
        loop {
            if Instant::now() >= conditions_due {
                // Another backend may see more or less of the kernel.
                self.recorder.set_kernel_visible((self.conditions)().kernel_visible);
                conditions_due = Instant::now() + Duration::from_secs(1);
            }
            match commands.recv_timeout(wait) {
                Ok(Command::Snapshot { names_within, cut, reply }) => {
                    let snapshot = if cut {
                        self.cut(names_within)
                    } else {
                        self.named_snapshot(names_within)
                    };
                    let _ = reply.send(snapshot);
                }
                Ok(Command::Finish { names_within, reply }) => {
                    self.drain();
                    let at = self.recorder.view().at;
                    self.recorder.close(at);
                    let _ = reply.send(self.named_snapshot(names_within));
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let drained = self.drain();
            let any = drained > 0;
            self.used_ns.store(clock::thread_cpu(), Ordering::Relaxed);
            let now = Instant::now();
            if self.publication.is_some() && due.map_or(any, |due| now >= due) {
                let snapshot = self.snapshot();
                if let Some(publication) = &mut self.publication {
                    (publication.to)(snapshot);
                    let young = now < *first.get_or_insert(now) + YOUNG;
                    due = Some(
                        now + if young {
                            publication.every.min(YOUNG_EVERY)
                        } else {
                            publication.every
                        },
                    );
                }
            }
            wait = match (&self.publication, due) {
                _ if drained >= ALL_BUT_EMPTY => DRAIN_EVERY,
                (None, _) => REST,
                // Nothing has come yet, and the user waits for it.
                (Some(_), None) => DRAIN_EVERY,
                (Some(_), Some(due)) => due.saturating_duration_since(Instant::now()).min(REST),
            };
        }
    }

    /// Drains the rings, each in order of time. Returns the number of events.
    fn drain(&mut self) -> usize {
        self.drain_for(None)
    }

    /// Does the same. `former`: the tables of an earlier history, which get new names too.
    fn drain_for(&mut self, mut former: Option<&mut Former>) -> usize {
        let mut drained = 0;
        for ring in &mut self.rings {
            for event in ring.by_ref() {
                drained += 1;
                if let Event::Observation(observation) = &event
                    && let Some(text) = self.names.thread(observation.name)
                {
                    self.recorder.set_thread_name(observation.name, &text);
                }
                if let Some(class) = event.blocker().and_then(|blocker| blocker.class)
                    && let Some(text) = self.names.thread(class)
                {
                    self.recorder.set_class_name(class, &text);
                }
                if let Event::ProcessEnded { at, pid } = event {
                    self.ended.push((pid, at));
                }
                self.recorder.apply(&event);
            }
        }
        let mut unnamed = self.recorder.take_unnamed();
        if !self.unplaced.is_empty() && !self.names.is_placing() {
            for frame in std::mem::take(&mut self.unplaced) {
                let Some(named) = self.names.named(frame) else { continue };
                if let Some(former) = &mut former {
                    former.set_named(frame, named.clone());
                }
                self.name(frame, named);
            }
        }
        unnamed.retain(|frame| match self.names.named(*frame) {
            Some(named) => {
                self.name(*frame, named);
                false
            }
            None => true,
        });
        if !unnamed.is_empty() {
            for frame in &unnamed {
                let placeholder = self.symbols.placeholder(*frame);
                self.recorder.set_named(*frame, placeholder);
            }
            self.symbols.request(&unnamed);
        }
        for resolved in self.symbols.take() {
            if let Some(former) = &mut former {
                former.set_named(resolved.frame, resolved.named.clone());
            }
            self.recorder.set_named(resolved.frame, resolved.named);
        }
        drained
    }

    /// Sets the name of a runtime's frame.
    fn name(&mut self, frame: RawFrame, named: Named) {
        if named.pending {
            self.unplaced.push(frame);
        }
        self.recorder.set_named(frame, named);
    }

    /// Returns whether names are still being read.
    fn is_naming(&self) -> bool {
        self.symbols.pending() > 0 || !self.unplaced.is_empty()
    }

    fn named_snapshot(&mut self, names_within: Duration) -> Arc<Snapshot> {
        let deadline = Instant::now() + names_within;
        loop {
            self.drain();
            if !self.is_naming() || Instant::now() >= deadline {
                // The channel now holds the names resolved between the drain and the check above.
                self.drain();
                return self.snapshot();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns a snapshot of now, with the names that arrive in time. History restarts from it, and
    /// so do the clocks, since the wall clock may have been set.
    fn cut(&mut self, names_within: Duration) -> Arc<Snapshot> {
        self.drain();
        let last = self.snapshot();
        let mut former = self.recorder.restart();
        self.begin_again(&last);
        let deadline = Instant::now() + names_within;
        while former.is_pending() && self.is_naming() && Instant::now() < deadline {
            std::thread::sleep(DRAIN_EVERY);
            self.drain_for(Some(&mut former));
        }
        self.drain_for(Some(&mut former));
        let mut named = Snapshot::clone(&last);
        named.tables = former.tables();
        named.health.naming = former.is_pending();
        Arc::new(named)
    }

    fn begin_again(&mut self, last: &Snapshot) {
        let at = last.at;
        let ago = i128::from(clock::monotonic().saturating_sub(at));
        let started_unix_ns = i128::from(clock::realtime()) - ago;
        // A new session, since stack ids now have other meanings.
        self.session =
            Arc::new(Session { started: at, started_unix_ns, ..Session::clone(&self.session) });
        let remembered: Vec<(u32, u64)> =
            (self.conditions)().targets.iter().map(|t| (t.pid, t.start)).collect();
        self.over.retain(|over| remembered.contains(over));
        self.over.extend(
            last.targets.iter().filter(|target| target.ended.is_some()).map(|t| (t.pid, t.start)),
        );
        self.ended.clear();
    }

    /// Joins the notice of capture with the one about missing kernel names.
    fn notice(&self, of_capture: Option<Arc<str>>) -> Option<Arc<str>> {
        match of_capture {
            of_capture if !self.symbols.kernel_is_nameless() => of_capture,
            Some(text) => Some(format!("{text}; {NAMELESS}").into()),
            None => Some(NAMELESS.into()),
        }
    }

    fn snapshot(&mut self) -> Arc<Snapshot> {
        let conditions = (self.conditions)();
        self.recorder.set_kernel_visible(conditions.kernel_visible);
        if self.session.interval_ns != conditions.interval_ns {
            Arc::make_mut(&mut self.session).interval_ns = conditions.interval_ns;
        }
        let View {
            at,
            tables,
            history,
            threads,
            ticks,
            losses,
            folded_facts,
            dropped_buckets,
            late_p99_ns,
            interval_achieved_ns,
            visit_interval_ns,
            deadlocks,
        } = self.recorder.view();
        let mut targets = conditions.targets.to_vec();
        targets.retain(|target| !self.over.contains(&(target.pid, target.start)));
        // Forgets the exits of targets that are no longer remembered.
        self.ended.retain(|(pid, _)| targets.iter().any(|target| target.pid == *pid));
        let mut ended = self.ended.clone();
        for target in &mut targets {
            // Several targets may have had the same pid, one after the other.
            if let Some(at) = ended.iter().position(|(pid, _)| *pid == target.pid) {
                target.ended = Some(ended.remove(at).1);
            }
        }
        let (self_cpu_percent, total_cpu_percent) = self.own_cpu.percents(losses.sampler_cpu_ns);
        let health = Health {
            ticks,
            losses,
            interval_achieved_ns,
            visit_interval_ns,
            late_p99_ns,
            self_cpu_percent,
            total_cpu_percent,
            naming: self.is_naming(),
            folded_facts,
            dropped_buckets,
            startup_ns: self.startup_ns,
            host: conditions.host,
        };
        Arc::new(Snapshot {
            session: Arc::clone(&self.session),
            targets: targets.into(),
            at,
            capture: conditions.capture,
            health,
            tables,
            history,
            threads,
            deadlocks,
            observed_waits: Arc::default(),
            wakeups: None,
            notice: self.notice(conditions.notice),
            stopped: conditions.stopped,
        })
    }
}

/// Why kernel frames have no names, and the fix.
const NAMELESS: &str = "the kernel's functions have no names here, because it hides their addresses; run sampletop as root, with kernel.kptr_restrict below 2";

/// CPU use of the sampler and this thread, and of the whole process, averaged over the last 5 s.
struct OwnCpu {
    /// (time, CPU ns of both threads, CPU ns of the process), oldest first.
    readings: VecDeque<(Instant, u64, u64)>,
}

impl OwnCpu {
    /// Starts with readings of zero, so that the first average includes the CPU time used before:
    /// the sampler may have loaded programs into the kernel.
    fn begin() -> OwnCpu {
        OwnCpu { readings: VecDeque::from([(Instant::now(), 0, 0)]) }
    }

    /// Returns the use of both threads and of the process, percent of one core.
    fn percents(&mut self, sampler_ns: u64) -> (f64, f64) {
        let (both, all) = (sampler_ns + clock::thread_cpu(), clock::process_cpu());
        let now = Instant::now();
        self.readings.push_back((now, both, all));
        // Keep one reading from before the span, so that the average covers all of it.
        while self.readings.len() > 2 && now.duration_since(self.readings[1].0) >= OWN_CPU_SPAN {
            self.readings.pop_front();
        }
        let (from, both_before, all_before) = self.readings[0];
        let elapsed = now.duration_since(from).as_nanos() as f64;
        if elapsed < 1e6 {
            return (0.0, 0.0);
        }
        let percent = |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed * 100.0;
        (percent(both, both_before), percent(all, all_before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::event_ring;
    use crate::model::vocabulary::event::{Losses, Tick};

    #[test]
    fn all_threads_use_as_much_as_two_of_them() {
        let mut own = OwnCpu::begin();
        std::thread::sleep(Duration::from_millis(2));
        // Both figures include what the sampler had used before the reducer started.
        let sampler = clock::process_cpu().saturating_sub(clock::thread_cpu());
        let (two, all) = own.percents(sampler);
        assert!(two > 0.0 && two <= all, "{two} {all}");
    }

    #[test]
    fn ends_of_processes_that_are_not_remembered_take_no_room() {
        let (mut writer, reader) = event_ring::channel(1 << 12);
        let target = |pid| Target {
            pid,
            start: 1,
            command: "fork".into(),
            runtime: "native",
            uid: 0,
            unit: None,
            started_unix_ns: 0,
            ended: None,
        };
        let conditions = move || Conditions {
            capture: "bpf".into(),
            notice: None,
            kernel_visible: true,
            targets: Arc::new([target(7), target(8)]),
            stopped: false,
            interval_ns: 10_000_000,
            host: None,
        };
        let mut worker = Worker::new(Inputs {
            rings: vec![reader],
            symbols: Symbols::start(Default::default()),
            names: Names::default(),
            session: Session::made_up(),
            limits: Limits::default(),
            conditions: Box::new(conditions),
            publication: None,
            used_ns: Arc::default(),
            startup_ns: 0,
        });
        for pid in 1..100 {
            assert!(writer.push(&Event::ProcessEnded { at: pid.into(), pid }));
        }
        worker.drain();
        let snapshot = worker.snapshot();
        assert_eq!(
            snapshot.targets.iter().map(|target| target.ended).collect::<Vec<_>>(),
            [Some(7), Some(8)]
        );
        assert_eq!(worker.ended, [(7, 7), (8, 8)]);
    }

    #[test]
    fn the_first_snapshot_is_soon_followed_by_another() {
        let (mut writer, reader) = event_ring::channel(1 << 12);
        let (sender, snapshots) = channel();
        let nothing = || Conditions {
            capture: "perf".into(),
            notice: None,
            kernel_visible: true,
            targets: Arc::new([]),
            stopped: false,
            interval_ns: 10_000_000,
            host: None,
        };
        // With this interval only the publications of the first second can arrive.
        let every = Duration::from_secs(3600);
        let to = Box::new(move |snapshot| drop(sender.send(snapshot)));
        let _reducer = Reducer::start(Inputs {
            rings: vec![reader],
            symbols: Symbols::start(Default::default()),
            names: Names::default(),
            session: Session::made_up(),
            startup_ns: 0,
            limits: Limits::default(),
            conditions: Box::new(nothing),
            publication: Some(Publication { every, to }),
            used_ns: Arc::default(),
        })
        .expect("a thread");
        let within = Duration::from_secs(30);
        assert!(snapshots.recv_timeout(DRAIN_EVERY * 3).is_err(), "there is nothing to see yet");
        let losses = Losses::default();
        let tick = Tick { interval_ns: 1, losses, ..Tick::new(1, 1) };
        assert!(writer.push(&Event::Tick(tick)));
        for what in ["the first", "its successor"] {
            snapshots.recv_timeout(within).unwrap_or_else(|_| panic!("{what} did not come"));
        }
    }
}
