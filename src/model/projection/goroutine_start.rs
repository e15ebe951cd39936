//! The function that a goroutine was started with, by its stack: `net/http.(*conn).serve`.
//!
//! Threads of a Go program have no names that tell them apart, and each executes one goroutine
//! after the other. What tells goroutines apart is the function of their `go` statement: the one
//! that `runtime.goexit` seems to call. A stack that does not go that far out says only that it is
//! one of Go.

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::is_harmless;
use crate::model::vocabulary::go_functions::{Outermost, is_go, is_wrapper, outermost, package};
use crate::model::vocabulary::role::Role;

/// What a frame says about the start of its goroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum StartMark {
    /// A function that is none of Go, or not known to be one.
    #[default]
    Foreign,
    /// Frames are missing here.
    Missing,
    /// Of the kernel, or it stands for no function.
    Nothing,
    /// A function of the program, or of a library.
    Function {
        is_app: bool,
    },
    /// The compiler made it, to call another function.
    Wrapper,
    OfRuntime(Outermost),
}

impl StartMark {
    pub(super) fn of(location: &Location, role: Role) -> StartMark {
        let (name, file) = (&*location.function, location.file.as_deref());
        match location.kind {
            FrameKind::Marker if is_harmless(name) => StartMark::Nothing,
            FrameKind::Marker => StartMark::Missing,
            FrameKind::Kernel | FrameKind::Thread => StartMark::Nothing,
            FrameKind::Native if package(name) == "runtime" => match is_wrapper(name, file) {
                true => StartMark::Wrapper,
                false => StartMark::OfRuntime(outermost(name)),
            },
            FrameKind::Native if is_go(name, file) => {
                // Those of Go before 1.21 are known by the role alone.
                match is_wrapper(name, file) || role == Role::Runtime {
                    true => StartMark::Wrapper,
                    false => StartMark::Function { is_app: role == Role::App },
                }
            }
            _ => StartMark::Foreign,
        }
    }
}

/// What the frames of a stack say about the start of its goroutine, from the outermost inward.
/// Functions are locations of [`super::rows::Rows`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum GoroutineStart {
    /// No frame so far.
    #[default]
    Outside,
    /// Only functions of C so far.
    InC,
    /// The outer end of the stack is missing.
    Cut,
    /// The same; its innermost frame so far is that of a change to the thread's own stack.
    CutAtChange,
    /// Nothing further in than the goroutine's end is known yet.
    Begins,
    /// The main goroutine, in `runtime.main`, which this location is.
    Main(u32),
    /// The goroutine that calls the program's finalizers, so far in this function of the runtime.
    Finalizers(u32),
    Function(u32),
    Runtime(RuntimePart),
    /// A stack of Go without its outer end.
    Unknown,
    /// No stack of Go.
    None,
}

impl GoroutineStart {
    /// Returns the conclusion with one more frame, further in.
    pub(super) fn below(self, mark: StartMark, location: u32) -> GoroutineStart {
        use GoroutineStart::{Begins, Cut, CutAtChange, Finalizers, Function, InC, Main, Outside};
        use GoroutineStart::{None, Runtime, Unknown};
        use Outermost::{
            Changes, Collects, CollectsOnThread, End, EntersMain, Finalizes, OfThread,
        };
        use RuntimePart::{Collector, Other, Scheduler};
        match (self, mark) {
            (_, StartMark::Nothing) => self,
            (Outside, StartMark::OfRuntime(End)) => Begins,
            (Outside, StartMark::Missing) => Cut,
            (Outside | InC, StartMark::Foreign) => InC,
            // Threads of a program with C are started by the C library.
            (Outside | InC, StartMark::OfRuntime(OfThread)) => Runtime(Scheduler),
            (Outside | InC, _) => None,
            (Cut | CutAtChange, StartMark::Missing) => self,
            (Cut, StartMark::OfRuntime(Changes)) => CutAtChange,
            (CutAtChange, StartMark::OfRuntime(CollectsOnThread)) => Runtime(Collector),
            (Cut, StartMark::Foreign) => None,
            (Cut | CutAtChange, _) => Unknown,
            (Begins, StartMark::Wrapper | StartMark::OfRuntime(Outermost::Passes)) => Begins,
            (Begins, StartMark::OfRuntime(EntersMain)) => Main(location),
            (Begins, StartMark::OfRuntime(Finalizes)) => Finalizers(location),
            (Begins, StartMark::OfRuntime(Collects)) => Runtime(Collector),
            (Begins, StartMark::OfRuntime(_)) => Runtime(Other),
            (Begins, StartMark::Function { .. }) => Function(location),
            (Begins, StartMark::Missing | StartMark::Foreign) => Unknown,
            // Others begin with a function of the runtime: those that initialize packages.
            (Main(_), StartMark::Function { .. }) => Function(location),
            (Main(main), _) => Function(main),
            (Finalizers(caller), StartMark::Function { is_app: true }) => Function(caller),
            (Finalizers(_) | Function(_), _) => self,
            (Runtime(_) | Unknown | None, _) => self,
        }
    }

    /// Returns what the stack is grouped by; `None`: by the name of its thread.
    pub(super) fn group(self) -> Option<GoGroup> {
        match self {
            GoroutineStart::Outside | GoroutineStart::InC => None,
            GoroutineStart::Cut | GoroutineStart::None => None,
            GoroutineStart::Main(location) | GoroutineStart::Function(location) => {
                Some(GoGroup::StartedBy(location))
            }
            GoroutineStart::Runtime(part) => Some(GoGroup::Runtime(part)),
            GoroutineStart::Finalizers(_) => Some(GoGroup::Runtime(RuntimePart::Other)),
            GoroutineStart::CutAtChange | GoroutineStart::Begins | GoroutineStart::Unknown => {
                Some(GoGroup::Unknown)
            }
        }
    }
}

/// What Go's runtime does for itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum RuntimePart {
    /// On the own stack of a thread: finds the next goroutine, or waits for one.
    Scheduler,
    Collector,
    /// In other goroutines that it started.
    Other,
}

impl RuntimePart {
    /// Returns its row in the group of Go's runtime.
    pub(super) fn word(self) -> &'static str {
        match self {
            RuntimePart::Scheduler => "scheduler",
            RuntimePart::Collector => "garbage collector",
            RuntimePart::Other => "other goroutines",
        }
    }
}

/// A group of stacks of Go.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum GoGroup {
    /// Goroutines that were started with this function, a location.
    StartedBy(u32),
    /// What Go's runtime does for itself.
    Runtime(RuntimePart),
    /// Goroutines, or Go's runtime: the outer end of the stack is missing.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the group of a stack, outermost function first, by the index of the start function.
    /// A name in `[]` is a marker's; `c:` precedes a function of C, `k:` one of the kernel, `lib:`
    /// one of a library, `made:` one that the compiler made.
    fn group(stack: &[&str]) -> Option<GoGroup> {
        let frame = |text: &str| {
            let (what, name) = match text.split_once(':') {
                Some((what, name)) if !text.starts_with('[') => (what, name),
                _ => ("", text),
            };
            let location = |kind| Location::named(name, kind);
            let go = || Location { file: Some("/src/x.go".into()), ..location(FrameKind::Native) };
            match what {
                _ if name.starts_with('[') => {
                    StartMark::of(&location(FrameKind::Marker), Role::Marker)
                }
                "c" => StartMark::of(&location(FrameKind::Native), Role::App),
                "k" => StartMark::of(&location(FrameKind::Kernel), Role::Kernel),
                "java" => StartMark::of(&location(FrameKind::Java), Role::App),
                "lib" => StartMark::of(&go(), Role::Library),
                "made" => StartMark::of(&go(), Role::Runtime),
                _ => StartMark::of(&go(), Role::App),
            }
        };
        let mut start = GoroutineStart::default();
        for (at, text) in (0..).zip(stack) {
            start = start.below(frame(text), at);
        }
        start.group()
    }

    #[test]
    fn a_goroutine_is_known_by_the_function_of_its_statement() {
        const CUT: &str = "[truncated: stack deeper than what was copied]";
        let started_by = |at| Some(GoGroup::StartedBy(at));
        let [scheduler, collector, other] =
            [RuntimePart::Scheduler, RuntimePart::Collector, RuntimePart::Other]
                .map(|part| Some(GoGroup::Runtime(part)));
        for (stack, expected) in [
            (&["runtime.goexit", "main.work"][..], started_by(1)),
            (&["runtime.goexit.abi0", "lib:net/http.(*conn).serve", "main.get"], started_by(1)),
            (&["runtime.goexit", "main.main.func1", "main.work", "k:read"], started_by(1)),
            // What the compiler made for the statement is no start.
            (&["runtime.goexit", "main.main.gowrap1", "main.work"], started_by(2)),
            (&["runtime.goexit", "made:main.main.func2", "main.work"], started_by(2)),
            (&["runtime.goexit", "main.main.gowrap1"], Some(GoGroup::Unknown)),
            (&["runtime.goexit"], Some(GoGroup::Unknown)),
            (&["runtime.goexit", CUT, "main.work"], Some(GoGroup::Unknown)),
            (&["runtime.goexit", "c:work"], Some(GoGroup::Unknown)),
            (&["runtime.goexit", "runtime.corostart", "lib:iter.Pull[...].func1"], started_by(2)),
            // A goroutine in C, with or without names.
            (&["runtime.goexit", "main.work", "runtime.cgocall", "c:sqrt"], started_by(1)),
            (&["runtime.goexit", "main.work", "[... frames folded]", "main.deep"], started_by(1)),
            // The main goroutine.
            (&["runtime.goexit", "runtime.main", "main.main", "main.work"], started_by(2)),
            (&["runtime.goexit", "runtime.main", "runtime.doInit1", "main.init.0"], started_by(1)),
            (&["runtime.goexit", "runtime.main"], started_by(1)),
            // What the runtime started for itself.
            (&["runtime.goexit", "runtime.bgsweep"], collector),
            (&["runtime.goexit", "runtime.gcenable.func1", "runtime.bgsweep"], collector),
            (
                &[
                    "runtime.goexit",
                    "runtime.gcBgMarkStartWorkers.gowrap1",
                    "runtime.gcBgMarkWorker",
                ],
                collector,
            ),
            (&["runtime.goexit", "runtime.timerproc"], other),
            (&["runtime.goexit", "runtime.runfinq", "lib:runtime.f"], other),
            (&["runtime.goexit", "runtime.runfinq", "lib:os.(*file).close"], other),
            (&["runtime.goexit", "runtime.runFinalizers", "main.closed"], started_by(1)),
            (&["lib:os/signal.loop"], None),
            (&["runtime.goexit", "lib:os/signal.loop"], started_by(1)),
            // The stack of a thread.
            (&["runtime.mcall", "runtime.schedule"], scheduler),
            (&["runtime.mstart", "runtime.mstart0"], scheduler),
            (&["runtime.morestack", "runtime.newstack"], scheduler),
            (&["c:clone3", "c:start_thread", "runtime.mstart.abi0"], scheduler),
            (&["c:_start", "runtime.rt0_go.abi0", "runtime.schedinit"], scheduler),
            // Without its outer end.
            (&[CUT, "main.work"], Some(GoGroup::Unknown)),
            (&[CUT, "runtime.systemstack"], Some(GoGroup::Unknown)),
            (&[CUT, "runtime.systemstack", "runtime.mallocgc.func1"], Some(GoGroup::Unknown)),
            (&[CUT, "runtime.systemstack", "runtime.gcAssistAlloc.func2"], Some(GoGroup::Unknown)),
            (&[CUT, "runtime.systemstack", "runtime.gcBgMarkWorker.func2"], collector),
            (&[CUT, CUT, "runtime.systemstack.abi0", "runtime.gcBgMarkWorker.func1"], collector),
            (&[CUT, "runtime.gcBgMarkWorker.func2"], Some(GoGroup::Unknown)),
            (
                &["[... frames not copied]", "runtime.cgocallback", "main.called"],
                Some(GoGroup::Unknown),
            ),
            // Nothing says that it is a thread of Go.
            (&[CUT], None),
            (&[CUT, "c:compress"], None),
            (&[CUT, "c:compress", "main.called"], None),
            (&[], None),
            (&["k:read"], None),
            (&["c:clone3", "c:start_thread", "c:work"], None),
            (&["c:clone3", "c:work", "main.called"], None),
            (&["c:clone3", "c:work", "[... frames not copied]", "main.called"], None),
            (&["main.work"], None),
            (&["java:runtime.goexit", "java:main.work"], None),
        ] {
            assert_eq!(group(stack), expected, "{stack:?}");
        }
    }
}
