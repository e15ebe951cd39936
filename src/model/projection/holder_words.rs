//! Who holds a lock, in words: the same in every format.

use crate::model::facts::tables::Holder;
use crate::model::vocabulary::blocker::BlockerKind;
use crate::model::vocabulary::frame::ThreadKey;

/// Returns who holds what a thread of process `of` waits for: `held by timer`. `None` if it is
/// unknown. `name`: of the holder, if it is a thread that was observed.
pub fn held_by(kind: BlockerKind, holder: Holder, name: &str, of: u32) -> Option<String> {
    Some(match (kind, holder) {
        (_, Holder::Unknown) => return None,
        (_, Holder::Free) => kind.free_word().to_owned(),
        // A thread's end is no one's.
        (BlockerKind::ThreadEnd, Holder::Thread { .. }) => format!("of {name}"),
        _ => format!("held by {}", holder_words(holder, name, of)),
    })
}

/// Returns who that is: `timer`, `3 readers`; empty where no thread is known to have it.
pub fn holder_words(holder: Holder, name: &str, of: u32) -> String {
    match holder {
        Holder::Unknown | Holder::Free => String::new(),
        // A thread without a name.
        Holder::Thread { thread: ThreadKey { pid, tid, .. }, .. } if name.is_empty() => {
            numbers(pid, tid, of)
        }
        Holder::Thread { .. } => name.to_owned(),
        Holder::Foreign { pid, tid } => numbers(pid, tid, of),
        Holder::Readers(1) => "one reader".into(),
        Holder::Readers(count) => format!("{count} readers"),
        Holder::Unmounted => "a virtual thread that does not run".into(),
    }
}

/// Returns a thread by its numbers. The first thread of another process stands for all of it.
fn numbers(pid: u32, tid: u32, of: u32) -> String {
    match pid {
        _ if pid == of => format!("thread {tid}"),
        _ if pid == tid => format!("process {pid}"),
        _ => format!("thread {tid} of process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::{NameId, StackId};

    #[test]
    fn holders_have_the_same_words_everywhere() {
        let thread = ThreadKey { pid: 7, tid: 9, start: 1 };
        let known = Holder::Thread { thread, name: NameId(0), stack: StackId(0) };
        let words = |kind, holder, name| held_by(kind, holder, name, 7);
        let mutex = |holder| words(BlockerKind::Mutex, holder, "");
        let says = |text: &str| Some(text.to_owned());
        assert_eq!(words(BlockerKind::Mutex, known, "timer"), says("held by timer"));
        assert_eq!(words(BlockerKind::ThreadEnd, known, "timer"), says("of timer"));
        assert_eq!(mutex(known), says("held by thread 9"));
        assert_eq!(mutex(Holder::Unknown), None);
        assert_eq!(mutex(Holder::Free), says("just released"));
        assert_eq!(words(BlockerKind::Future, Holder::Free, ""), says("no thread runs it"));
        assert_eq!(mutex(Holder::Readers(1)), says("held by one reader"));
        assert_eq!(mutex(Holder::Readers(3)), says("held by 3 readers"));
        assert_eq!(mutex(Holder::Unmounted), says("held by a virtual thread that does not run"));
        for (pid, tid, expected) in [
            (7, 8, "held by thread 8"),
            (5, 5, "held by process 5"),
            (5, 6, "held by thread 6 of process 5"),
        ] {
            assert_eq!(mutex(Holder::Foreign { pid, tid }), says(expected));
        }
    }
}
