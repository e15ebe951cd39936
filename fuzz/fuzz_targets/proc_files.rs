//! The files of /proc about one thread. The target chooses its threads' names, which are in the
//! middle of `stat` and at the start of `status`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sampletop::process::threads::{self, Doing};
use sampletop::process::{process_list, target};
use sampletop_fuzz::{assert_clean, within};

fuzz_target!(|text: &[u8]| {
    within(200, || {
        stat(text);
        status(text);
        schedstat(text);
        syscall(text);
    });
});

/// Checks the three parsers that read this file for three purposes: where more than one accept a
/// text, they agree.
fn stat(text: &[u8]) {
    let (thread, listed, process) =
        (threads::parse_stat(text), process_list::Stat::parse(text), target::Stat::parse(text));
    if let Some(listed) = &listed {
        assert_clean(&listed.name, 64);
    }
    if let Some(process) = &process {
        assert_clean(&process.comm, 64);
    }
    if let (Some(thread), Some(listed)) = (&thread, &listed) {
        assert_eq!((thread.state, thread.start), (listed.state, listed.start));
    }
    if let (Some(process), Some(listed)) = (&process, &listed) {
        let of_process = (process.state, process.flags, process.start, process.threads);
        assert_eq!(of_process, (listed.state, listed.flags, listed.start, listed.threads.into()));
        assert_eq!(process.comm, listed.name);
    }
}

fn status(text: &[u8]) {
    let whole = target::Status::parse(text);
    let uid = process_list::real_uid(text);
    if let (Some(whole), Some(uid)) = (whole, uid) {
        assert_eq!(whole.uids[0], uid);
    }
    let _ = (threads::parse_switches(text), threads::parse_tracer(text));
}

fn schedstat(text: &[u8]) {
    if let Some(counters) = threads::parse_schedstat(text) {
        let written = format!("{} {} {}\n", counters.run_ns, counters.delay_ns, counters.runs);
        assert_eq!(threads::parse_schedstat(written.as_bytes()), Some(counters));
    }
}

fn syscall(text: &[u8]) {
    let doing = threads::parse_syscall(text);
    if let Some(Doing::Blocked { call, sp, pc }) = doing {
        let args: String = match call.number {
            0.. => call.args.iter().map(|arg| format!("{arg:#x} ")).collect(),
            _ => String::new(),
        };
        let written = format!("{} {args}{sp:#x} {pc:#x}\n", call.number);
        assert_eq!(threads::parse_syscall(written.as_bytes()), doing);
    }
}
