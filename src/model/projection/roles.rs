//! Decides whose code a frame is, by evidence: best first.
//!
//! 1. Names that only a runtime or a wait has: start-up, trampolines, schedulers, parking.
//! 2. The source file that debug information names: a toolchain, a registry of packages.
//! 3. The place that the code was loaded from ([`Origin`]): the program, the system.
//! 4. Names of well-known packages ([`java_packages`]).
//!
//! Where the evidence is thin the frame is the user's: hiding the user's code is the worse mistake.

use std::sync::LazyLock;

use regex::Regex;

use super::idle_marks::{self, Mark};
use super::{monitor, node, python, safepoint};
use crate::model::facts::redacted;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::qualified::segments;
use crate::model::vocabulary::role::{Origin, Role};
use crate::model::vocabulary::{go_functions, java_packages};

/// Functions of native runtimes that start threads, call closures and unwind panics. They are
/// above each thread's own code, or between a function and its closure.
const NATIVE_RUNTIME: &[&str] = &[
    // The C library and the loader.
    r"_start|_*libc_start_(main|call_main)(_impl|_stage2)?(@.*)?|start_thread|_*(GI_)?_*clone[23]?|thread_start",
    r"_dl_[a-z_]+|call_init(\.part\.\d+)?|_init|__do_global_ctors_aux",
    // C++: threads, std::function, std::bind and std::invoke.
    r"execute_native_thread_routine(_compat)?|std::thread::(_State_impl|_Invoker|_Impl)<.*",
    r"std::(__\w+::)?_*(invoke|apply)[a-z_0-9]*(<.*>)?",
    r"std::(__\w+::)?(_Function_(handler|base)|function|_Bind(_front|_result)?|__function::.*|__thread_proxy|_*packaged_task.*|__future_base::.*|_Task_state.*|_*async.*_state.*)(<.*|::.*)?",
    r"boost::(_bi|bind|function\w*|detail::(function|thread_data|function::).*|\(anonymous namespace\)::thread_proxy)(::.*|<.*)?|thread_proxy",
    // Rust.
    r"std::rt::.*|std::sys::(backtrace|sys_common::backtrace)::__rust_(begin|end)_short_backtrace(<.*>)?|std::sys_common::backtrace::.*",
    r"std::panic(king)?::.*|__rust_try|<?std::sys::.*thread_start|std::thread::(lifecycle|spawnhook|scoped|builder|Builder)?(::)?.*spawn.*",
    r"<?core::panic::unwind_safe::AssertUnwindSafe<.*",
    r"<?core::ops::function::(impls::.*|Fn(Once|Mut)?(<.*>)?>?::call(_once|_mut)?.*)",
    r"<alloc::boxed::Box<.*> as core::ops::function::.*|<&?.* as core::ops::function::Fn.*",
    // Tokio, async-std, rayon: what runs tasks.
    r"<?tokio::(runtime|task|macros|loom|park|coop|util)::.*|<?rayon_core::(registry|job|thread_pool|unwind|latch|join|spawn|scope)::.*",
    r"<?(core::future|futures_(core|util|task|executor))::.*(poll|run)[a-z_]*(<.*>)?|<?core::pin::Pin<.*",
    // Go.
    r"runtime\.(goexit|mcall|mstart[0-9]?|schedule|park_m|goschedImpl|main|rt0_go|systemstack|morestack|asmcgocall|cgocall|findRunnable|gcBgMarkWorker|bgsweep|bgscavenge|sysmon|gopark|goparkunlock)(\.abi0|\..*)?",
    r"runtime\.(goexit[01]|gosched_m|gopreempt_m|preemptPark|exitsyscall\w*|(start|stop|gcstop)m|(start|stop)lockedm|mPark|templateThread)(\.abi0|\..*)?",
    r"runtime\.(stealWork|runq(steal|grab)|checkTimers|netpoll(Break)?|handoffp|retake|wakep|resetspinning|execute|usleep|osyield)(\.abi0|\..*)?",
    r"runtime\.(futex(sleep|wakeup)?|note(sleep|wakeup|clear|tsleepg?|tsleep_internal))(\.abi0|\..*)?",
];

/// Methods of Java that start threads, run tasks of executors, and call by reflection or through
/// generated code.
const JAVA_RUNTIME: &[&str] = &[
    r"java\.lang\.(Thread|VirtualThread|ThreadBuilders)(\$\w+)?\.(run|runWith|runContinuation|start)",
    r"java\.lang\.VirtualThread(\$\w+)*\..*|jdk\.internal\.(vm\..*|misc\.InnocuousThread\.run)",
    r"java\.util\.concurrent\.(ThreadPoolExecutor(\$Worker)?\.run(Worker)?|FutureTask\.run(AndReset)?|Executors\$\w+\.(call|run))",
    r"java\.util\.concurrent\.(ScheduledThreadPoolExecutor\$\w+\.run(Periodic)?|ForkJoin\w+(\$\w+)*\.(run|runWorker|scan|topLevelExec|doExec|exec|helpAsyncBlocker|runTask))",
    r"java\.lang\.(invoke|reflect)\..*|(jdk\.internal|sun)\.reflect\..*",
    r".*\$\$(FastClass|Lambda)[^.]*\..*|.*\.access\$\d+",
    r"org\.apache\.tomcat\.util\.threads\.(TaskThread\$WrappingRunnable\.run|ThreadPoolExecutor(\$Worker)?\.run(Worker)?)",
    r"io\.netty\.util\.(concurrent\.FastThreadLocalRunnable|internal\.ThreadExecutorMap\$\d+)\.run",
];

/// Methods of classes that libraries generate at run time: they stand between a caller and the
/// class that the user wrote.
const JAVA_PROXIES: &[&str] = &[
    r".*\$\$(SpringCGLIB|EnhancerBy\w*)[^.]*\..*",
    r".*\$(HibernateProxy|HibernateBasicProxy|ByteBuddy|MockitoMock)\b[^.]*\..*|.*_\$\$_[^.]*\..*",
    r"(.*\.)?\$Proxy\d*\..*",
];

/// Calls that block, beyond those of the idle lists.
const WAITS: &[&str] = &[
    r"_*(GI_)?_*pthread_(mutex_(timed|clock)?lock(_full)?|rwlock_(timed|clock)?(rd|wr)lock(_slow|_full\w*)?|spin_lock|barrier_wait|(timed|clock|try)?join(_np|_ex)?)(64)?",
    r"_*(lll_lock_wait(_private)?|lll_(timed)?wait_tid|pthread_clockjoin_ex|sem_wait_slow)",
    r"_*(GI_)?_*(libc_)?(usleep|sleep|thrd_sleep|nanosleep_nocancel|clock_nanosleep_\w+|pause|sigsuspend|sigwait(info)?|sigtimedwait)",
    r"java\.lang\.Thread\.(sleep[0-9]?|sleepNanos0?|beforeSleep|join)|java\.lang\.Object\.wait0?",
    r"java\.util\.concurrent\.locks\.(LockSupport\.park\w*|AbstractQueued(Long)?Synchronizer(\$\w+)?\..*)",
    r"java\.util\.concurrent\.ForkJoinPool\.(managedBlock|unmanagedBlock|compensatedBlock)|.*\$ConditionNode\.block",
];

/// Source files of toolchains and of packages that others wrote, as debug information names them.
const LIBRARY_FILES: &[&str] = &[
    r"^/rustc/",
    r"/\.cargo/(registry|git)/",
    r"/lib/rustlib/",
    r"^(/usr/(local/)?|.*/)include/(c\+\+|boost|x86_64-linux-gnu|bits)/",
    r"^/usr/(local/)?include/",
    r"/(go|golang|go-?\d[\d.]*)/src/(runtime|internal|net|os|sync|syscall|time|fmt|io|bufio|bytes|strings|strconv|sort|encoding|crypto|database|reflect|context|math|regexp|compress|container|errors|log|path|text|html|hash|slices|maps|iter|unicode|vendor)/",
    r"/pkg/mod/",
    r"/(site|dist)-packages/",
    r"/(lib|lib64)/python\d[\d.]*[a-z]*/",
    r"/python\d+\.zip/",
    r"^<frozen ",
    r"(^|/)node_modules/",
    r"^node:",
    r"(^|/)(vendor|third[_-]?party|3rdparty)/",
];

/// Outermost namespaces and crates of others' code.
const LIBRARY_NAMESPACES: &[&str] = &[
    "std",
    "core",
    "alloc",
    "__gnu_cxx",
    "__cxxabiv1",
    "__rustc",
    "boost",
    "absl",
    "hashbrown",
    "tokio",
    "hyper",
    "mio",
    "rayon",
    "rayon_core",
    "parking_lot",
    "parking_lot_core",
    "crossbeam_channel",
    "crossbeam_deque",
    "crossbeam_epoch",
    "crossbeam_utils",
    "futures_core",
    "futures_util",
];

static LISTS: LazyLock<[Regex; 5]> = LazyLock::new(|| {
    let whole = |list: &[&str]| format!("^(?:{})$", list.join("|"));
    let library_files = LIBRARY_FILES.join("|");
    [whole(NATIVE_RUNTIME), whole(JAVA_RUNTIME), whole(JAVA_PROXIES), whole(WAITS), library_files]
        .map(|list| Regex::new(&list).expect("the shipped lists are regular expressions"))
});

/// Returns the role of a frame by the evidence alone; the user may have corrected it.
pub(in crate::model) fn role(location: &Location, origin: Origin) -> Role {
    role_by_name(location).unwrap_or_else(|| role_by_place(location, origin))
}

/// Returns the role that function, module and kind decide, whatever the place; `None` if they do
/// not.
pub(super) fn role_by_name(location: &Location) -> Option<Role> {
    let [native_runtime, java_runtime, java_proxies, waits, _] = &*LISTS;
    let name = &*location.function;
    if let Some(role) = redacted::code_role(name) {
        return Some(role);
    }
    if safepoint::is_marker(location) {
        return Some(Role::Marker);
    }
    if monitor::is_frame(location) || monitor::is_enter(location) {
        return Some(Role::Wait);
    }
    let is_wait = || waits.is_match(name) || is_wait(location);
    match location.kind {
        FrameKind::Marker | FrameKind::Thread => Some(Role::Marker),
        FrameKind::Kernel => Some(Role::Kernel),
        FrameKind::Java if is_wait() => Some(Role::Wait),
        FrameKind::Java if java_runtime.is_match(name) => Some(Role::Runtime),
        FrameKind::Java if java_proxies.is_match(name) => Some(Role::Library),
        FrameKind::Java => java_packages::is_platform(name).then_some(Role::Library),
        // Stubs and adapters of HotSpot; what other compilers made for themselves.
        FrameKind::Jit if &*location.module == "[jvm]" || is_builtin(name) => Some(Role::Runtime),
        FrameKind::Python => python::role_by_name(location),
        FrameKind::Native | FrameKind::Jit => match () {
            () if native_runtime.is_match(name) => Some(Role::Runtime),
            () if is_wait() => Some(Role::Wait),
            () => python::role_by_name(location).or_else(|| node::role_by_name(location)),
        },
    }
}

/// Returns the role of a frame whose name alone does not decide.
pub(super) fn role_by_place(location: &Location, origin: Origin) -> Role {
    let [.., library_files] = &*LISTS;
    let name = &*location.function;
    let is_java = location.kind == FrameKind::Java;
    // A Go program knows its modules, wherever their sources lie.
    let file = location.file.as_deref();
    let is_known = is_java || origin != Origin::Unknown && go_functions::is_go(name, file);
    if !is_known && file.is_some_and(|file| library_files.is_match(file)) {
        return Role::Library;
    }
    match (origin, segments(name).as_slice()) {
        (Origin::Library, _) => Role::Library,
        (Origin::Runtime, _) => Role::Runtime,
        (Origin::App, _) if is_java => Role::App,
        (Origin::Unknown, _) if is_java => match java_packages::is_library(name) {
            true => Role::Library,
            false => Role::App,
        },
        (_, [first, _, ..]) if LIBRARY_NAMESPACES.contains(first) => Role::Library,
        // In a chroot the system's directories have other paths.
        (Origin::Unknown | Origin::App, _) if is_system_module(&location.module) => Role::Library,
        _ => Role::App,
    }
}

/// Returns whether the idle lists call the frame a wait, or part of one. Their rule about all of
/// the C library is not about waits alone.
fn is_wait(location: &Location) -> bool {
    let name = &location.function;
    matches!(idle_marks::mark_of_name(name, location.kind), Mark::Plumbing | Mark::Waits)
}

/// Returns whether code of V8 is no function of a program: `Builtin:ArrayMap`, `Stub:CEntry`.
fn is_builtin(name: &str) -> bool {
    let kinds = ["Builtin:", "Builtins_", "BytecodeHandler:", "Stub:", "RegExp:", "Handler:"];
    begins_with_any(name, &kinds)
}

fn begins_with_any(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether a shared object of this name comes with the system, whatever its path: that is
/// not known in profiles of other tools and older files, and another one in a chroot.
pub(super) fn is_system_module(module: &str) -> bool {
    const SYSTEM: &[&str] = &["libc", "libpthread", "libm", "ld", "libstdc++", "libgcc_s", "librt"];
    let base = module.rsplit('/').next().unwrap_or(module);
    let name = base.split_once(".so").map(|(name, _)| name);
    let name = name.map(|name| name.split(['-', '.']).next().unwrap_or(name));
    module == "[vdso]" || name.is_some_and(|name| SYSTEM.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(name: &str, module: &str, file: &str, origin: Origin) -> Role {
        let location = Location {
            module: module.into(),
            file: (!file.is_empty()).then(|| file.into()),
            ..Location::named(name, FrameKind::Native)
        };
        role(&location, origin)
    }

    fn java(name: &str, origin: Origin) -> Role {
        role(&Location::named(name, FrameKind::Java), origin)
    }

    #[test]
    fn the_start_of_threads_and_calls_of_closures_are_the_runtimes() {
        for name in [
            "_start",
            "__libc_start_call_main",
            "start_thread",
            "clone3",
            "__GI___clone3",
            "std::thread::_State_impl<std::thread::_Invoker<std::tuple<shop::run()::<lambda()> > > >::_M_run",
            "std::thread::_Invoker<std::tuple<main::{lambda()#1}> >::operator()",
            "execute_native_thread_routine",
            "std::__invoke_impl<void, main::{lambda()#1}>",
            "std::_Function_handler<void (), svc::start::{lambda()#1}>::_M_invoke",
            "std::function<void ()>::operator()",
            "std::rt::lang_start_internal",
            "std::rt::lang_start<()>::{{closure}}",
            "std::sys::backtrace::__rust_begin_short_backtrace<shop::main::{closure#0}, ()>",
            "std::panicking::try<(), core::panic::unwind_safe::AssertUnwindSafe<F>>",
            "std::panicking::catch_unwind::do_call",
            "std::thread::Builder::spawn_unchecked_::{{closure}}",
            "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            "<alloc::boxed::Box<F,A> as core::ops::function::FnOnce<Args>>::call_once",
            "std::sys::pal::unix::thread::Thread::new::thread_start",
            "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
            "runtime.goexit.abi0",
            "<std::sys::thread::unix::Thread>::new::thread_start",
            "<alloc::boxed::Box<dyn core::ops::function::FnOnce<(), Output = ()> + core::marker::Send> as core::ops::function::FnOnce<()>>::call_once",
            "std::thread::lifecycle::spawn_unchecked::{{closure}}::{{closure}}",
            "std::__invoke_r<void, svc::pool(std::string const&, int)::{lambda()#1}&, >",
            "runtime.mcall",
            "runtime.goexit0",
            "runtime.exitsyscallNoP",
            "runtime.usleep",
            "runtime.stopm",
        ] {
            assert_eq!(native(name, "shop", "", Origin::App), Role::Runtime, "{name}");
        }
        let go = "/usr/local/go/src/runtime/malloc.go";
        assert_eq!(native("runtime.mallocgc", "shop", go, Origin::Unknown), Role::Library);
        assert_eq!(native("main.usleep", "shop", "", Origin::App), Role::App);
    }

    #[test]
    fn what_blocks_is_a_wait() {
        for name in [
            "pthread_cond_wait",
            "__futex_abstimed_wait_common64",
            "std::condition_variable::wait",
            "__lll_lock_wait",
            "___pthread_mutex_lock",
            "pthread_rwlock_wrlock",
            "epoll_wait",
            "clock_nanosleep",
            "std::sys::sync::condvar::futex::Condvar::wait",
            "std::thread::park",
            "parking_lot::condvar::Condvar::wait_until_internal",
        ] {
            assert_eq!(native(name, "shop", "", Origin::App), Role::Wait, "{name}");
        }
        for name in [
            "java.lang.Object.wait0",
            "java.lang.Thread.sleep0",
            "java.util.concurrent.locks.LockSupport.parkNanos",
            "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await",
        ] {
            assert_eq!(java(name, Origin::Unknown), Role::Wait, "{name}");
        }
    }

    #[test]
    fn the_source_file_is_better_evidence_than_the_place() {
        for (file, role) in [
            (
                "/rustc/4eb161250e340c8f48f66e2b929ef4a5bed7c181/library/core/src/slice/mod.rs",
                Role::Library,
            ),
            ("/root/.cargo/registry/src/index/serde-1.0/src/de.rs", Role::Library),
            ("/usr/include/c++/12/bits/stl_vector.h", Role::Library),
            ("third_party/zlib/inflate.c", Role::Library),
            ("/home/ann/shop/src/cart.rs", Role::App),
            ("/build/include/shop/cart.h", Role::App),
            ("src/vendors/list.c", Role::App),
            ("", Role::App),
        ] {
            assert_eq!(native("work", "shop", file, Origin::App), role, "{file}");
        }
    }

    #[test]
    fn go_programs_know_their_modules() {
        for (file, unknown) in [
            ("/usr/local/go/src/net/http/server.go", Role::Library),
            ("/root/go/pkg/mod/github.com/x/y@v1.2.3/y.go", Role::Library),
            ("/home/ann/go/src/shop/cart.go", Role::App),
        ] {
            for (origin, role) in [
                (Origin::Unknown, unknown),
                (Origin::App, Role::App),
                (Origin::Library, Role::Library),
                (Origin::Runtime, Role::Runtime),
            ] {
                assert_eq!(native("main.work", "shop", file, origin), role, "{file} {origin:?}");
            }
        }
    }

    #[test]
    fn then_the_place_and_then_the_name_decide() {
        for (name, module, origin, role) in [
            ("processCommand", "redis-server", Origin::App, Role::App),
            ("std::vector<int>::push_back", "shop", Origin::App, Role::Library),
            (
                "<core::slice::iter::Iter<T> as core::iter::Iterator>::next",
                "shop",
                Origin::App,
                Role::Library,
            ),
            ("<shop::Cart as core::fmt::Display>::fmt", "shop", Origin::App, Role::App),
            ("shop!fn_1a40", "shop", Origin::App, Role::App),
            ("main", "shop", Origin::App, Role::App),
            ("main", "java", Origin::Runtime, Role::Runtime),
            ("SSL_read", "libssl.so.3", Origin::Library, Role::Library),
            ("shop::Cart::add", "libcart.so", Origin::App, Role::App),
            ("GCTaskThread::run", "libjvm.so", Origin::Runtime, Role::Runtime),
            ("malloc", "libc.so.6", Origin::Library, Role::Library),
            ("libc.so.6!fn_9a700", "libc.so.6", Origin::App, Role::Library),
            // Profiles of other tools and older files name no place.
            ("malloc", "/usr/lib/libc.so.6", Origin::Unknown, Role::Library),
            ("malloc", "libc-2.31.so", Origin::Unknown, Role::Library),
            ("add", "libcurses-of-shop.so", Origin::Unknown, Role::App),
            ("std_like", "shop", Origin::Unknown, Role::App),
        ] {
            assert_eq!(native(name, module, "", origin), role, "{name} {module}");
        }
    }

    #[test]
    fn java_classes_belong_to_their_jar() {
        for (name, origin, role) in [
            ("com.shop.Cart.add", Origin::Unknown, Role::App),
            ("Main.main", Origin::Unknown, Role::App),
            ("java.util.regex.Pattern.match", Origin::App, Role::Library),
            ("java.lang.Thread.run", Origin::Unknown, Role::Runtime),
            ("java.util.concurrent.ThreadPoolExecutor$Worker.run", Origin::Unknown, Role::Runtime),
            (
                "jdk.internal.reflect.DirectMethodHandleAccessor.invoke",
                Origin::Unknown,
                Role::Runtime,
            ),
            (
                "org.springframework.web.servlet.DispatcherServlet.doDispatch",
                Origin::Unknown,
                Role::Library,
            ),
            ("org.apache.kafka.broker.Loop.run", Origin::App, Role::App),
            ("com.acme.util.Json.parse", Origin::Library, Role::Library),
            // Generated for a class, beside that class or elsewhere.
            ("com.shop.Orders$$SpringCGLIB.export", Origin::App, Role::Library),
            ("com.shop.Orders$$EnhancerBySpringCGLIB$$1a2b.export", Origin::App, Role::Library),
            ("com.shop.Order$HibernateProxy.total", Origin::Unknown, Role::Library),
            ("jdk.proxy2.$Proxy71.findAll", Origin::Unknown, Role::Library),
            ("$Proxy12.findAll", Origin::Unknown, Role::Library),
            ("com.shop.Orders$Proxying.export", Origin::App, Role::App),
            ("organic.Shop.run", Origin::Unknown, Role::App),
        ] {
            assert_eq!(java(name, origin), role, "{name}");
        }
    }

    #[test]
    fn what_is_no_code_has_its_own_role() {
        let of = |kind, name: &str| role(&Location::named(name, kind), Origin::App);
        assert_eq!(of(FrameKind::Kernel, "vfs_read"), Role::Kernel);
        assert_eq!(of(FrameKind::Marker, "[torn]"), Role::Marker);
        assert_eq!(of(FrameKind::Thread, "worker"), Role::Marker);
    }
}
