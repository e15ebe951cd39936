//! What threads in recorded memory wait for.

use sampletop::model::vocabulary::blocker::{BlockerKind, RawBlocker, RawHolder};
use sampletop::model::vocabulary::frame::Ns;
use sampletop::process::memory::ReadMemory;
use sampletop::runtimes::frame_and_thread_names::Names;
use sampletop::runtimes::jvm::Jvm;
use sampletop::unwinder::Generated;
use sampletop::unwinder::interpreted::StackOwner;

use crate::waits::{PID, Recorded, WAITS, Wait};
use crate::{Without, attach};

fn ask<M: ReadMemory + Send>(jvm: &mut Jvm<M>, sp: u64) -> Option<RawBlocker> {
    jvm.begin(Ns::MAX, false);
    jvm.blocker(StackOwner { sp, ..StackOwner::default() })
}

fn named(found: RawBlocker, names: &Names) -> Wait {
    let class = found.class.and_then(|class| names.thread(class));
    Wait {
        kind: found.kind,
        object: found.object,
        holder: found.holder,
        class: class.as_deref().unwrap_or_default().to_owned(),
    }
}

#[test]
fn blockers_are_what_jstack_said() {
    for recording in &WAITS {
        let Recorded { version, pieces, waits } = Recorded::load(recording);
        let names = Names::default();
        let mut jvm = attach(pieces, waits.image, &names).in_process(PID);
        // What is remembered of the first pass changes nothing in the second.
        for round in 0..2 {
            for thread in &waits.threads {
                let found = ask(&mut jvm, thread.sp).map(|found| named(found, &names));
                assert_eq!(found, thread.wait, "JDK {version}, round {round}, {}", thread.name);
            }
        }
        let of = |kind| {
            let waits = waits.threads.iter().filter_map(|thread| thread.wait.as_ref());
            waits.filter(|wait| wait.kind == kind).count()
        };
        for (kind, count) in [
            (BlockerKind::Notify, 3),
            (BlockerKind::OwnedLock, 7),
            (BlockerKind::Condition, 1),
            (BlockerKind::Semaphore, 1),
            (BlockerKind::Latch, 1),
            (BlockerKind::Future, 2),
            (BlockerKind::Parked, 3),
            (BlockerKind::ThreadEnd, 3),
        ] {
            assert!(of(kind) >= count, "JDK {version}: {} {}", of(kind), kind.word());
        }
        assert!(of(BlockerKind::Monitor) >= 6, "JDK {version}");
        assert_eq!(waits.threads.iter().filter(|thread| thread.wait.is_none()).count(), 3);
    }
}

/// What cannot be read is missing from the result, and nothing wrong replaces it.
#[test]
fn a_hole_in_memory_makes_no_other_blocker() {
    /// Of some thousand pieces every 37th is tried.
    const STEP: usize = 37;
    let mut changed = 0;
    for recording in &WAITS {
        let Recorded { version, pieces, waits } = Recorded::load(recording);
        for hole in pieces.0.keys().step_by(STEP) {
            let names = Names::default();
            let memory = Without(pieces.clone(), *hole);
            let Ok(jvm) = Jvm::attach(memory, waits.image, names.clone()) else { continue };
            let mut jvm = jvm.in_process(PID);
            for thread in &waits.threads {
                let found = ask(&mut jvm, thread.sp).map(|found| named(found, &names));
                let what = format!("JDK {version}, {}, a hole at {hole:x}", thread.name);
                changed += u32::from(found != thread.wait);
                let Some(found) = found else { continue };
                let wait = thread.wait.as_ref().unwrap_or_else(|| panic!("{what}: {found:x?}"));
                assert!([0, wait.object].contains(&found.object), "{what}: {found:x?}");
                assert!(["", &wait.class].contains(&&*found.class), "{what}: {found:x?}");
                let known = [RawHolder::Unknown, wait.holder].contains(&found.holder);
                // The readers are counted where the only one is not known.
                let counted = matches!(found.holder, RawHolder::Readers(2));
                assert!(known || counted && thread.name == "once", "{what}: {found:x?}");
            }
        }
    }
    assert!(changed > 100, "{changed}: holes must have been where it matters");
}
