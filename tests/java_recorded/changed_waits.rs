//! What threads wait for, in recorded memory in which words are changed: bounded work, clean text,
//! and no holder that cannot be.

use sampletop::model::vocabulary::blocker::{BlockerKind, RawHolder};
use sampletop::model::vocabulary::frame::Ns;
use sampletop::model::vocabulary::text::NAME_CAP;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::runtimes::jvm::Jvm;
use sampletop::unwinder::Generated;
use sampletop::unwinder::interpreted::StackOwner;

use crate::changed::{ATTACH_READS, Changed, Changes, Input, assert_clean};
use crate::waits::{PID, Recorded};

/// Maximum reads for one thread: the limit of `jvm/read_limit.rs`.
const BLOCKER_READS: u64 = 1 << 17;
/// Threads that are observed in each pass.
const THREADS: usize = 6;

/// Reads a recording as `data` describes. Panics if a guarantee does not hold.
///
/// Input: recording, whether the changes come only after a first pass, the first thread; then
/// changes: place and word, see [`Changes`].
pub fn observe(all: &[Recorded], data: &[u8]) {
    let mut input = Input(data);
    let recorded = &all[usize::from(input.u8()) % all.len()];
    let late = input.u8() & 1 != 0;
    let first = usize::from(input.u8());
    let memory = Changed::new(&recorded.pieces);
    let changes = Changes::read(&memory, &mut input);
    if !late {
        memory.change(&changes);
    }
    let names = Names::default();
    let Ok(jvm) = Jvm::attach(memory.clone(), recorded.waits.image, names.clone()) else { return };
    let mut jvm = jvm.in_process(PID);
    memory.take_reads(ATTACH_READS);
    for round in 0..3 {
        if round == 1 && late {
            memory.change(&changes);
        }
        for thread in recorded.waits.threads.iter().cycle().skip(first).take(THREADS) {
            jvm.begin(Ns::MAX, false);
            let found = jvm.blocker(StackOwner { sp: thread.sp, ..StackOwner::default() });
            memory.take_reads(BLOCKER_READS);
            if round == 0 && late {
                let known = found.map(|found| (found.kind, found.object, found.holder));
                let wait = thread.wait.as_ref().map(|wait| (wait.kind, wait.object, wait.holder));
                assert_eq!(known, wait, "{}", thread.name);
            }
            let Some(found) = found else { continue };
            if let Some(class) = found.class {
                assert_ne!(found.object, 0);
                let class = names.thread(class).expect("a name");
                assert!(!class.is_empty());
                assert_clean(&class, NAME_CAP);
            }
            match found.holder {
                RawHolder::Thread { pid, tid } => assert!(pid == PID && tid != 0, "{found:?}"),
                RawHolder::Readers(count) => {
                    assert!(count > 0 && found.kind == BlockerKind::OwnedLock, "{found:?}");
                }
                RawHolder::Free | RawHolder::Unmounted | RawHolder::Unknown => {}
            }
            let unheld = matches!(
                found.kind,
                BlockerKind::Notify
                    | BlockerKind::Condition
                    | BlockerKind::Semaphore
                    | BlockerKind::Latch
                    | BlockerKind::Parked
            );
            assert!(!unheld || found.holder == RawHolder::Unknown, "{found:?}");
        }
    }
}
