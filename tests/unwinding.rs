//! Stacks of live programs, by function name and order, and by address against other unwinders:
//! elfutils, and with the feature libunwind.

mod common;
#[path = "unwinding/support.rs"]
mod support;

use std::collections::BTreeMap;

use common::{Running, build};
use sampletop::model::vocabulary::frame::{Marker, RawFrame};
use sampletop::process::mapped_files::Files;
use sampletop::process::maps::Maps;
#[cfg(feature = "libunwind")]
use sampletop::process::memory::Memory;
use support::{
    Stack, StoppedThread, Symbols, blocked_threads, eu_stack, has_run, plain, threads_by_name,
    unwinder, walk_blocked, walk_stopped,
};

/// Returns the call chain of a thread of uw_blocked.c, innermost first; `-` stands for libraries.
fn expected(kind: &str) -> Vec<String> {
    let inside: &[&str] = match kind {
        "main" => return ["-", "main", "-", "_start"].map(String::from).into(),
        "inline" => &["wait_inline"],
        "qsort" => &["-", "wait_read", "compare", "-", "wait_qsort"],
        "signal" => &["-", "wait_read", "handler", "-", "wait_signal"],
        "altstack" => &["-", "wait_read", "handler", "-", "wait_altstack"],
        "trap" => &["-", "wait_read", "handler", "-", "wait_trap"],
        "context" => return ["-", "wait_read", "coroutine", "-"].map(String::from).into(),
        "self" => &["-", "self", "self", "self", "self", "self", "self", "wait_self"],
        "vague" => &["-", "vague", "vague", "vague", "vague", "vague", "vague", "wait_vague"],
        "pointer" => &["-", "wait_read", "wait_pointer"],
        "library" => &["-", "wait_read", "library_inner", "library_entry", "wait_library"],
        "deep" => {
            let mut chain: Vec<String> = vec!["-".into(), "wait_read".into()];
            chain.extend((0..=400).map(|_| "recurse".into()));
            chain.extend(
                ["wait_deep", "middle_deep", "outer_deep", "thread_main", "-"].map(String::from),
            );
            return chain;
        }
        "too_deep" => {
            // Of 1,200 frames of the recursion: the innermost one and 64 of its callers.
            let mut chain: Vec<String> = vec!["-".into(), "wait_read".into()];
            chain.extend((0..65).map(|_| "recurse".into()));
            chain.push(Marker::Folded.text(None));
            chain.extend(
                ["wait_too_deep", "middle_too_deep", "outer_too_deep", "thread_main", "-"]
                    .map(String::from),
            );
            return chain;
        }
        other => {
            return [
                "-",
                &format!("wait_{other}"),
                &format!("middle_{other}"),
                &format!("outer_{other}"),
                "thread_main",
                "-",
            ]
            .map(String::from)
            .into();
        }
    };
    let mut chain: Vec<String> = inside.iter().map(|s| s.to_string()).collect();
    chain.extend([
        format!("middle_{kind}"),
        format!("outer_{kind}"),
        "thread_main".into(),
        "-".into(),
    ]);
    chain
}

/// Stacks that end early without rbp, with a marker. A context of makecontext returns to code of
/// glibc that has no unwind information for its caller, since none exists. And which of six equal
/// frames is the innermost cannot be determined.
const EARLY: [(&str, Marker); 2] =
    [("context", Marker::NoUnwindInfo), ("vague", Marker::BadUnwind)];

/// Builds uw_blocked.c with these flags, and checks every thread of it by name and by address.
/// `copy`: stack bytes copied at first. `without`: kinds whose stack must end early instead, with
/// this marker.
fn check_blocked(variant: &str, flags: &[&str], copy: usize, without: &[(&str, Marker)]) {
    let program = build("uw_blocked.c", variant, flags);
    let shared: Vec<&str> = flags.iter().copied().filter(|f| *f != "-static").collect();
    let library = build("uw_library.c", variant, &[&shared[..], &["-shared", "-fPIC"]].concat());
    // A static program loads no libraries.
    let arguments: &[&str] =
        if flags.contains(&"-static") { &[] } else { &[library.to_str().unwrap()] };
    let running = Running::start(&program, arguments);
    let pid = running.pid();
    // A stripped program is laid out like its unstripped twin; a static one has the functions of
    // the dynamic one, and those of its libraries.
    let twin = |source, without: &[&str], more: &[&str]| {
        let flags: Vec<&str> = flags
            .iter()
            .copied()
            .filter(|f| !without.contains(f))
            .chain(more.iter().copied())
            .collect();
        Symbols::of(&build(source, &format!("{variant}-twin"), &flags))
    };
    let mut own = Symbols { path: program.clone(), ..twin("uw_blocked.c", &["-s"], &[]) };
    if flags.contains(&"-static") {
        own.keep_only(&twin("uw_blocked.c", &["-static"], &["-no-pie"]));
    }
    let its_library = Symbols {
        path: library.clone(),
        ..twin("uw_library.c", &["-s", "-static"], &["-shared", "-fPIC"])
    };
    let files = Files::default();
    let mut unwinder = unwinder(pid, &files);
    let threads = blocked_threads(pid);
    assert_eq!(threads.len(), 23 + arguments.len(), "{threads:?}");
    let stacks: BTreeMap<&String, Stack> = threads
        .iter()
        .map(|(name, tid)| (name, walk_blocked(&mut unwinder, pid, *tid, copy)))
        .collect();
    let maps = Maps::read(pid).unwrap();
    let judge = eu_stack(pid);
    let mut wrong = Vec::new();
    for (kind, stack) in &stacks {
        let names = stack.names(&files, &[&own, &its_library]);
        let chain = expected(kind);
        let judged = &judge[&threads[*kind]];
        let mut addresses = stack.addresses(&files, &maps);
        if let Some((_, marker)) = without.iter().find(|(k, _)| k == kind) {
            // A correct beginning, and the reason.
            let n = names.len() - 1;
            if names[n] != marker.text(None)
                || names[..n] != chain[..n.min(chain.len())]
                || stack.walk.end != Some(*marker)
            {
                wrong.push(format!("{kind}: {names:?} {:?}", stack.walk));
            }
            continue;
        }
        if names != chain || stack.walk.end.is_some() {
            wrong.push(format!("{kind}: {:?}\n  {names:?}\n  not {chain:?}", stack.walk));
        }
        // Of a deep stack, both ends.
        let mut judged = judged.clone();
        if **kind == "too_deep" {
            let folded = stack
                .frames
                .iter()
                .position(|frame| *frame == RawFrame::marker(Marker::Folded))
                .expect("folded");
            addresses.remove(folded);
            judged.drain(folded..judged.len().saturating_sub(addresses.len() - folded));
        }
        if addresses != judged {
            wrong.push(format!("{kind}: {addresses:x?}\n  eu-stack: {judged:x?}"));
        }
    }
    // The same with all registers known, and by libunwind.
    #[cfg(feature = "libunwind")]
    let mut other = sampletop::unwinder::libunwind::LibunwindUnwinder::new(
        Memory::new(pid),
        files.clone(),
        pid,
    );
    for (kind, stack) in &stacks {
        let stopped = StoppedThread::new(threads[*kind]);
        // Enough for the deepest: a stopped thread's stack is not read any further.
        let known = walk_stopped(&mut unwinder, pid, &stopped, 1 << 20);
        // The stack that the handler interrupted is another one: not copied.
        let cut = **kind == "altstack"
            && known.walk.end == Some(Marker::Truncated)
            && stack.frames.starts_with(&known.frames[..known.frames.len() - 1]);
        let more = **kind == "vague"
            && known.walk.end.is_none()
            && known.frames.starts_with(&stack.frames[..stack.frames.len() - 1]);
        if (known.frames != stack.frames && !cut && !more) || known.walk.recovered {
            wrong
                .push(format!("{kind}: with rbp {:?}", known.names(&files, &[&own, &its_library])));
        }
        // Through ptrace libunwind 1.6.2 finds no unwind information of a static program; elfutils,
        // above, does.
        #[cfg(feature = "libunwind")]
        if variant != "static" {
            let mut frames = Vec::new();
            let walk = other.walk_stopped(threads[*kind], &mut frames);
            if frames != if more { &known.frames } else { &stack.frames }[..] {
                let judged = Stack { walk, frames };
                wrong.push(format!(
                    "{kind}: libunwind {:?}",
                    judged.names(&files, &[&own, &its_library])
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{variant}:\n{}", wrong.join("\n"));
}

#[test]
fn blocked_threads_o2() {
    check_blocked("o2", &["-O2"], 32 << 10, &EARLY);
}

#[test]
fn blocked_threads_o2_frame_pointers() {
    check_blocked("fp", &["-O2", "-fno-omit-frame-pointer"], 32 << 10, &EARLY);
}

#[test]
fn blocked_threads_o0_no_pie() {
    check_blocked("o0", &["-O0", "-no-pie"], 32 << 10, &EARLY);
}

#[test]
fn blocked_threads_hardened() {
    let flags = [
        "-O2",
        "-fno-omit-frame-pointer",
        "-fstack-clash-protection",
        "-fcf-protection",
        "-fstack-protector-all",
    ];
    check_blocked("hard", &flags, 32 << 10, &EARLY);
}

#[test]
fn blocked_threads_static() {
    check_blocked("static", &["-O2", "-static"], 32 << 10, &EARLY);
}

#[test]
fn blocked_threads_stripped_few_bytes_copied() {
    check_blocked("stripped", &["-O2", "-s", "-fno-plt"], 256, &EARLY);
}

/// Checks a program whose threads all block: each stack is whole, equal to elfutils' result, and
/// contains these functions in this order, innermost first.
fn check_in_order(source: &str, variant: &str, flags: &[&str], expected: &[(&str, &[&str])]) {
    let program = build(source, variant, flags);
    let running = Running::start(&program, &[]);
    let pid = running.pid();
    let own = Symbols::of(&program);
    let files = Files::default();
    let mut unwinder = unwinder(pid, &files);
    let threads = blocked_threads(pid);
    let stacks: Vec<_> = expected
        .iter()
        .map(|(kind, _)| walk_blocked(&mut unwinder, pid, threads[*kind], 16 << 10))
        .collect();
    let maps = Maps::read(pid).unwrap();
    let judge = eu_stack(pid);
    for ((kind, functions), stack) in expected.iter().zip(stacks) {
        let names: Vec<String> =
            stack.names(&files, &[&own]).iter().map(|name| plain(name)).collect();
        assert_eq!(stack.walk.end, None, "{kind}: {names:?}");
        assert_eq!(stack.addresses(&files, &maps), judge[&threads[*kind]], "{kind}: {names:?}");
        let mut rest = names.iter();
        for function in *functions {
            assert!(rest.any(|name| name == function), "{kind}: no {function} there in {names:?}");
        }
    }
}

#[test]
fn cpp_templates_virtual_calls_and_exceptions() {
    let expected: [(&str, &[&str]); 5] = [
        (
            "virtual",
            &[
                "wait_here",
                "shop::Cart<std::vector<int, std::allocator<int> > >::checkout",
                "shop::Derived::run",
                "through_virtual",
                "blocked_virtual",
            ],
        ),
        ("throw", &["wait_here", "Unwound::~Unwound", "thrower", "blocked_throw"]),
        ("catch", &["wait_here", "catcher", "blocked_catch"]),
        ("sort", &["wait_here", "blocked_sort"]),
        ("main", &["main", "_start"]),
    ];
    check_in_order("uw_cpp.cpp", "cpp", &["-O2"], &expected);
    check_in_order("uw_cpp.cpp", "cpp-fp", &["-O2", "-fno-omit-frame-pointer"], &expected);
    check_in_order("uw_cpp.cpp", "cpp-o0", &["-O0", "-no-pie"], &expected);
}

#[test]
fn rust_generics_closures_and_trait_objects() {
    let expected: [(&str, &[&str]); 6] = [
        ("mutex", &["uw_rust::wait_mutex"]),
        ("channel", &["uw_rust::wait_channel"]),
        ("condvar", &["uw_rust::wait_condvar"]),
        ("sleep", &["std::thread::functions::sleep", "uw_rust::wait_sleep"]),
        ("park", &["std::thread::functions::park", "uw_rust::wait_park"]),
        (
            "dyn",
            &[
                "uw_rust::wait_sleep",
                "uw_rust::recurse",
                "uw_rust::recurse",
                "<uw_rust::Generic<T> as uw_rust::Work>::work",
                "uw_rust::wait_dyn",
            ],
        ),
    ];
    let release = ["--edition", "2021", "-O"];
    check_in_order("uw_rust.rs", "release", &release, &expected);
    let pointers = ["--edition", "2021", "-O", "-C", "force-frame-pointers=yes"];
    check_in_order("uw_rust.rs", "fp", &pointers, &expected);
    check_in_order("uw_rust.rs", "debug", &["--edition", "2021"], &expected);
}

/// Threads of uw_busy.c, and functions that may occur inside busy_KIND, in any order.
const BUSY: [(&str, &[&str]); 12] = [
    ("vdso", &["-", "plt"]),
    ("tiny", &["tiny_inner", "tiny_outer"]),
    ("plt", &["-", "plt"]),
    ("recursion", &["fib"]),
    ("many", &["many", "tiny_inner"]),
    ("align", &["aligned", "-", "plt"]),
    ("signal", &["tiny_inner", "tiny_outer", "handler", "trap", "-"]),
    ("null", &["tiny_inner", "tiny_outer", "handler", "segv", "-", "[code outside every mapping]"]),
    ("frame", &["blind_frame"]),
    ("leaf", &["blind_leaf"]),
    ("hard", &["blind_hard"]),
    ("jump", &["blind_jump", "blind_there"]),
];

/// Returns where the source's call chain begins in a stack, and whether it is complete from there.
/// Between two calls a thread is in the outer functions: then less of the chain is there.
fn links(names: &[impl AsRef<str>], chain: &[String]) -> (usize, bool) {
    let is_link = |name: &str| chain.iter().any(|link| link == name && link != "-");
    let Some(start) = names.iter().position(|name| is_link(name.as_ref())) else {
        return (names.len(), false);
    };
    let links = &names[start..];
    let missing = chain.len().saturating_sub(links.len());
    let equal = links.iter().map(AsRef::as_ref).eq(chain[missing..].iter().map(String::as_str));
    (start, equal && (missing == 0 || start == 0))
}

/// Stops each thread of uw_busy.c repeatedly at random points, and checks its stack by name.
fn check_busy(variant: &str, flags: &[&str]) {
    /// Stops per thread: enough to reach all places of these small loops.
    const STOPS: usize = 60;
    let program = build("uw_busy.c", variant, flags);
    let own = Symbols::of(&program);
    let mut wrong: BTreeMap<String, u32> = BTreeMap::new();
    for (kind, inside) in BUSY {
        let running = Running::start(&program, &[kind]);
        let pid = running.pid();
        let files = Files::default();
        let mut unwinder = unwinder(pid, &files);
        #[cfg(feature = "libunwind")]
        let mut judge = sampletop::unwinder::libunwind::LibunwindUnwinder::new(
            Memory::new(pid),
            files.clone(),
            pid,
        );
        let threads = threads_by_name(pid);
        let chain = [
            format!("busy_{kind}"),
            format!("middle_{kind}"),
            format!("outer_{kind}"),
            "thread_main".into(),
            "-".into(),
        ];
        #[cfg(feature = "libunwind")]
        let mut compared = 0;
        for _ in 0..STOPS {
            has_run(pid, threads[kind]);
            let stopped = StoppedThread::new(threads[kind]);
            let stack = walk_stopped(&mut unwinder, pid, &stopped, 32 << 10);
            #[cfg(feature = "libunwind")]
            let judged = {
                let mut frames = Vec::new();
                let walk = judge.walk_stopped(threads[kind], &mut frames);
                (walk, frames)
            };
            drop(stopped);
            let names = stack.names(&files, &[&own]);
            // The program's own linkage table has no symbols.
            let names: Vec<&str> =
                names.iter().map(|n| if n.starts_with('?') { "plt" } else { n }).collect();
            let (start, linked) = links(&names, &chain);
            let whole = stack.walk.end.is_none()
                && !stack.walk.recovered
                && linked
                && names[..start].iter().all(|name| inside.contains(name));
            if !whole {
                *wrong.entry(format!("{kind}: {names:?} {:?}", stack.walk)).or_default() += 1;
            }
            #[cfg(feature = "libunwind")]
            if judged.0.end.is_none() && stack.walk.end.is_none() {
                compared += 1;
            }
            #[cfg(feature = "libunwind")]
            if judged.0.end.is_none() && stack.walk.end.is_none() && judged.1 != stack.frames {
                let other = Stack { walk: judged.0, frames: judged.1 };
                let other = other.names(&files, &[&own]);
                // libunwind follows GCC's unwind rows for rbp behind the `leave` of a realigned
                // frame, and misses a caller.
                let misled = kind == "align" && !links(&other, &chain).1;
                if !misled {
                    *wrong
                        .entry(format!("{kind}: {names:?}\n  libunwind: {other:?}"))
                        .or_default() += 1;
                }
            }
        }
        // Where there is unwind information on disk, libunwind can walk.
        #[cfg(feature = "libunwind")]
        assert!(
            compared > STOPS / 2
                || ["vdso", "null", "frame", "leaf", "hard", "jump"].contains(&kind),
            "{kind}: {compared}"
        );
    }
    assert!(wrong.is_empty(), "{variant}: {wrong:#?}");
}

#[test]
fn busy_threads_o2() {
    check_busy("o2", &["-O2"]);
}

#[test]
fn busy_threads_frame_pointers() {
    check_busy("fp", &["-O2", "-fno-omit-frame-pointer"]);
}

#[test]
fn busy_threads_o0() {
    check_busy("o0", &["-O0", "-no-pie"]);
}

/// A leader that has exited is a zombie without memory, while other threads live on.
#[test]
fn threads_of_a_dead_leader() {
    let program = build("uw_orphan.c", "o2", &["-O2"]);
    let running = Running::start(&program, &[]);
    let pid = running.pid();
    support::wait_for_zombie(pid);
    let target = sampletop::process::target::Target::attach(pid).expect("its other thread lives");
    assert!(target.alive());
    let own = Symbols::of(&program);
    let files = Files::default();
    let mut unwinder = unwinder(pid, &files);
    let tid = threads_by_name(pid)["orphan"];
    let stack = walk_blocked(&mut unwinder, pid, tid, 4096);
    assert_eq!(stack.names(&files, &[&own]), ["-", "wait_alone", "orphan", "-"]);
    assert_eq!(stack.walk.end, None);
}

/// musl has no unwind information, neither for its system calls nor for the code that starts its
/// programs and threads.
fn check_musl(variant: &str, flags: &[&str], started_by: &[&str]) {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/musl.c");
    let program = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("musl-{variant}-{}", std::process::id()));
    let mut command = std::process::Command::new("musl-gcc");
    let output = command
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("musl-gcc (musl-tools)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let running = Running::start(&program, &[]);
    let pid = running.pid();
    let own = Symbols::of(&program);
    let files = Files::default();
    let mut unwinder = unwinder(pid, &files);
    let threads = blocked_threads(pid);
    assert_eq!(threads.len(), 9, "{threads:?}");
    let mut wrong = Vec::new();
    for (kind, tid) in threads {
        let stack = walk_blocked(&mut unwinder, pid, tid, 16 << 10);
        // Assembly has no size in musl's symbol table.
        let nameless = |name: String| {
            if name.starts_with('?') { "?".into() } else { name.replace(".constprop.0", "") }
        };
        let names: Vec<String> = stack.names(&files, &[&own]).into_iter().map(nameless).collect();
        let chain: Vec<String> = match &*kind {
            "main" => vec!["main".into()],
            kind => ["inner", "middle", "thread"].map(|depth| format!("{depth}_{kind}")).into(),
        };
        // Its own functions, all of them, without a gap; then what started the thread.
        let at = names.iter().position(|name| *name == chain[0]);
        let whole = at.is_some_and(|at| at > 0 && names[at..].starts_with(&chain));
        let outer = at.map_or(&[][..], |at| &names[(at + chain.len()).min(names.len())..]);
        let started = kind == "main" || outer == started_by;
        if stack.walk.end.is_some() || !whole || !started || outer.is_empty() {
            wrong.push(format!("{kind}: {names:?} {:?}", stack.walk));
        }
    }
    assert!(wrong.is_empty(), "{variant}:\n{}", wrong.join("\n"));
}

#[test]
fn musl_static() {
    check_musl("static", &["-O2", "-static"], &["start", "?"]);
    check_musl("static-fp", &["-O1", "-static", "-fno-omit-frame-pointer"], &["start", "?"]);
}

#[test]
fn musl_dynamic() {
    check_musl("dynamic", &["-O2"], &["-"]);
    check_musl("dynamic-os", &["-Os", "-no-pie"], &["-"]);
}

/// A program without unwind tables, whose functions keep frame pointers: they lead to the C
/// library, which has tables.
#[test]
fn frame_pointers_without_tables() {
    let flags =
        ["-O1", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let program = build("uw_blocked.c", "no-tables", &flags);
    let running = Running::start(&program, &[]);
    let pid = running.pid();
    let own = Symbols::of(&program);
    let files = Files::default();
    let mut unwinder = unwinder(pid, &files);
    let threads = blocked_threads(pid);
    let maps = Maps::read(pid).unwrap();
    let judge = eu_stack(pid);
    let (mut wrong, mut whole) = (Vec::new(), 0);
    for (kind, tid) in &threads {
        let chain = expected(kind);
        // Only the ordinary ones: each function calls the next by its name.
        if chain.len() != 6 || chain[0] != "-" {
            continue;
        }
        let stopped = StoppedThread::new(*tid);
        let stack = walk_stopped(&mut unwinder, pid, &stopped, 32 << 10);
        drop(stopped);
        let names = stack.names(&files, &[&own]);
        let equal = names == chain && stack.addresses(&files, &maps) == judge[tid];
        whole += usize::from(equal && stack.walk.end.is_none());
        // Frames of other shapes may end early, after a correct beginning.
        let (last, begin) = names.split_last().expect("frames");
        let early = *last == Marker::NoUnwindInfo.text(None) && chain.starts_with(begin);
        if !early && (!equal || stack.walk.end.is_some()) {
            wrong.push(format!("{kind}: {names:?} {:?} {:x?}", stack.walk, judge[tid]));
        }
    }
    assert!(wrong.is_empty() && whole >= 8, "{whole} are whole:\n{}", wrong.join("\n"));
}
