//! Detects waits at a thread's own base: between the thread's start and the wait there are only its
//! loops, and functions that take the next piece of work or sleep. Any other function of the user
//! is a job, and a wait in a job is never idle.
//!
//! This finds pools that no list knows (see [`super::idle`]). It goes by the place of functions and
//! by words that programs use for such functions: `take`, `wait_for_job`, `event_loop`. In doubt
//! the thread is busy.

use std::sync::LazyLock;

use regex::Regex;

use crate::model::facts::redacted;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::qualified::segments;
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

/// What a frame says about the place of those further in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::model) enum BaseMark {
    /// Of no meaning here: a wait, the kernel, start-up, glue.
    #[default]
    Neutral,
    /// A closure of the user: a thread's start, or a job.
    Closure,
    /// `main` of native code.
    Main,
    /// A function of the user that is named as a loop: `serve`, `event_loop`.
    Loop,
    /// `run` or `start` of native code: a thread's first function, or a job's.
    Run,
    /// A loop in managed code, where the first function of a thread may be a job.
    ManagedLoop,
    /// A function of the user that is named as one that takes work: `pop`, `wait_for_job`.
    Takes,
    /// A function of the user that is named as one that sleeps: `pause_ms`.
    Sleeps,
    /// Start-up code: the stack is known down to the thread's start.
    Starts,
    /// The language's own library: it starts threads. Below the user's code it is part of a job.
    Library,
    /// Everything below is a job: any other function, an executor that runs tasks, a marker.
    Job,
}

impl BaseMark {
    /// Returns the word of the mark in a replaced name; `None` if the place says it.
    pub(in crate::model) fn word(self) -> Option<&'static str> {
        WORDS.iter().find(|(_, mark)| *mark == self).map(|(word, _)| *word)
    }
}

/// Words in replaced names.
const WORDS: &[(&str, BaseMark)] = &[
    (redacted::CLOSURE, BaseMark::Closure),
    (redacted::NATIVE_MAIN, BaseMark::Main),
    (redacted::BASE, BaseMark::Loop),
    (redacted::RUN, BaseMark::Run),
    (redacted::MANAGED_BASE, BaseMark::ManagedLoop),
    (redacted::TAKES, BaseMark::Takes),
    (redacted::SLEEPS, BaseMark::Sleeps),
    (redacted::STARTS, BaseMark::Starts),
    (redacted::OF_LANGUAGE, BaseMark::Library),
    (redacted::RUNS_TASKS, BaseMark::Job),
];

/// Closures: `run::{lambda()#1}::operator()`, `run::{{closure}}`, `Main.lambda$run$0`.
const CLOSURES: &str = r"\{\{?(closure|lambda)|<lambda|\blambda\$|'lambda";

/// Functions whose purpose is to loop or to serve, by the last part of their names.
const LOOPS: &str = r"(?x)^(
    \w*(worker|background|daemon|_thread|thread_|watchdog|heartbeat|ticker)\w* |
    serve | loop | (run|main|event|io|worker|server|message)_?(loop|forever)
    | \w*(_loop|Loop|_forever|Forever)
    | \w*(_main|Main)
    )$";

/// Functions that take the next piece of work.
const TAKES: &str = r"(?x)^(
    (try_|do_)?(take|pop|dequeue|deque|accept|idle|park)
    | (pop|take|wait_and_pop|dequeue|accept)_?(one|next|front|back|first|all|blocking)
    | (get|take|pop|fetch|next|dequeue|receive|recv|pull|accept)_?(a_|the_|new_|next_|more_)?
      (work|task|job|item|order|message|msg|event|command|line|record|entry|batch|packet|chunk)s?
    | (wait|sleep|block|park|idle|await|poll|look|listen)_?(for|until|on)?_?(a_|the_|new_|next_|more_|any_)?
      (work|task|job|item|message|msg|request|query|event|command|client|signal|input
      |wakeup|notification|shutdown)s?(_available|_ready|_arrives?)?
    )$";

/// Functions that only let time pass.
const SLEEPS: &str = r"(?x)^(sleep|nap|rest|pause|snooze|delay)(_?(for|ms|us|ns|s|secs?|seconds|millis|until|a_while))?$";

/// The first frames of threads.
const STARTS: &str = r"(?x)^(
    _start | _*libc_start_.* | start_thread | _*(GI_)?_*clone[23]? | <?std::sys::.*thread_start
    | runtime\.(goexit|main)(\.abi0)? | java\.lang\.Thread\.run
    )$";

/// Frames that run tasks of others: what they call is a job.
const RUNS_TASKS: &str = r"(?x)^(
    java\.util\.concurrent\.(ThreadPoolExecutor.*\.runWorker|FutureTask\..*|ForkJoin.*|Executors\$.*|CompletableFuture.*)
    | org\.apache\.tomcat\.util\.threads\.ThreadPoolExecutor.*\.runWorker
    | <?tokio::runtime::(task|blocking)::.* | <?rayon_core::job::.*
    | (boost::)?asio::detail::.*(do_)?(complete|invoke).* | std::__future_base::.*
    )$";

static PATTERNS: LazyLock<[Regex; 6]> = LazyLock::new(|| {
    [CLOSURES, LOOPS, TAKES, SLEEPS, RUNS_TASKS, STARTS]
        .map(|text| Regex::new(text).expect("the shipped lists are regular expressions"))
});

/// Returns the mark of a frame; `role`: whose code it is.
pub(in crate::model) fn mark(location: &Location, role: Role) -> BaseMark {
    let [closures, loops, takes, sleeps, runs_tasks, starts] = &*PATTERNS;
    let name = &*location.function;
    if let Some(words) = redacted::of(name) {
        let mut marks = words.filter_map(|word| WORDS.iter().find(|(known, _)| *known == word));
        if let Some((_, mark)) = marks.next() {
            return *mark;
        }
    }
    match role {
        Role::Wait | Role::Kernel => return BaseMark::Neutral,
        Role::Runtime if runs_tasks.is_match(name) => return BaseMark::Job,
        Role::Runtime if starts.is_match(name) => return BaseMark::Starts,
        Role::Runtime => return BaseMark::Neutral,
        Role::Library if is_standard_library(location) => return BaseMark::Library,
        Role::Library | Role::Marker => return BaseMark::Job,
        Role::App => {}
    }
    if closures.is_match(name) {
        return BaseMark::Closure;
    }
    let last = match location.kind {
        FrameKind::Java | FrameKind::Python => name.rsplit('.').next().unwrap_or(name),
        _ => segments(name).last().copied().unwrap_or(name),
    };
    let snake = snake_case(last);
    match location.kind {
        _ if takes.is_match(&snake) => BaseMark::Takes,
        _ if sleeps.is_match(&snake) => BaseMark::Sleeps,
        FrameKind::Native => match &*snake {
            "main" => BaseMark::Main,
            "run" | "start" => BaseMark::Run,
            name if loops.is_match(name) => BaseMark::Loop,
            _ => BaseMark::Job,
        },
        _ if snake == "main" || loops.is_match(&snake) => BaseMark::ManagedLoop,
        _ => BaseMark::Job,
    }
}

/// Returns whether it is C's, C++'s or Rust's own library.
fn is_standard_library(location: &Location) -> bool {
    const MODULES: &[&str] = &["libstdc++.so", "libc++.so", "libc.so", "libc-", "libpthread"];
    location.kind == FrameKind::Native
        && (MODULES.iter().any(|module| location.module.starts_with(module))
            || matches!(segments(&location.function)[..], ["std" | "core" | "alloc", _, ..]))
}

/// `waitForJob` -> `wait_for_job`.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut lower_before = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            if lower_before {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        } else {
            snake.push(c);
        }
        lower_before = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    snake
}

/// Conclusion from the frames of a stack, from the outermost down to one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Base {
    /// What is further out is not known.
    #[default]
    Unknown,
    /// No code of the user so far.
    Start,
    /// `main`, which waits for others.
    Main,
    /// Closures, the first of the thread. A wait in them is for work.
    Closures,
    /// The first function of a thread in native code, named as a loop.
    First,
    /// Loops by their names only. The user's `run` may be a job, so only sleeping here is idle.
    Loops,
    /// A function that takes work, called by those.
    Takes,
    /// A function that sleeps, called by those.
    Sleeps,
    Job,
}

impl Base {
    /// Returns the conclusion with one more frame, further in.
    pub(super) fn below(self, mark: BaseMark) -> Base {
        use BaseMark::{Closure, Library, Loop, ManagedLoop, Neutral, Run};
        let is_base =
            matches!(self, Base::Start | Base::Main | Base::Closures | Base::First | Base::Loops);
        match (self, mark) {
            (base, Neutral) => base,
            (Base::Unknown | Base::Start, BaseMark::Starts) => Base::Start,
            (Base::Unknown, Library) => Base::Unknown,
            (_, BaseMark::Takes) if is_base || self == Base::Takes => Base::Takes,
            (_, BaseMark::Sleeps) if is_base || self == Base::Sleeps => Base::Sleeps,
            // A Rust program has two: the one that C calls, and its own.
            (Base::Start | Base::Main, BaseMark::Main) => Base::Main,
            (Base::Start, Library) => Base::Start,
            (Base::Start | Base::Closures, Closure) => Base::Closures,
            (Base::Start, Loop | Run) => Base::First,
            (Base::Main, Run) => Base::Loops,
            (_, Loop | ManagedLoop) if is_base => Base::Loops,
            _ => Base::Job,
        }
    }

    /// Returns whether a thread in this state waits for work.
    pub(super) fn is_idle(self, state: State) -> bool {
        match state {
            State::Wait => matches!(self, Base::Main | Base::Closures | Base::First | Base::Takes),
            State::Sleep => !matches!(self, Base::Unknown | Base::Start | Base::Job),
            State::Run
            | State::Rdy
            | State::Lock
            | State::Io
            | State::Poll
            | State::Disk
            | State::Stopped => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::projection::role;
    use crate::model::vocabulary::role::Origin;

    /// `frames` outermost first: `.` in names of Java, `libx!name` in a library of the system.
    fn is_idle(state: State, frames: &[&str]) -> bool {
        let base = frames.iter().fold(Base::default(), |base, text| {
            let (module, name) = text.split_once('!').unwrap_or(("shop", text));
            let is_java = name.contains('.') && !name.contains("::");
            let kind = if is_java { FrameKind::Java } else { FrameKind::Native };
            let origin = if module == "shop" { Origin::Unknown } else { Origin::Library };
            let location = Location { module: module.into(), ..Location::named(name, kind) };
            base.below(mark(&location, role(&location, origin)))
        });
        base.is_idle(state)
    }

    #[test]
    fn a_wait_for_work_at_the_base_is_idle() {
        let start = ["libc.so.6!clone3", "start_thread", "libstdc++.so.6!fn_d4490"];
        for frames in [
            &[
                "shop::start::{lambda()#1}::operator()",
                "shop::pool::{lambda()#2}::operator()",
                "shop::Queue::take",
            ][..],
            &["shop::start::{lambda()#1}::operator()"],
            &["bioProcessBackgroundJobs"],
            &["worker", "Queue::wait_for_task"],
            &["main", "Server::wait_for_shutdown"],
            &["main", "__libc_pause"],
            &["Worker::threadMain", "Worker::nextJob"],
            &["main", "shop::serve", "shop::wait_for_signal"],
            &["shop::main::{{closure}}", "shop::wait_for_job"],
            &["Pool::run", "Pool::getTask"],
        ] {
            let frames =
                [&start[..], frames, &["std::condition_variable::wait", "pthread_cond_wait"]]
                    .concat();
            assert!(is_idle(State::Wait, &frames), "{frames:?}");
        }
        for frames in [
            &["main", "svc::serve"][..],
            &["main"],
            &["main", "std::rt::lang_start_internal", "shop::main"],
            &["plan_loop"],
            &["shop::tick::{lambda()#1}::operator()", "svc::pause_ms"],
            &[
                "java.lang.Thread.run",
                "shop.Main.lambda$main$0",
                "shop.Main.nap",
                "java.lang.Thread.sleep",
            ],
        ] {
            assert!(
                is_idle(State::Sleep, &[&["_start"], frames, &["clock_nanosleep"]].concat()),
                "{frames:?}"
            );
        }
    }

    #[test]
    fn a_wait_in_a_job_is_busy() {
        for frames in [
            &[
                "shop::main::{{closure}}",
                "shop::confirm",
                "shop::enqueue",
                "std::sync::mpsc::SyncSender<T>::send",
            ][..],
            &["shop::main::{{closure}}", "std::sync::mpsc::SyncSender<T>::send"],
            &["shop::start::{lambda()#1}::operator()", "shop::render", "shop::convert", "wait4"],
            &["shop::start::{lambda()#1}::operator()", "shop::render", "shop::Queue::take"],
            &["worker_loop", "shop::handle", "pthread_cond_wait"],
            &["worker_loop", "shop::Task::run", "pthread_cond_wait"],
            &["worker_loop", "shop::run::{lambda()#1}::operator()", "pthread_cond_wait"],
            &["main", "shop::fetch", "shop::pause_ms", "clock_nanosleep"],
            &["java.lang.Thread.run", "shop.Request.run", "java.lang.Object.wait"],
            &["java.lang.Thread.run", "shop.Request.run", "java.util.concurrent.FutureTask.get"],
            &[
                "java.lang.Thread.run",
                "java.util.concurrent.ThreadPoolExecutor.runWorker",
                "shop.Main.lambda$submit$0",
                "java.lang.Thread.sleep",
            ],
            &["java.lang.Thread.run", "shop.Convoy.slowFormat", "java.lang.Thread.sleep"],
            &["libx.so!pool_run", "pthread_cond_wait"],
            &["handle_request", "pthread_cond_wait"],
            &["handle_request", "delay_ms", "clock_nanosleep"],
            &["shop::main::{{closure}}", "Pool::get_connection", "pthread_cond_wait"],
            &["java.lang.Thread.run", "shop.Request.run", "java.lang.Thread.sleep"],
        ] {
            let frames = [&["clone3"], frames].concat();
            for state in [State::Wait, State::Sleep] {
                assert!(!is_idle(state, &frames), "{state:?} {frames:?}");
            }
        }
    }

    #[test]
    fn only_waiting_and_sleeping_can_be_idle() {
        for state in State::ALL {
            let idle = is_idle(state, &["clone3", "worker", "Queue::take"]);
            assert_eq!(idle, matches!(state, State::Wait | State::Sleep), "{state:?}");
        }
        assert!(!is_idle(State::Wait, &[]), "without code of the user the lists decide");
        assert!(!is_idle(State::Wait, &["worker", "Queue::take"]), "what is above is not known");
    }
}
