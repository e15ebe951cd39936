//! Uninterruptible waits for locks of the kernel.

use super::*;
use crate::model::facts::observed_waits::ObservedWait;
use crate::model::projection::settings::Level;
use crate::model::vocabulary::event::Syscall;
use crate::model::vocabulary::frame::SECOND;
use crate::model::vocabulary::waits_for::WaitsFor;

/// Returns the first sentence about three threads that are uninterruptible in this call for 100 ms,
/// and the state of their row. `files`: what their calls were found to be for.
fn says(call: &str, what: &'static str, files: &[&str]) -> (String, State) {
    const MS: u64 = SECOND / 1000;
    let mut world = World::new();
    for nth in 0..3 {
        let stack = format!("start;save;libc.so.6!{call}");
        world.fact(&format!("w-{nth}"), &stack, State::Disk, 100 * MS).longest_ns = 100 * MS;
    }
    let mut snapshot = world.snapshot();
    let observed = world.facts.iter().zip(files).map(|((key, _), file)| ObservedWait {
        thread: key.thread,
        stack: key.stack,
        call: Syscall { number: 18, args: [3, 0, 0, 0, 0, 0] },
        waits_for: WaitsFor { what, fd: Some(3), object: (*file).into(), peer: None },
        times: 1,
        at: 50,
    });
    snapshot.observed_waits = observed.collect();
    let settings = Settings { level: Level::Mine, ..Settings::default() };
    let mut projection = world.project_with(&mut Projector::default(), &snapshot, &settings);
    (projection.from, projection.till) = (0, 100 * MS);
    let found = findings(&snapshot, &projection, 10_000_000, &|_| None, Wording::WHOLE);
    let (state, _) = projection.total.main_state(Metric::Wall).expect("some time");
    (found[0].sentence(), state)
}

#[test]
fn a_lock_of_the_kernel_is_a_lock_and_no_disk() {
    let log = ["/srv/log"; 3];
    let two = ["/srv/log", "/srv/data", "/srv/log"];
    let map = "wait for mmap_lock (memory map)";
    for (call, what, files, state, expected) in [
        ("munmap;vmlinux!__x64_sys_munmap;vmlinux!__vm_munmap", "", &[][..], State::Lock, map),
        ("memset;vmlinux!exc_page_fault;vmlinux!lock_mm_and_find_vma", "", &[], State::Lock, map),
        (
            "pwrite64;vmlinux!vfs_write;vmlinux!ext4_buffered_write_iter",
            "pwrite",
            &log,
            State::Lock,
            "wait for the lock of /srv/log in pwrite",
        ),
        (
            "pwrite64;vmlinux!vfs_write;vmlinux!ext4_buffered_write_iter",
            "pwrite",
            &two,
            State::Lock,
            "wait for the lock of a file in pwrite",
        ),
        // Of its two files the lock may be that of the other.
        (
            "sendfile64;vmlinux!do_sendfile;vmlinux!ext4_buffered_write_iter",
            "sendfile",
            &log,
            State::Lock,
            "wait for the lock of a file in sendfile",
        ),
        (
            "read;vmlinux!ksys_read;vmlinux!fdget_pos",
            "read",
            &log,
            State::Lock,
            "wait for the position of /srv/log in read",
        ),
        (
            "unlink;vmlinux!__x64_sys_unlink;vmlinux!do_unlinkat",
            "",
            &[],
            State::Lock,
            "wait for the lock of a directory",
        ),
        // Further in, the same functions wait for something else.
        (
            "pwrite64;vmlinux!ext4_buffered_write_iter;vmlinux!folio_wait_bit_common",
            "",
            &[],
            State::Disk,
            "wait for a disk",
        ),
        ("pwrite64", "pwrite", &log, State::Disk, "wait for /srv/log in pwrite"),
    ] {
        let (sentence, found) = says(call, what, files);
        let expected = format!("all 3 w- threads {expected}: 100 %");
        assert!(sentence.starts_with(&expected), "{call}: {sentence}");
        assert_eq!(found, state, "{call}");
    }
}
