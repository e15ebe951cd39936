//! Whose code a Java class is: the program's or a library's, by the jar or directory it is in.
//!
//! ```text
//! jar      the classes in a jar, and in the jars in it
//! rules    place and name of a class -> its origin
//! program  the files of one process
//! ```
//!
//! Files are read on a thread of its own, since a file system may block. Only the central directory
//! of a jar is read, through the target's own descriptors: the right file in a container, too, and
//! one that was deleted.

pub mod jar;
mod program;
mod rules;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::model::vocabulary::java_packages;
use crate::model::vocabulary::role::Origin;
use program::Program;

/// Interval between attempts to read the files that were opened meanwhile.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Maximum programs whose files are kept, and classes that are remembered.
const PROGRAMS_MAX: usize = 64;
const CLASSES_MAX: usize = 1_000_000;

/// Origins of Java classes; clones share them.
#[derive(Clone, Default)]
pub struct ClassOrigins(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    /// `None`: requested.
    known: HashMap<Arc<str>, Option<Origin>>,
    /// The number of classes that were requested and are not known yet.
    missing: usize,
    /// `None` before the first program, or if there is no thread.
    requests: Option<Sender<Request>>,
}

enum Request {
    Attached(u32),
    Class(Arc<str>),
}

impl ClassOrigins {
    /// Records that this process runs Java.
    pub fn attached(&self, pid: u32) {
        let mut shared = self.shared();
        if shared.requests.is_none() {
            let (sender, receiver) = channel();
            let worker = Worker {
                programs: Vec::new(),
                open: Vec::new(),
                // The thread must not keep the sender alive.
                answers: Answers(Arc::downgrade(&self.0)),
            };
            let thread = std::thread::Builder::new().name("class-origins".into());
            if thread.spawn(move || worker.run(&receiver)).is_err() {
                return;
            }
            shared.requests = Some(sender);
        }
        if let Some(requests) = &shared.requests {
            let _ = requests.send(Request::Attached(pid));
        }
    }

    /// Returns the origin of a method's class, by the method's full name; `None`: it is not known
    /// yet, and was requested.
    pub fn of_method(&self, method: &str) -> Option<Origin> {
        let Some((class, _)) = method.rsplit_once('.') else { return Some(Origin::Unknown) };
        // The name alone decides.
        if java_packages::is_platform(class) {
            return Some(Origin::Unknown);
        }
        let class = outermost(class);
        let mut shared = self.shared();
        if let Some(known) = shared.known.get(class) {
            return *known;
        }
        let Some(requests) = &shared.requests else { return Some(Origin::Unknown) };
        let class: Arc<str> = class.into();
        if shared.known.len() >= CLASSES_MAX
            || requests.send(Request::Class(class.clone())).is_err()
        {
            return Some(Origin::Unknown);
        }
        shared.known.insert(class, None);
        shared.missing += 1;
        None
    }

    /// Returns whether requested classes are not known yet.
    pub fn is_pending(&self) -> bool {
        self.shared().missing > 0
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of the class in whose file this one's source is: `a.B$C` -> `a.B`. Generated
/// classes begin with the sign: `a.$Proxy1`.
fn outermost(class: &str) -> &str {
    let simple = class.rfind('.').map_or(0, |at| at + 1);
    match class[simple..].find('$') {
        Some(at) if at > 0 => &class[..simple + at],
        _ => class,
    }
}

/// Where the thread puts its answers. If it ends, also by a panic, all that is open is unknown: no
/// reader waits for it any more.
struct Answers(Weak<Mutex<Shared>>);

impl Answers {
    fn put(&self, class: &Arc<str>, origin: Origin) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.missing = shared.missing.saturating_sub(1);
        shared.known.insert(class.clone(), Some(origin));
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.missing = 0;
        shared.requests = None;
        shared.known.values_mut().for_each(|origin| *origin = origin.or(Some(Origin::Unknown)));
    }
}

struct Worker {
    programs: Vec<Program>,
    /// Classes without an answer, and the time of their request.
    open: Vec<(Arc<str>, Instant)>,
    answers: Answers,
}

impl Worker {
    fn run(mut self, requests: &Receiver<Request>) {
        loop {
            let first = match self.open.is_empty() {
                true => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => requests.recv_timeout(AGAIN_AFTER),
            };
            match first {
                Ok(first) => {
                    self.take(first);
                    requests.try_iter().for_each(|request| self.take(request));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.answer();
        }
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Class(class) => self.open.push((class, Instant::now())),
            Request::Attached(pid) => {
                // After an exec it is another program.
                self.programs.retain(|program| program.pid() != pid);
                if self.programs.len() >= PROGRAMS_MAX {
                    self.programs.remove(0);
                }
                self.programs.push(Program::of(pid));
            }
        }
    }

    /// Answers what the files read so far say, and else reads those that were opened since.
    fn answer(&mut self) {
        let answers = &self.answers;
        let is_answered = |programs: &[Program], class: &Arc<str>| {
            // One program's own class may be another one's library: never hide the user's.
            let origins = || programs.iter().filter_map(|program| program.origin(class));
            let best = origins().find(|origin| *origin == Origin::App).or_else(|| origins().next());
            best.inspect(|origin| answers.put(class, *origin)).is_some()
        };
        self.open.retain(|(class, _)| !is_answered(&self.programs, class));
        if self.open.is_empty() {
            return;
        }
        self.programs.iter_mut().for_each(Program::scan);
        self.open.retain(|(class, _)| !is_answered(&self.programs, class));
        // A class on a stack was loaded before, so its jar was open by then.
        let programs = &self.programs;
        let is_over = |since| programs.iter().all(|program| program.is_scanned_since(since));
        for (class, _) in self.open.extract_if(.., |(_, since)| is_over(*since)) {
            answers.put(&class, Origin::Unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_known(origins: &ClassOrigins, method: &str) -> Origin {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut was_pending = true;
        loop {
            if let Some(origin) = origins.of_method(method) {
                return origin;
            }
            // It may be answered in between.
            assert!(was_pending && Instant::now() < deadline, "{method}");
            was_pending = origins.is_pending();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_class_is_requested_once_and_answered_on_another_thread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("BOOT-INF/lib/x.jar");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let classes: &[(&str, &[u8])] = &[("net/requested/Once.class", b"")];
        std::fs::write(&path, jar::tests::archive(classes)).unwrap();
        let _open = std::fs::File::open(path).unwrap();
        let origins = ClassOrigins::default();
        assert_eq!(origins.of_method("net.requested.Once.run"), Some(Origin::Unknown), "no Java");
        origins.attached(std::process::id());
        assert_eq!(until_known(&origins, "net.requested.Once$Inner.run"), Origin::Library);
        assert_eq!(origins.of_method("net.requested.Once.run"), Some(Origin::Library), "outermost");
        assert_eq!(until_known(&origins, "net.requested.Never.run"), Origin::Unknown);
        assert!(!origins.is_pending());
        assert_eq!(origins.of_method("java.lang.String.length"), Some(Origin::Unknown));
        assert_eq!(origins.of_method("main"), Some(Origin::Unknown));
    }

    #[test]
    fn no_reader_waits_for_a_thread_that_has_ended() {
        let origins = ClassOrigins::default();
        let (sender, receiver) = channel();
        origins.shared().requests = Some(sender);
        assert_eq!(origins.of_method("net.Json.of"), None);
        assert!(origins.is_pending());
        drop(Answers(Arc::downgrade(&origins.0)));
        drop(receiver);
        assert!(!origins.is_pending());
        assert_eq!(origins.of_method("net.Json.of"), Some(Origin::Unknown));
        assert_eq!(origins.of_method("net.Other.of"), Some(Origin::Unknown));
    }

    #[test]
    fn the_outermost_class_has_no_sign_but_at_its_beginning() {
        for (class, name) in [
            ("a.B", "a.B"),
            ("a.B$C$D", "a.B"),
            ("a.$Proxy1", "a.$Proxy1"),
            ("Main$$Lambda", "Main"),
            ("a$b.C", "a$b.C"),
        ] {
            assert_eq!(outermost(class), name);
        }
    }
}
