//! What the names of Python's functions and of CPython's own C functions say: whose code it is,
//! what waits for work, and what only leads from one Python function to the next.
//!
//! CPython before 3.11 does not say a function's class: `threading.Thread.run` is `threading.run`
//! there. So each pattern leaves out the class.

use std::sync::LazyLock;

use regex::Regex;

use crate::model::facts::redacted;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::role::Role;

/// Python functions that start threads and processes, run programs, and run tasks of loops and
/// pools.
const RUNTIME: &[&str] = &[
    r"threading\.(Thread\.)?(_bootstrap(_inner)?|run)",
    r"multiprocessing\.process\.(BaseProcess\.)?(_bootstrap|run)",
    r"multiprocessing\.(spawn\.(spawn_main|_main)|forkserver\.(main|_serve_one)|popen_\w+\..*)",
    r"runpy\..*|importlib\._bootstrap(_external)?\..*",
    r"concurrent\.futures\.thread\.(_worker|(_WorkItem\.)?run|(WorkerContext\.)?run)",
    r"concurrent\.futures\.process\.(_process_worker|_process_chunk)|multiprocessing\.pool\.(worker|mapstar|starmapstar)",
    r"asyncio\.runners\.(run|(Runner\.)?(run|_lazy_init))",
    r"asyncio\.(base_events|unix_events|windows_events)\.(\w+\.)?(run_until_complete|run_forever|_run_once)",
    r"asyncio\.events\.(Handle\.)?_run",
];

/// Python functions of the language's library that wait, and C functions of CPython that do.
const WAITS: &[&str] = &[
    r"threading\.((Condition|Event|Semaphore|BoundedSemaphore|Barrier|_?RLock|Lock)\.)?(wait|wait_for|_wait|acquire|__enter__)",
    r"threading\.(Thread\.)?(join|_wait_for_tstate_lock|_shutdown)|threading\._(shutdown|join)",
    r"queue\.((Lifo|Priority|_Py)?(Simple)?Queue\.)?(get|put|join)",
    r"concurrent\.futures\._base\.(Future\.(result|exception)|result|exception|wait|as_completed)",
    r"multiprocessing\.(queues\.((Simple|Joinable)?Queue\.)?get|synchronize\.(\w+\.)?(__enter__|acquire|wait|wait_for))",
    r"multiprocessing\.connection\.(\w+\.)?(_?recv(_bytes)?|_recv|wait|_?poll)",
    r"multiprocessing\.(process\.(BaseProcess\.)?join|popen_\w+\.(Popen\.)?(wait|poll))",
    r"multiprocessing\.pool\.((\w*Result|\w*Iterator)\.)?(get|wait|next)",
    r"subprocess\.(Popen\.)?(_?wait|_try_wait)",
    r"selectors\.(\w+\.)?select|asyncio\.(\w+\.)*_poll",
];

/// The same of CPython's C functions. Those without a name are known by their file.
const NATIVE_WAITS: &[&str] = &[
    r"PyThread_acquire_lock(_timed(_with_retries)?)?|_?PyMutex_Lock(Timed)?|_PyRecursiveMutex_Lock(Timed)?",
    r"_PyParkingLot_Park|_PySemaphore_(Platform)?Wait|_?PyEvent_Wait(Timed)?|_PyRWMutex_\w*Lock",
    r"(_thread_)?(lock|rlock|RLock)_(PyThread_)?acquire(_lock)?(_impl)?|acquire_timed|rlock_acquire(_\w+)?|_thread_lock_(acquire|__enter__)\w*",
    r"ThreadHandle_join|PyThread_join_thread|(_multiprocessing_SemLock|semlock)_acquire(_\w+)?",
    r"(_queue_SimpleQueue|simplequeue)_get(_\w+)?",
    r"time_sleep|pysleep|select_(select|poll_poll|epoll_poll)(_impl)?|select_epoll___\w+|internal_select(_ex)?",
];

/// C functions of CPython between Python functions, and around all of them: they call, evaluate,
/// start the interpreter, and take its lock.
const GLUE: &[&str] = &[
    r"_?PyEval_\w+|_PyEval_\w+|eval_frame_handle_pending|take_gil|drop_gil",
    r"_?PyObject_\w*(Vectorc|C|c)all\w*|_PyObject_MakeTpCall|_?PyVectorcall_\w+|_PyVectorcall_\w+",
    r"_PyFunction_\w*[Cc]all\w*|_PyFunction_\w*|function_code_fastcall|_?PyCFunction_\w*[Cc]all\w*|_PyMethodDef_RawFastCall\w*|_PyMethodDescr_\w*[Cc]all\w*",
    r"(cfunction|method|classmethod|methoddescr|wrapperdescr|wrapper|type|partial|bounded_lru_cache|object|property|instancemethod|staticmethod|cm|sm)_(vectorcall|call|vacall|descr_get)(_\w+)?",
    r"slot_(tp|nb|sq|mp|am|bf)_\w+|wrap_\w+|vectorcall_(method|unbound|maybe|method_\w+)|call_(unbound|attribute|method|maybe|function|trampoline)\w*|_?call_function\w*",
    r"do_call_core|fast_function|object_vacall|builtin_(exec|eval|__build_class__)(_impl)?|context_run|_?task_step\w*|TaskStepMethWrapper_call|task_wakeup",
    r"gen_(send_ex2?|iternext|send|throw|close)\w*|_?PyGen_\w+|_gen_throw|coro_(wrapper_)?(send|throw)|calliter_iternext|async_gen_\w+|PyIter_Send",
    r"run_(mod|eval_code_obj|pyc_file)|_?PyRun_\w+|pyrun_\w+|pymain_\w+|Py_(RunMain|BytesMain|Main)|_Py_\w*[Mm]ain\w*",
    r"_?PyImport_\w+|import_(find_and_load|name|run_frozen)\w*|builtin___import__\w*",
    r"thread_run|t_bootstrap|pythread_wrapper|_?Py_(Check\w+|LeaveRecursiveCall|EnterRecursiveCall)",
];

/// Names that only CPython's own C functions have, also in a program that contains it.
const OF_CPYTHON: &str = r"^_?Py(Object|Eval|Function|CFunction|Vectorcall|Run|Import|Thread|ThreadState|Interpreter\w*|Runtime|Gen|Coro|AsyncGen|Dict|List|Tuple|Set|Unicode|Bytes|ByteArray|Long|Float|Bool|Number|Sequence|Mapping|Iter|Type|Method|MethodDef|Code|Frame|Cell|Module|Err|Mem|GILState|Arg|Stack|Buffer|Capsule|Weakref|Context|Marshal|Slice|OS|GC|Mutex|ParkingLot|Semaphore|Event)_[A-Za-z]\w*$|^Py_(RunMain|BytesMain|Main|Finalize\w*|Initialize\w*)$";

/// C functions that are modules of the standard library, or built-in functions with work of their
/// own, where they are in the interpreter's file: `list.sort`, `re`, `json`.
const BUILT_IN: &str = r"(?x)^(
    list_(sort|extend|index|count|remove|reverse|contains)\w* | binarysort | merge_(lo|hi|at|collapse)
    | builtin_(sorted|sum|min|max|any|all|map|filter|hash|print|compile|open|input|divmod|pow|repr|format|iter|next)(_impl)?
    | (unicode|bytes|bytearray|stringlib)_(join|split\w*|rsplit\w*|replace|find|rfind|index|count|encode|decode|format|translate|strip|lower|upper|casefold|title|partition)\w*
    | (dict|set|frozenset)_(update|copy|fromkeys|difference|intersection|union|issubset)\w*
    | gc_collect\w*
    | _?(sre|pattern|match|io|iobase|bufferedio|buffered(reader|writer|rwpair)?|fileio|textiowrapper|stringio|bytesio|os|posix|time|json|py_(scan|encode)string\w*
        |hashlib|sha[0-9]\w*|md5|blake2[bs]|sqlite|pysqlite|zlib|bz2|lzma|pickle|csv|struct|s_pack|s_unpack|socket|sock|ssl|select
        |math|random|heapq|bisect|itertools|functools|collections|deque|datetime|decimal|elementtree
        |codecs|binascii|array|mmap|queue|ctypes|marshal|unicodedata|statistics|re|ast|tokenize|expat|pyexpat)_\w+
    | EVP_\w+ | (scanner|encoder)_(call|listencode)\w* | _?(parse|scan)_(object|array|once)_(unicode|str)\w* | sre_\w+ | _io__?\w+
    )$";

/// Python functions of the standard library that read what clients and parents tell them. A request
/// that they then handle is in functions below.
const READS_ORDERS: &[&str] = &[
    r"socketserver\.(BaseServer\.)?serve_forever|http\.server\.(BaseHTTPRequestHandler\.)?handle_one_request",
    r"multiprocessing\.pool\.(worker|(Pool\.)?_handle_(tasks|results|workers))|concurrent\.futures\.process\._process_worker",
    // Celery.
    r"billiard\.pool\.(Worker\.)?workloop",
];

/// Python functions between those and the system call, and below loops.
const PLUMBING: &[&str] = &[
    r"selectors\.(\w+\.)?select|socket\.(SocketIO\.)?(readinto|recv_into)|socket\.(socket\.)?(accept|recv|recv_into)|ssl\.(SSLSocket\.)?(recv_into|read|recv)",
    r"threading\.((Condition|Event|_RLock)\.)?(wait|wait_for)|queue\.((Lifo|Priority|_Py)?(Simple)?Queue\.)?get",
    r"multiprocessing\.(queues\.((Simple|Joinable)?Queue\.)?get|synchronize\.(\w+\.)?(__enter__|acquire))",
    r"(multiprocessing|billiard)\.connection\.(\w+\.)?(_?recv(_bytes)?|_?poll)",
    r"billiard\.(pool\.(Worker\.\w+\.<locals>\.)?(receive|_recv)|queues\.(_SimpleQueue\.)?get(_payload)?)",
];

/// Waits for the result of a job: in a thread's own first function they are no wait for work.
const RESULTS: &[&str] = &[
    r"threading\.(Thread\.)?(join|_wait_for_tstate_lock)|concurrent\.futures\._base\..*|concurrent\.futures\.(thread\.|process\.)?(\w+\.)?(shutdown|__exit__)",
    r"multiprocessing\.(process\.(BaseProcess\.)?join|popen_\w+\.(Popen\.)?(wait|poll)|pool\.((\w*Result|\w*Iterator|Pool)\.)?(get|wait|next|join))",
    r"queue\.(\w+\.)?join",
];

/// Standard functions that are a job wherever they are: they wait for a child or for other threads
/// of a phase, or they run a task.
const JOBS: &[&str] = &[
    r"subprocess\..*|threading\.(Barrier\.)?_wait|threading\.Barrier\..*|queue\.(\w+\.)?put",
    r"concurrent\.futures\.thread\.((_WorkItem|WorkerContext)\.)?run|concurrent\.futures\.process\._process_chunk",
    r"asyncio\.events\.(Handle\.)?_run|multiprocessing\.pool\.(mapstar|starmapstar)",
    r"socketserver\.(\w+\.)?(process_request(_thread)?|finish_request)",
];

/// Standard functions in which a thread waits for work, for an event or for its time.
const AWAITS: &[&str] = &[
    r"threading\.((Condition|Event|Semaphore|BoundedSemaphore|Timer)\.)?(wait|wait_for|acquire|run|_wait)|threading\._shutdown",
    r"queue\.((Lifo|Priority|_Py)?(Simple)?Queue\.)?get|multiprocessing\.queues\.((Simple|Joinable)?Queue\.)?get",
];

/// Run the next callback of an event loop, or the next step of a task: asyncio, trio.
const CALLBACKS: &str = r"^(asyncio\.events\.(Handle\.)?_run|trio\._core\._run\.unrolled_run)$";

/// Run a turn of an event loop: they wait for events, and run callbacks.
const LOOPS: &str = r"^(asyncio\.base_events\.(BaseEventLoop\.)?|nest_asyncio\.(_patch_loop\.<locals>\.)?)_run_once$";

/// As [`CALLBACKS`], of uvloop.
const NATIVE_CALLBACKS: &str = r"^__pyx_f_6uvloop_4loop_(6|11Timer)Handle__run$";

/// Stand for the C code of these methods.
const ACQUIRES: &str = r"^threading\.R?Lock\.acquire$";

const STARTS: &str = r"^(threading\.(Thread\.)?(_bootstrap(_inner)?|run)|multiprocessing\.process\.(BaseProcess\.)?(_bootstrap|run)|multiprocessing\.spawn\.(spawn_main|_main))$";

/// The interpreter's own file: `libpython3.12.so.1.0`, `python3.11`.
const INTERPRETER: &str = r"^(libpython[\d.]*[dmtu]*\.so[\d.]*|python(\d(\.\d+)?[dmtu]*)?(-dbg)?)$";

/// Extension modules in whose functions threads wait.
const WAITING_MODULES: &str =
    r"^_?(socket|select|queue|ssl|multiprocessing|io)\.(cpython-|abi3|so)";

/// Files of the standard library.
const STANDARD_FILES: &str = r"/(lib|lib64)/python\d[\d.]*[a-z]*/|/python\d+\.zip/|^<frozen ";

struct Lists {
    runtime: Regex,
    waits: Regex,
    native_waits: Regex,
    glue: Regex,
    of_cpython: Regex,
    built_in: Regex,
    reads_orders: Regex,
    plumbing: Regex,
    results: Regex,
    jobs: Regex,
    awaits: Regex,
    callbacks: Regex,
    loops: Regex,
    native_callbacks: Regex,
    acquires: Regex,
    starts: Regex,
    interpreter: Regex,
    waiting_modules: Regex,
    standard_files: Regex,
}

static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    let regex = |text: &str| Regex::new(text).expect("the shipped lists are regular expressions");
    let whole = |list: &[&str]| regex(&format!("^(?:{})$", list.join("|")));
    Lists {
        runtime: whole(RUNTIME),
        waits: whole(WAITS),
        native_waits: whole(NATIVE_WAITS),
        glue: whole(GLUE),
        of_cpython: regex(OF_CPYTHON),
        built_in: regex(BUILT_IN),
        reads_orders: whole(READS_ORDERS),
        plumbing: whole(PLUMBING),
        results: whole(RESULTS),
        jobs: whole(JOBS),
        awaits: whole(AWAITS),
        callbacks: regex(CALLBACKS),
        loops: regex(LOOPS),
        native_callbacks: regex(NATIVE_CALLBACKS),
        acquires: regex(ACQUIRES),
        starts: regex(STARTS),
        interpreter: regex(INTERPRETER),
        waiting_modules: regex(WAITING_MODULES),
        standard_files: regex(STANDARD_FILES),
    }
});

/// Returns the role that the name alone gives to a Python function, or to a C function of CPython.
pub(super) fn role_by_name(location: &Location) -> Option<Role> {
    let name = &*location.function;
    match location.kind {
        FrameKind::Python if is_of_user(location) => None,
        FrameKind::Python if LISTS.waits.is_match(name) => Some(Role::Wait),
        FrameKind::Python if LISTS.runtime.is_match(name) => Some(Role::Runtime),
        FrameKind::Native if is_native_wait(location) => Some(Role::Wait),
        FrameKind::Native if LISTS.glue.is_match(plain(name)) && !is_common(location) => {
            Some(Role::Runtime)
        }
        FrameKind::Native if is_interpreter(&location.module) => {
            let is_library = LISTS.built_in.is_match(plain(name));
            Some(if is_library { Role::Library } else { Role::Runtime })
        }
        FrameKind::Native if LISTS.of_cpython.is_match(plain(name)) => Some(Role::Runtime),
        _ => None,
    }
}

/// Returns whether this is a C function of CPython that only leads to Python functions, starts
/// them, or has no name.
pub(in crate::model) fn is_glue(location: &Location) -> bool {
    let name = &*location.function;
    if let Some(mut words) = redacted::of(name) {
        return words.any(|word| word == redacted::GLUE);
    }
    let is_in_interpreter = || is_interpreter(&location.module);
    location.kind == FrameKind::Native
        && match name {
            "main" | "_start" => is_in_interpreter(),
            name if LISTS.glue.is_match(plain(name)) => !is_common(location),
            name => is_unnamed(name) && is_in_interpreter(),
        }
}

/// Returns whether this is a C function of CPython that waits.
fn is_native_wait(location: &Location) -> bool {
    LISTS.native_waits.is_match(plain(&location.function))
        && (!is_common(location) || LISTS.waiting_modules.is_match(&location.module))
}

/// Returns whether a program that is not CPython may have a function of this name, too.
fn is_common(location: &Location) -> bool {
    let name = location.function.trim_start_matches('_');
    !name.starts_with("Py") && !is_interpreter(&location.module)
}

/// Returns whether the file of a Python function is neither the standard library's nor a package's:
/// a program may have a `queue.py` of its own.
fn is_of_user(location: &Location) -> bool {
    location.file.as_deref().is_some_and(|file| {
        file.contains('/') && !is_of_package(file) && !LISTS.standard_files.is_match(file)
    })
}

fn is_of_package(file: &str) -> bool {
    file.contains("/site-packages/") || file.contains("/dist-packages/")
}

/// Returns whether it is a function of Python's standard library.
pub(super) fn is_standard(location: &Location) -> bool {
    let is_file = |file: &str| !is_of_package(file) && LISTS.standard_files.is_match(file);
    location.kind == FrameKind::Python && location.file.as_deref().is_some_and(is_file)
}

/// What a frame is in a wait for work; see [`super::idle_marks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InWait {
    /// Reads what clients and parents ask for.
    Orders,
    Loop,
    Plumbing,
}

/// What a frame says about the place of those further in; see [`super::base_marks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Starts,
    Job,
    /// Waits for the result of a job.
    Joins,
    /// Waits for a condition, an event or a queue.
    Awaits,
    /// Acquires a lock: that of a condition or a queue, or one of the program.
    Acquires,
    /// C function of the standard library.
    NativeLibrary,
    /// Python function of the standard library.
    ScriptLibrary,
    Neutral,
}

/// Returns whether a function runs what an event loop has to do next: meanwhile nothing else that
/// the loop serves goes on.
pub(super) fn runs_callback(location: &Location) -> bool {
    match location.kind {
        FrameKind::Python => LISTS.callbacks.is_match(&location.function),
        FrameKind::Native => LISTS.native_callbacks.is_match(&location.function),
        _ => false,
    }
}

/// Returns whether a function runs a turn of an event loop.
pub(super) fn runs_loop(location: &Location) -> bool {
    location.kind == FrameKind::Python && LISTS.loops.is_match(&location.function)
}

/// Returns what a Python function or a C function of CPython is in a wait for work.
pub(super) fn in_wait(location: &Location) -> Option<InWait> {
    let name = &*location.function;
    match location.kind {
        FrameKind::Python if is_of_user(location) => None,
        FrameKind::Python if LISTS.reads_orders.is_match(name) => Some(InWait::Orders),
        FrameKind::Python if name == "concurrent.futures.thread._worker" => Some(InWait::Loop),
        FrameKind::Python if LISTS.plumbing.is_match(name) => Some(InWait::Plumbing),
        // What it calls is in frames of Python.
        FrameKind::Native
            if redacted::of(name).is_none()
                && (is_interpreter(&location.module)
                    || LISTS.waiting_modules.is_match(&location.module)
                    || is_native_wait(location)
                    || is_glue(location)) =>
        {
            Some(InWait::Plumbing)
        }
        _ => None,
    }
}

/// Returns what a Python function, or a C function of CPython that waits, says about the place of
/// frames below it; `None`: its name decides as that of a native function does.
pub(super) fn place(location: &Location, role: Role) -> Option<Place> {
    let name = &*location.function;
    match location.kind {
        FrameKind::Native if is_native_wait(location) => Some(match name {
            _ if name.contains("sleep") || name.contains("elect") => Place::Neutral,
            _ if name.contains("queue_get") || name.contains("Queue_get") => Place::Awaits,
            // A lock of the program, if it is not a queue's or a condition's.
            _ => Place::Acquires,
        }),
        FrameKind::Native
            if role == Role::Library
                && (is_interpreter(&location.module)
                    || LISTS.waiting_modules.is_match(&location.module)) =>
        {
            Some(Place::NativeLibrary)
        }
        FrameKind::Python => match role {
            Role::Marker | Role::Kernel => None,
            Role::App => None,
            _ if LISTS.starts.is_match(name) => Some(Place::Starts),
            _ if LISTS.jobs.is_match(name) => Some(Place::Job),
            _ if LISTS.results.is_match(name) => Some(Place::Joins),
            _ if LISTS.awaits.is_match(name) => Some(Place::Awaits),
            _ if LISTS.acquires.is_match(name) => Some(Place::Acquires),
            Role::Runtime | Role::Wait => Some(Place::Neutral),
            Role::Library if is_standard(location) => Some(Place::ScriptLibrary),
            Role::Library => None,
        },
        _ => None,
    }
}

/// Returns whether the file is CPython itself.
pub(in crate::model) fn is_interpreter(module: &str) -> bool {
    LISTS.interpreter.is_match(module.rsplit('/').next().unwrap_or(module))
}

/// Returns a C function's name without what compilers append to their own copies of it:
/// `_PyEval_EvalFrameDefault.cold` -> `_PyEval_EvalFrameDefault`.
fn plain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Returns whether the function has no name: `python3.11!fn_73ee0`.
fn is_unnamed(name: &str) -> bool {
    name.rsplit('!').next().is_some_and(|name| name.starts_with("fn_"))
}

#[cfg(test)]
mod tests;
