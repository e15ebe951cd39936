//! Explains why the kernel refuses perf events.

use std::io;

/// Returns why perf events are refused, and the one fix.
pub fn explain(error: &io::Error) -> (String, String) {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .ok()
        .and_then(|text| text.trim().parse::<i32>().ok());
    if error.kind() == io::ErrorKind::QuotaExceeded {
        return (
            "other profilers have used up this user's memory for perf's rings".into(),
            "end those, or raise the limit of locked memory with `ulimit -l`".into(),
        );
    }
    match (error.raw_os_error(), paranoid) {
        (Some(libc::EACCES | libc::EPERM), Some(level)) if level > 2 => (
            format!("kernel.perf_event_paranoid is {level}"),
            "run sampletop as root, or `sudo sysctl kernel.perf_event_paranoid=2`".into(),
        ),
        // Processes of other users were refused before. This one has made itself inaccessible
        // (PR_SET_DUMPABLE).
        (Some(libc::EACCES), _) => (
            "the kernel grants no access to it, not even to its owner".into(),
            "run sampletop as root".into(),
        ),
        (Some(libc::EPERM), _) => (
            "the system call perf_event_open is forbidden here".into(),
            "run sampletop outside the container, or give the container CAP_PERFMON".into(),
        ),
        (Some(libc::ENOSYS), _) => (
            "this kernel is built without perf events".into(),
            "use --capture ptrace or --capture states".into(),
        ),
        (Some(libc::EMFILE | libc::ENFILE), _) => (
            "no descriptors are left for perf events".into(),
            "raise the limit with `ulimit -n`".into(),
        ),
        _ => (
            format!("perf events cannot be opened ({error})"),
            "use --capture ptrace or --capture states".into(),
        ),
    }
}
