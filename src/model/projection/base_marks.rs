//! Marks frames for [`super::thread_base`]: by whose code it is, and by words that programs use for
//! functions that loop, take work, or sleep.

use std::sync::LazyLock;

use regex::Regex;

use super::go_base;
use super::node::is_node;
use super::python::{self, Place};
use crate::model::facts::redacted;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::qualified::segments;
use crate::model::vocabulary::role::Role;

/// What a frame says about the place of those further in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::model) enum BaseMark {
    /// Of no meaning here: a wait, the kernel, start-up, glue.
    #[default]
    Neutral,
    /// A closure of the user: a thread's start, or a job.
    Closure,
    /// `main` of native code and of Python, or the code of a Python module.
    Main,
    /// A function of the user that is named as a loop: `serve`, `event_loop`.
    Loop,
    /// `run` or `start` of native code: a thread's first function, or a job's.
    Run,
    /// Another function of native code whose name is not that of a job.
    Any,
    /// Waits for other threads to end; in Java also for a future or a process.
    Joins,
    /// Waits for a future.
    BlocksOn,
    /// A loop in managed code, where the first function of a thread may be a job.
    ManagedLoop,
    /// `main` of Java.
    ManagedMain,
    /// `run` of a class of Java that is no job's.
    ManagedRun,
    /// A closure of managed code.
    ManagedClosure,
    /// Another function of a queue of Java's library.
    OfQueue,
    /// Another method of a library of Java.
    ManagedLibrary,
    /// Blocks in Java: `Object.wait`, `LockSupport.park`.
    Parks,
    /// A semaphore or a latch of Java's library, or CPython's C function for all its locks.
    Synchronizer,
    /// Waits for the end of a server in Java: `blockUntilShutdown`.
    AwaitsEnd,
    /// A method of Java that takes work if `run` of its thread calls it: `next`. Elsewhere a job.
    MayTake,
    /// Waits for a condition, an event or a queue of Python's library.
    Awaits,
    /// Another function of Python's library. A callback of the user below it is a job.
    ScriptLibrary,
    /// A function of the user that is named as one that takes work: `pop`, `wait_for_job`.
    Takes,
    /// A function of the user that is named as one that waits for a client or for its request.
    Serves,
    /// Receives from a channel of a library.
    Receives,
    /// A function of the user that is named as one that sleeps: `pause_ms`.
    Sleeps,
    /// Start-up code: the stack is known down to the thread's start.
    Starts,
    /// The same of a goroutine.
    StartsGoroutine,
    /// The first function of the main goroutine.
    StartsMainGoroutine,
    /// A goroutine waits for another, or for an answer, and has work.
    Asks,
    /// The language's own library. It starts threads, and it waits in conditions and channels.
    Library,
    /// Another library.
    Foreign,
    /// A library of pools: of these functions any number may lead to the wait for work.
    OfPool,
    /// A server whose threads are known to wait for work in few functions.
    OfServer,
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
    (redacted::SERVES, BaseMark::Serves),
    (redacted::SLEEPS, BaseMark::Sleeps),
    (redacted::STARTS, BaseMark::Starts),
    (redacted::OF_LANGUAGE, BaseMark::Library),
    (redacted::RUNS_TASKS, BaseMark::Job),
    (redacted::ANY, BaseMark::Any),
    (redacted::JOINS, BaseMark::Joins),
    (redacted::BLOCKS_ON, BaseMark::BlocksOn),
    (redacted::FOREIGN, BaseMark::Foreign),
    (redacted::OF_POOL, BaseMark::OfPool),
    (redacted::OF_SERVER, BaseMark::OfServer),
    (redacted::RECEIVES, BaseMark::Receives),
    (redacted::MANAGED_RUN, BaseMark::ManagedRun),
    (redacted::MANAGED_CLOSURE, BaseMark::ManagedClosure),
    (redacted::OF_QUEUE, BaseMark::OfQueue),
    (redacted::MANAGED_MAIN, BaseMark::ManagedMain),
    (redacted::MANAGED_LIBRARY, BaseMark::ManagedLibrary),
    (redacted::PARKS, BaseMark::Parks),
    (redacted::SYNCHRONIZER, BaseMark::Synchronizer),
    (redacted::AWAITS_END, BaseMark::AwaitsEnd),
    (redacted::MAY_TAKE, BaseMark::MayTake),
    (redacted::AWAITS, BaseMark::Awaits),
    (redacted::SCRIPT_LIBRARY, BaseMark::ScriptLibrary),
];

/// Closures: `run::{lambda()#1}::operator()`, `run::{{closure}}`, `Main.lambda$run$0`, and clang's
/// `main::$_1::operator()`.
const CLOSURES: &str = r"\{\{?(closure|lambda)|<lambda|\blambda\$|'lambda|::\$_\d+::operator\(\)";

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
    | (\w+_)?(queue|channel|mailbox|inbox|fifo)_(get|pop|take|next|recv|receive|dequeue|pull|wait)
    | \w*(sem|cond|condition)_(timed_?)?wait
    )$";

/// Functions that wait for a client or for its request. What they read is no answer.
const SERVES: &str = r"(?x)^(
    (wait|sleep|block|park|idle|await|poll|look|listen)_?(for|until|on)?_?(a_|the_|new_|next_|more_|any_)?
      (request|query|command|client|input)s?(_available|_ready|_arrives?)?
    | (read|receive|recv|next|accept)_?(a_|the_|new_|next_|more_)?(request|query|command|client)s?
    | accept(_?(one|all|loop|connections?))?
    )$";

/// Queues of Java's library. A job may take from them too: an answer, a connection.
const JAVA_QUEUES: &str = r"^java\.util\.concurrent\.[A-Za-z]*(Queue|Deque)(\$\w+)*\.(?<takes>(take|poll)(First|Last)?$)?";

/// Methods of Java that wait for the end of a server or a program. An `exit` or an `end` may be
/// that of a child or of a job, so only `main` may wait for those.
const JAVA_ENDS: &str = r"(?x)^
    (run_(until|till) | (block|wait|await|join)(_(until|till|for))?)
    (_(the|its|all|server|app|application|service|system|process))*
    _((?<of_server>shut_?down|terminat(ion|ed)|stop(ped)?) | exit | end)
    $";

/// Methods of Java's libraries that wait for others to end, if `main` calls them.
const JAVA_JOINS: &str = r"(?x)^(
    (await|wait|join|sync|block)(_(uninterruptibly|indefinitely))?
    | await_(termination|quiescence)
    )$";

/// Methods of Java that take work if the thread's own `run` calls them.
const MAY_TAKE: &str = r"(?x)^(
    await | (take|poll|next|pop|dequeue|receive|recv|pull)
      (_(a|one|next|first|last|all|any|many|batch|blocking|uninterruptibly|or_wait|with_timeout))?
    )$";

/// Types whose elements are not work: answers, rows, connections.
const NO_WORK: &str = r"(?x)
    pool | connection | client | session | future | promise | repl(y|ies) | respon(se|d) | result
    | answer | confirm | request | query | payment | permit | barrier | cursor | iterator | stream
    | (^|_)(ack|row)s?(_|$)";

/// Native functions that are a job by their names, although a thread may start with them.
const JOBS: &str = r"(?x)^(
    (on|handle|execute|compute|render|import|export|upload|download|fetch|load|save|send|request
      |respond|query|ask|migrate|build|convert|resize|encode|decode|retry|call|checkout)(_\w+)?
    | \w*_(request|query|job|task|order|file|call|reply|answer|response)
    )$";

/// Types whose `run` is a job.
const JOB_TYPES: &str = r"(Request|Task|Job|Query|Order|Call|Command|Runnable)(<.*>)?$";

/// Functions that wait for threads to end, or for all threads of a phase.
const JOINS: &str = r"(?x)^(
    _*(GI_)?_*pthread_(timed|clock|try)?join(_np|_ex)?(64)? | std::thread::join
    | <?std::thread::(\w+::)?(JoinHandle|JoinInner|ScopedJoinHandle|scope).*
    | <?std::sys::.*[Tt]hread>?::join
    )$";

/// Functions that wait for one result: futures, barriers, senders. What they wait for is a job's.
const RESULTS: &str = r"(?x)(
    [Bb]arrier | latch | [Ff]uture | [Pp]romise | (^|::)send(_timeout)?$ | (^|::)Once(Lock)?:: | oneshot
    | scope | [Rr]w_?[Ll]ock | (^|::)(write|join)$
    )";

/// Functions of tokio and of the crate futures that wait for a future.
const BLOCKS_ON: &str = r"(^|::)block_on(_all|_inner)?(<.*>)?(::\{\{closure\}\})*$";

/// Functions that only let time pass.
const SLEEPS: &str = r"(?x)^(sleep|nap|rest|pause|snooze|delay)(_?(for|ms|us|ns|s|secs?|seconds|millis|until|a_while))?$";

/// The first frames of threads.
const STARTS: &str = r"(?x)^(
    _start | _*libc_start_.* | start_thread | _*(GI_)?_*clone[23]? | <?std::sys::.*thread_start
    | runtime\.(goexit|main)(\.abi0)? | java\.lang\.Thread\.run
    | jdk\.internal\.misc\.InnocuousThread\.run
    | thread_native_entry | java_start | Thread::call_run | JavaThread::(run|thread_main_inner)
    )$";

/// Frames that run tasks of others: what they call is a job.
const RUNS_TASKS: &str = r"(?x)^(
    java\.util\.concurrent\.(ThreadPoolExecutor.*\.runWorker|FutureTask\..*|ForkJoin.*|Executors\$.*|CompletableFuture.*)
    | org\.apache\.tomcat\.util\.threads\.ThreadPoolExecutor.*\.runWorker
    | <?tokio::runtime::(task|blocking)::.* | <?rayon_core::job::.*
    | (boost::)?asio::detail::.*(do_)?(complete|invoke).* | std::__future_base::.*
    )$";

/// Functions of servers whose own body waits in a job, too: threads of MariaDB's replicas wait for
/// the master, and for transactions that come first. So these are busy, also without work.
const SERVER_JOBS: &[&str] = &["handle_rpl_parallel_thread", "handle_slave_io", "handle_slave_sql"];

/// Functions of servers that are part of a wait, and those in which a main thread spends its life.
const SERVER_WAITS: &[&str] = &[
    "inline_mysql_cond_wait",
    "inline_mysql_cond_timedwait",
    "my_cond_timedwait",
    "safe_cond_wait",
    "safe_cond_timedwait",
    "erts_sys_main_thread",
];

static PATTERNS: LazyLock<[Regex; 13]> = LazyLock::new(|| {
    [
        CLOSURES,
        LOOPS,
        TAKES,
        SERVES,
        SLEEPS,
        RUNS_TASKS,
        STARTS,
        JOBS,
        JOB_TYPES,
        JOINS,
        RESULTS,
        BLOCKS_ON,
        JAVA_QUEUES,
    ]
    .map(|text| Regex::new(text).expect("the shipped lists are regular expressions"))
});

static JAVA_PATTERNS: LazyLock<[Regex; 4]> = LazyLock::new(|| {
    [JAVA_ENDS, JAVA_JOINS, MAY_TAKE, NO_WORK]
        .map(|text| Regex::new(text).expect("the shipped lists are regular expressions"))
});

/// Returns the mark of a frame; `role`: whose code it is.
pub(in crate::model) fn mark(location: &Location, role: Role) -> BaseMark {
    let [closures, loops, takes, serves, sleeps, runs_tasks, starts, jobs, job_types, ..] =
        &*PATTERNS;
    let [.., joins, results, blocks_on, java_queues] = &*PATTERNS;
    let name = &*location.function;
    if location.is_task() || location.is_labels() {
        return BaseMark::Neutral;
    }
    if let Some(words) = redacted::of(name) {
        let mut marks = words.filter_map(|word| WORDS.iter().find(|(known, _)| *known == word));
        if let Some((_, mark)) = marks.next() {
            return *mark;
        }
    }
    if let Some(place) = python::place(location, role) {
        return match place {
            Place::Starts => BaseMark::Starts,
            Place::Job => BaseMark::Job,
            Place::Joins => BaseMark::Joins,
            Place::Awaits => BaseMark::Awaits,
            Place::Acquires => BaseMark::Synchronizer,
            Place::NativeLibrary => BaseMark::Library,
            Place::ScriptLibrary => BaseMark::ScriptLibrary,
            Place::Neutral => BaseMark::Neutral,
        };
    }
    if let Some(place) = go_base::place(location, role) {
        return match place {
            go_base::Place::Starts => BaseMark::StartsGoroutine,
            go_base::Place::StartsMain => BaseMark::StartsMainGoroutine,
            go_base::Place::Joins => BaseMark::Joins,
            go_base::Place::Neutral => BaseMark::Neutral,
            go_base::Place::Asks => BaseMark::Asks,
            go_base::Place::Serves => BaseMark::Serves,
            go_base::Place::Job => BaseMark::Job,
            go_base::Place::Library => BaseMark::Library,
            go_base::Place::Closure => BaseMark::Closure,
            go_base::Place::InnerClosure => BaseMark::Any,
            go_base::Place::Own(name) => mark_of_own(name),
        };
    }
    let is_native = location.kind == FrameKind::Native;
    match role {
        Role::Kernel => return BaseMark::Neutral,
        Role::Wait | Role::Library | Role::Runtime if is_native && joins.is_match(name) => {
            return BaseMark::Joins;
        }
        Role::Library | Role::Runtime if is_native && blocks_on.is_match(name) => {
            return BaseMark::BlocksOn;
        }
        Role::Wait if is_native && name.contains("barrier") => return BaseMark::Job,
        Role::Wait | Role::Library
            if location.kind == FrameKind::Java && java_queues.is_match(name) =>
        {
            let takes =
                java_queues.captures(name).is_some_and(|found| found.name("takes").is_some());
            return if takes { BaseMark::Takes } else { BaseMark::OfQueue };
        }
        Role::Wait if location.kind != FrameKind::Java => return BaseMark::Neutral,
        Role::Wait if name == "java.lang.Thread.join" => return BaseMark::Joins,
        Role::Wait => return BaseMark::Parks,
        Role::Runtime if runs_tasks.is_match(name) => return BaseMark::Job,
        Role::Runtime if starts.is_match(name) => return BaseMark::Starts,
        Role::App | Role::Library | Role::Runtime
            if is_native && is_server(&location.module) && !is_standard_library(location) =>
        {
            return match () {
                () if SERVER_JOBS.contains(&name) => BaseMark::Job,
                () if SERVER_WAITS.contains(&name) => BaseMark::Library,
                () => BaseMark::OfServer,
            };
        }
        // Its threads have few functions of their own; where scripts run there are many.
        Role::Runtime | Role::Library if is_native && is_node(&location.module) => {
            return BaseMark::Foreign;
        }
        Role::Runtime => return BaseMark::Neutral,
        Role::Library if is_child_wait(location) => return BaseMark::Neutral,
        Role::Library if is_native && is_standard_library(location) && plain(name) == "join" => {
            return BaseMark::Joins;
        }
        Role::Library if is_native && !results.is_match(&plain(name)) => {
            let last = segments(name).last().copied().unwrap_or(name);
            return match is_standard_library(location) {
                true if plain(last).starts_with("recv") => BaseMark::Receives,
                true => BaseMark::Library,
                false if is_of_pool(location) => BaseMark::OfPool,
                false if jobs.is_match(&snake_case(last)) => BaseMark::Job,
                false => BaseMark::Foreign,
            };
        }
        Role::Library if location.kind == FrameKind::Java => return mark_of_java_library(name),
        Role::Library if location.kind == FrameKind::Python => {
            let last = name.rsplit('.').next().unwrap_or(name);
            return if jobs.is_match(&snake_case(last)) {
                BaseMark::Job
            } else {
                BaseMark::Foreign
            };
        }
        Role::Library | Role::Marker => return BaseMark::Job,
        Role::App => {}
    }
    if closures.is_match(name) {
        return match is_native {
            true => BaseMark::Closure,
            false => BaseMark::ManagedClosure,
        };
    }
    let last = match location.kind {
        FrameKind::Java | FrameKind::Python => name.rsplit('.').next().unwrap_or(name),
        _ => segments(name).last().copied().unwrap_or(name),
    };
    let snake = snake_case(last);
    let owner = match *segments(name) {
        [.., owner, _] if is_native => owner,
        _ => class_of(name),
    };
    if location.kind == FrameKind::Java
        && let Some(mark) = mark_of_end(&snake)
    {
        return mark;
    }
    match location.kind {
        _ if serves.is_match(&snake) => BaseMark::Serves,
        _ if takes.is_match(&snake) => BaseMark::Takes,
        _ if !owner.is_empty() && takes.is_match(&format!("{}_{snake}", snake_case(owner))) => {
            BaseMark::Takes
        }
        _ if sleeps.is_match(&snake) => BaseMark::Sleeps,
        FrameKind::Native | FrameKind::Python => match &*snake {
            "main" | "<module>" => BaseMark::Main,
            "run" | "start" if !job_types.is_match(owner) => BaseMark::Run,
            name if loops.is_match(name) => BaseMark::Loop,
            name if jobs.is_match(name) || job_types.is_match(owner) => BaseMark::Job,
            _ => BaseMark::Any,
        },
        FrameKind::Java if snake == "run" && !job_types.is_match(owner) => BaseMark::ManagedRun,
        FrameKind::Java if snake == "main" => BaseMark::ManagedMain,
        FrameKind::Java if may_take(owner, &snake) => BaseMark::MayTake,
        _ if snake == "main" || loops.is_match(&snake) => BaseMark::ManagedLoop,
        _ => BaseMark::Job,
    }
}

/// Returns the mark of a function of the user in native code by its own name, without its type.
fn mark_of_own(name: &str) -> BaseMark {
    let [_, loops, takes, serves, sleeps, _, _, jobs, ..] = &*PATTERNS;
    match &*snake_case(name) {
        name if serves.is_match(name) => BaseMark::Serves,
        name if takes.is_match(name) => BaseMark::Takes,
        name if sleeps.is_match(name) => BaseMark::Sleeps,
        "main" => BaseMark::Main,
        "run" | "start" => BaseMark::Run,
        name if loops.is_match(name) => BaseMark::Loop,
        name if jobs.is_match(name) => BaseMark::Job,
        _ => BaseMark::Any,
    }
}

/// Returns the mark of a method of a library of Java that is neither a wait nor the runtime's.
fn mark_of_java_library(name: &str) -> BaseMark {
    let [_, _, takes, _, _, _, _, _, job_types, ..] = &*PATTERNS;
    let [_, joins, ..] = &*JAVA_PATTERNS;
    let snake = snake_case(name.rsplit('.').next().unwrap_or(name));
    let concurrent = name.strip_prefix("java.util.concurrent.");
    match concurrent.and_then(|name| name.split('.').next()) {
        Some("CountDownLatch") if snake == "await" => return BaseMark::Synchronizer,
        Some("Semaphore") if snake.contains("acquire") => return BaseMark::Synchronizer,
        // The close of an executor awaits its end.
        Some(_) if matches!(&*snake, "get" | "close") => return BaseMark::Joins,
        _ => {}
    }
    let is_platform = name.starts_with("java");
    if !is_platform && let Some(mark) = mark_of_end(&snake) {
        return mark;
    }
    match () {
        () if joins.is_match(&snake) => BaseMark::Joins,
        () if is_platform => BaseMark::ManagedLibrary,
        // A library starts a thread with it: `AsyncAppender$Worker.run`.
        () if snake == "run" && !job_types.is_match(class_of(name)) => BaseMark::ManagedRun,
        // A library takes work with it: `CallQueueManager.take`.
        () if takes.is_match(&snake) => BaseMark::Takes,
        () if may_take(class_of(name), &snake) => BaseMark::MayTake,
        () => BaseMark::ManagedLibrary,
    }
}

/// Returns the mark of a method of Java that waits for the end of a server or a program.
fn mark_of_end(snake: &str) -> Option<BaseMark> {
    let [ends, ..] = &*JAVA_PATTERNS;
    let found = ends.captures(snake)?;
    Some(found.name("of_server").map_or(BaseMark::Joins, |_| BaseMark::AwaitsEnd))
}

/// Returns whether a method of Java takes work if the thread's own `run` calls it.
fn may_take(class: &str, snake: &str) -> bool {
    let [.., may_take, no_work] = &*JAVA_PATTERNS;
    may_take.is_match(snake) && !no_work.is_match(&snake_case(class))
}

/// Returns the innermost class of a method of Java: `shop.Pool$Inbox.next` -> `Inbox`.
fn class_of(name: &str) -> &str {
    let class = name.rsplit('.').nth(1).unwrap_or("");
    class.rsplit('$').next().unwrap_or(class)
}

/// Returns whether it is C's, C++'s or Rust's own library.
fn is_standard_library(location: &Location) -> bool {
    const MODULES: &[&str] = &["libstdc++.so", "libc++.so", "libc.so", "libc-", "libpthread"];
    // Inlined functions of Rust may have their last names only. Their files are known.
    const FILES: &[&str] = &["/rustc/", "/include/c++/", "/crossbeam-channel-", "/parking_lot"];
    const NAMESPACES: &[&str] = &["std", "core", "alloc", "crossbeam_channel", "parking_lot"];
    let file = location.file.as_deref().unwrap_or("");
    MODULES.iter().any(|module| location.module.starts_with(module))
        || FILES.iter().any(|place| file.contains(place))
        || matches!(segments(&location.function)[..],
            [first, _, ..] if NAMESPACES.contains(&first.trim_start_matches('<')))
}

/// Returns whether it is a library whose threads only run tasks: LLVM's OpenMP, tokio, rayon.
fn is_of_pool(location: &Location) -> bool {
    let file = location.file.as_deref().unwrap_or("");
    let module = &*location.module;
    ["libomp.so", "libiomp5.so"].iter().any(|name| module.starts_with(name))
        || ["/tokio-1", "/rayon-core-1"].iter().any(|place| file.contains(place))
}

/// Returns whether it is a server whose threads have one or two functions of its own where they
/// wait for work, mostly without names, and more in a job: MariaDB, Varnish, Erlang's virtual
/// machine.
fn is_server(module: &str) -> bool {
    matches!(module, "mariadbd" | "varnishd" | "beam.smp")
}

/// Removes type arguments: `<std::sync::Barrier>::wait` -> `std::sync::Barrier::wait`.
fn plain(name: &str) -> String {
    let plain = |segment: &&str| {
        let inner = segment.trim_start_matches('<');
        inner.split(['<', ' ', '>']).next().unwrap_or(inner).to_owned()
    };
    segments(name).iter().map(plain).collect::<Vec<_>>().join("::")
}

/// Returns whether it is a function of C's library that waits for a child.
fn is_child_wait(location: &Location) -> bool {
    let name = location.function.trim_start_matches('_').trim_start_matches("GI_");
    location.kind == FrameKind::Native
        && location.module.starts_with("libc")
        && matches!(name.trim_start_matches('_'), "wait" | "wait3" | "wait4" | "waitid" | "waitpid")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_thread_is_known_also_in_a_virtual_machine() {
        for (name, mark_of) in [
            ("start_thread", BaseMark::Starts),
            ("thread_native_entry", BaseMark::Starts),
            ("Thread::call_run", BaseMark::Starts),
            ("JavaThread::thread_main_inner", BaseMark::Starts),
            ("CompileBroker::compiler_thread_loop", BaseMark::Neutral),
        ] {
            let location = Location::named(name, FrameKind::Native);
            assert_eq!(mark(&location, Role::Runtime), mark_of, "{name}");
        }
    }
}
