//! Detects waits at a thread's own base: between the thread's start and the wait there are only its
//! first function, its loops, and functions that take the next piece of work or sleep. Any other
//! function of the user is a job, and a wait in a job is never idle.
//!
//! This finds pools that no list knows (see [`super::idle`]). It goes by the place of functions and
//! by words that programs use for such functions: `take`, `wait_for_job`, `event_loop`. The first
//! function of a native thread may have any name but that of a job: `handle_request`. In Java it is
//! `run` of any class but a job's: `PayRequest`. A join, a barrier or a future is a wait for the
//! result of a job, except directly in `main`. In doubt the thread is busy.
//!
//! A Python thread is judged as a native one. Its module's own code is its `main`.
//!
//! Packages of some servers have few names. Of those that are listed, a thread waits for work if
//! the wait is in one of its first two functions.

pub(super) use super::base_marks::BaseMark;
use crate::model::vocabulary::state::State;

/// Conclusion from the frames of a stack, from the outermost down to one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Base {
    /// What is further out is not known.
    #[default]
    Unknown,
    /// No code of the user so far.
    Start,
    /// A library's own thread: only this number of functions of it so far.
    Helper(u8),
    /// A server's own thread: only this number of its functions so far.
    Server(u8),
    /// `main`, which waits for others.
    Main,
    /// `main` of Java.
    ManagedMain,
    /// `run` of a class of Java, the first method of the thread.
    Body,
    /// `main`, which waits for threads to end, or any thread that waits for a server to end.
    Joined,
    /// Closures, the first of the thread. A wait in them is for work.
    Closures,
    /// The first function of a thread in native code.
    First,
    /// Loops by their names only. One may be a job, so only sleeping here is idle.
    Loops,
    /// A function that takes work, called by those.
    Takes,
    /// A function that waits for a client or its request, called by those.
    Serves,
    /// A function that sleeps, called by those.
    Sleeps,
    /// A condition or a channel of the language's library, called by those.
    InLibrary,
    /// A goroutine, no function of which is known so far.
    Goroutine,
    /// A goroutine in libraries only.
    GoLibrary,
    /// A closure that a goroutine was started with.
    GoClosure,
    /// The function that a goroutine was started with, and its loops.
    GoOwn,
    /// A library, called by these.
    GoInLibrary,
    /// The user's functions in the main goroutine: a wait in any of them is for other goroutines,
    /// or for the end of the program.
    GoMain,
    /// A library, called by these.
    GoMainInLibrary,
    Job,
}

/// Maximum functions of a library in the stack of its own thread that waits for work. With more it
/// may be in a job.
const HELPER_FUNCTIONS: u8 = 3;
/// The same of a listed server, with those of its libraries. With a third one it may be in a job.
/// Where the first is the thread's own, so may the second: Aria waits there for another checkpoint.
const SERVER_FUNCTIONS: u8 = 2;

impl Base {
    /// Returns the conclusion with one more frame, further in.
    pub(super) fn below(self, mark: BaseMark) -> Base {
        use BaseMark::{Any, BlocksOn, Closure, Foreign, Joins, Library, Loop, ManagedLoop};
        use BaseMark::{Awaits, Neutral, OfQueue, Parks, Run, ScriptLibrary, Starts, Synchronizer};
        use BaseMark::{
            AwaitsEnd, ManagedClosure, ManagedLibrary, ManagedMain, ManagedRun, MayTake,
        };
        if let Some(base) = self.below_in_go(mark) {
            return base;
        }
        let is_managed_base = matches!(self, Base::ManagedMain | Base::Body);
        let is_base = is_managed_base
            || matches!(
                self,
                Base::Start | Base::Main | Base::Closures | Base::First | Base::Loops
            );
        match (self, mark) {
            // The virtual machine waits there too, for instance for a collection. So it must park.
            (_, Parks) if is_managed_base => Base::Takes,
            (base, Neutral | Parks) => base,
            (Base::Unknown | Base::Start, Starts) => Base::Start,
            // A thread's class may call `run` of its superclass, which calls that of its task.
            (Base::Body, Starts) => Base::Start,
            (Base::Unknown, Library | ScriptLibrary) => Base::Unknown,
            (_, Awaits) if is_base || self == Base::Takes => Base::Takes,
            (Base::Joined | Base::Helper(_) | Base::InLibrary | Base::Serves, Awaits) => self,
            (Base::Helper(_) | Base::InLibrary | Base::Serves, Synchronizer) => self,
            (Base::Start, ScriptLibrary) => Base::Helper(1),
            (Base::Helper(_) | Base::Serves, ScriptLibrary) => self,
            (Base::Main | Base::Loops, ScriptLibrary) => self,
            (Base::Closures | Base::First | Base::Takes | Base::InLibrary, ScriptLibrary) => {
                Base::InLibrary
            }
            (_, BaseMark::Takes) if is_base || self == Base::Takes => Base::Takes,
            (_, BaseMark::Serves) if is_base || matches!(self, Base::Takes | Base::Serves) => {
                Base::Serves
            }
            (Base::Serves, Library | ManagedLibrary | BaseMark::Takes) => Base::Serves,
            (base, BaseMark::Receives)
                if is_base || matches!(base, Base::Takes | Base::InLibrary) =>
            {
                Base::Takes
            }
            (_, BaseMark::Sleeps) if is_base || self == Base::Sleeps => Base::Sleeps,
            // A Rust program has two: the one that C calls, and its own.
            (Base::Start | Base::Main, BaseMark::Main) => Base::Main,
            (Base::Start, ManagedMain) => Base::ManagedMain,
            (Base::Main | Base::ManagedMain | Base::Joined, Joins) => Base::Joined,
            (Base::ManagedMain, Synchronizer) => Base::Joined,
            (Base::Joined, Library | ManagedLibrary | Synchronizer | AwaitsEnd) => Base::Joined,
            (Base::ManagedMain | Base::Body | Base::Closures | Base::Loops, AwaitsEnd) => {
                Base::Joined
            }
            (Base::Body | Base::Takes, MayTake | Synchronizer) => Base::Takes,
            (Base::Main, BlocksOn) => Base::Main,
            (Base::Start | Base::Main, Library) => self,
            (Base::Start, Foreign) => Base::Helper(1),
            (Base::Helper(n), Foreign) if n < HELPER_FUNCTIONS => Base::Helper(n + 1),
            (Base::Start | Base::Helper(_), BaseMark::OfPool) => Base::Helper(1),
            (Base::Helper(_), Library) => self,
            (Base::Start, BaseMark::OfServer) => Base::Server(1),
            (Base::Server(n), BaseMark::OfServer | Foreign) if n < SERVER_FUNCTIONS => {
                Base::Server(n + 1)
            }
            (Base::Server(_), Library) => self,
            (Base::Start | Base::Closures, Closure) => Base::Closures,
            (Base::Start, ManagedClosure) => Base::Closures,
            (Base::Start, ManagedRun) => Base::Body,
            (Base::Takes, OfQueue) => Base::Takes,
            (Base::Start, Loop | Run | Any) => Base::First,
            (Base::Main | Base::Closures, Run) => Base::Loops,
            (_, Loop | ManagedLoop) if is_base => Base::Loops,
            (Base::Closures | Base::First | Base::Takes | Base::InLibrary, Library) => {
                Base::InLibrary
            }
            (Base::Loops | Base::ManagedMain | Base::Body, Library) => self,
            _ => Base::Job,
        }
    }

    /// Returns the conclusion for a goroutine; `None` for any other thread.
    fn below_in_go(self, mark: BaseMark) -> Option<Base> {
        use BaseMark::{Any, Closure, Loop, Main, Run};
        let is_go = matches!(
            self,
            Base::Goroutine
                | Base::GoLibrary
                | Base::GoClosure
                | Base::GoOwn
                | Base::GoInLibrary
                | Base::GoMain
                | Base::GoMainInLibrary
        );
        if !is_go {
            return (mark == BaseMark::StartsGoroutine).then_some(Base::Goroutine);
        }
        Some(match (self, mark) {
            (base, BaseMark::Neutral | BaseMark::Parks) => base,
            (_, BaseMark::Asks) => Base::Job,
            (_, BaseMark::Serves) => Base::Serves,
            (Base::Goroutine, BaseMark::StartsMainGoroutine) => Base::GoMain,
            (Base::GoMain | Base::GoMainInLibrary, BaseMark::Library) => Base::GoMainInLibrary,
            (Base::GoMain | Base::GoMainInLibrary, _) => Base::GoMain,
            (base, BaseMark::Joins) => base,
            (Base::Goroutine | Base::GoLibrary, BaseMark::Library) => Base::GoLibrary,
            (_, BaseMark::Library) => Base::GoInLibrary,
            (Base::Goroutine, Closure) => Base::GoClosure,
            (Base::Goroutine | Base::GoClosure, Any | Run | Loop | Main | BaseMark::Takes)
            | (Base::Goroutine | Base::GoClosure | Base::GoOwn, BaseMark::Sleeps)
            | (Base::GoOwn, Loop | Run | BaseMark::Takes) => Base::GoOwn,
            (_, _) => Base::Job,
        })
    }

    /// Returns whether a thread in this state waits for work.
    pub(super) fn is_idle(self, state: State) -> bool {
        match state {
            State::Wait => matches!(
                self,
                Base::Helper(_)
                    | Base::Server(_)
                    | Base::Main
                    | Base::Joined
                    | Base::Closures
                    | Base::First
                    | Base::Takes
                    | Base::Serves
                    | Base::InLibrary
                    | Base::Goroutine
                    | Base::GoLibrary
                    | Base::GoClosure
                    | Base::GoOwn
                    | Base::GoInLibrary
                    | Base::GoMain
            ),
            // By any other name it may read the answer of another server. A listed server's thread
            // reads its own pipe there, or waits for completions that others asked for.
            State::Io => matches!(self, Base::Serves | Base::Server(_) | Base::GoLibrary),
            State::Sleep => {
                !matches!(self, Base::Unknown | Base::Start | Base::Helper(_) | Base::Job)
            }
            State::Run | State::Rdy | State::Lock | State::Poll | State::Disk | State::Stopped => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
