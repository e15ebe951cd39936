use proptest::prelude::*;

use super::*;

#[test]
fn counters_are_the_three_fields_of_schedstat() {
    let counters = Counters { run_ns: 123, delay_ns: 45, runs: 6 };
    assert_eq!(parse_schedstat(b"123 45 6\n"), Some(counters));
    assert_eq!(parse_schedstat(b"123 45\n"), None);
    assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
    for none in [&b"18446744073709551616"[..], b"", b"-1", b"+1", b"1x", b"1/"] {
        assert_eq!(decimal(none), None);
    }
}

#[test]
fn stat_survives_a_name_made_to_confuse() {
    let tail = "S 1 2 3 4 5 6 7 8 9 10 100 23 14 15 20 0 7 0 4242 17";
    let stat = parse_stat(format!("12 (a) R (b\\n\\\\) {tail}").as_bytes()).expect("parsed");
    assert_eq!(stat.name.bytes(), b"a) R (b\n\\");
    assert_eq!((stat.state, stat.start, stat.cpu_ticks), (b'S', 4242, 123));
    assert_eq!(stat.processor, u32::MAX, "the line was cut");
    let whole = format!("12 (a) {tail} 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 3 40 41");
    assert_eq!(parse_stat(whole.as_bytes()).expect("parsed").processor, 3);
}

#[test]
fn the_three_forms_of_syscall() {
    assert_eq!(parse_syscall(b"running\n"), Some(Doing::Running));
    assert_eq!(
        parse_syscall(b"-1 0x7ffc10 0x401000\n"),
        Some(Doing::Blocked {
            call: Syscall { number: -1, args: [0; 6] },
            sp: 0x7ffc10,
            pc: 0x401000
        })
    );
    assert_eq!(
        parse_syscall(b"232 0x5 0x7f00 0x10 0xffffffffffffffff 0x0 0x8 0x7ffc10 0x401000\n"),
        Some(Doing::Blocked {
            call: Syscall { number: 232, args: [5, 0x7f00, 0x10, u64::MAX, 0, 8] },
            sp: 0x7ffc10,
            pc: 0x401000
        })
    );
    assert_eq!(parse_syscall(b"232 0x5 0x7f00\n"), None);
}

#[test]
fn switches_are_both_kinds() {
    let text = b"Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
    assert_eq!(parse_switches(text), Some(695));
    assert_eq!(parse_switches(b"Name:\tx\n"), None);
    assert_eq!(parse_tracer(b"Name:\tx\nTracerPid:\t17\nUid:\t0\n"), Some(17));
}

proptest! {
    #[test]
    fn garbage_never_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (parse_schedstat(&text), parse_stat(&text), parse_syscall(&text), parse_switches(&text));
    }
}

#[test]
fn a_thread_is_read_through_open_descriptors_and_its_exit_is_noticed() {
    let (tid_out, tid_in) = std::sync::mpsc::channel();
    let (go_out, go_in) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new()
        .name("a (name) R".into())
        .spawn(move || {
            let _ = tid_out.send(rustix::thread::gettid().as_raw_pid() as u32);
            let _ = go_in.recv();
        })
        .expect("a thread");
    let tid = tid_in.recv().expect("its id");
    let tasks = Tasks::open(std::process::id(), 100).expect("our own threads");
    let mut listed = Vec::new();
    tasks.list(&mut listed).expect("listed");
    assert!(listed.contains(&tid));

    let mut files = tasks.thread(tid);
    assert!(tasks.counters(&mut files).expect("counters").runs > 0);
    assert_eq!(tasks.stat(&mut files).expect("stat").name.bytes(), b"a (name) R");
    assert_eq!(tasks.name(&mut files).expect("comm").bytes(), b"a (name) R");
    assert!(tasks.doing(&mut files).is_ok());
    let opens = tasks.reads().opens;
    assert!(tasks.counters(&mut files).is_ok() && tasks.stat(&mut files).is_ok());
    assert_eq!(tasks.reads().opens, opens, "the descriptors were kept");

    drop(go_out);
    thread.join().expect("it ends");
    // `join` returns when the thread has left user mode; the kernel removes it a moment later.
    while tasks.counters(&mut files) != Err(ReadError::Exited) {
        std::thread::yield_now();
    }
    tasks.forget(files);
}

#[test]
fn a_kernel_that_counts_is_recognised_from_a_new_thread() {
    let expected =
        fs::read_to_string("/proc/self/schedstat").is_ok_and(|text| !text.starts_with("0 0 0"));
    for _ in 0..50 {
        let source = std::thread::spawn(own_counter_source).join().expect("it ends");
        assert_eq!(source == CounterSource::Schedstat, expected);
    }
}

#[test]
fn links_count_the_threads() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
    let tasks = Tasks::open(child.id(), 0).expect("its threads");
    assert_eq!(tasks.links(), 3);
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn the_second_half_of_the_descriptors_is_for_counters() {
    let tasks = Tasks::open(std::process::id(), 4).expect("our own threads");
    let mut threads = [(); 4].map(|()| tasks.thread(std::process::id()));
    for files in &mut threads[..2] {
        assert!(tasks.stat(files).is_ok() && tasks.doing(files).is_ok());
    }
    let kept =
        |files: &ThreadFiles| [&files.counters, &files.stat, &files.syscall].map(Option::is_some);
    assert_eq!([kept(&threads[0]), kept(&threads[1])], [[false, true, true], [false; 3]]);
    assert!(!tasks.short_of_descriptors());
    for files in &mut threads {
        assert!(tasks.counters(files).is_ok());
    }
    assert_eq!(threads.iter().filter(|files| files.counters.is_some()).count(), 2);
    assert!(tasks.short_of_descriptors(), "of two the counters' file is opened for each read");
}

#[test]
fn without_descriptors_each_read_opens() {
    let tasks = Tasks::open(std::process::id(), 0).expect("our own threads");
    let mut files = tasks.thread(std::process::id());
    assert!(tasks.counters(&mut files).is_ok() && tasks.counters(&mut files).is_ok());
    assert_eq!(tasks.reads().opens, 2);
    assert!(tasks.short_of_descriptors());
}
