//! The workload's own measurements: calls, CPU time by the thread's own clock, and wall time, per
//! thread and function. A running function counts up to the moment of the request.
//!
//! ```json
//! {"schema":"sampletop-truth/1","pid":1,"elapsed_ms":0.0,"threads":[{"name":"mixed-1","tid":2,
//! "cpu_ms":0.0,
//!   "functions":[{"name":"method_100ms","calls":1,"cpu_ms":50.0,"wall_ms":100.0}]}]}
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clock;
use crate::clock::thread_cpu;

pub struct Truth {
    started: Instant,
    threads: Mutex<Vec<Arc<Mutex<Record>>>>,
}

/// One thread's measurements. Locked for some nanoseconds when a function is entered or left.
pub struct Record {
    name: String,
    /// 0 until the thread runs.
    tid: i32,
    functions: Vec<Function>,
    /// Index of the function it is in, the CPU clock and the moment of entry.
    inside: Option<(usize, u64, Instant)>,
}

struct Function {
    name: &'static str,
    calls: u64,
    cpu_ns: u64,
    wall: Duration,
}

/// A thread's handle on its own record.
pub struct Meter {
    record: Arc<Mutex<Record>>,
}

impl Default for Truth {
    fn default() -> Truth {
        Truth { started: Instant::now(), threads: Mutex::default() }
    }
}

impl Truth {
    pub fn thread(&self, name: &str) -> Arc<Mutex<Record>> {
        let record = Record { name: name.to_owned(), tid: 0, functions: Vec::new(), inside: None };
        let record = Arc::new(Mutex::new(record));
        lock(&self.threads).push(Arc::clone(&record));
        record
    }

    pub fn json(&self) -> Value {
        let threads: Vec<Value> =
            lock(&self.threads).iter().map(|record| lock(record).json()).collect();
        json!({
            "schema": "sampletop-truth/1",
            "pid": std::process::id(),
            "elapsed_ms": milliseconds(self.started.elapsed()),
            "threads": threads,
        })
    }
}

impl Record {
    fn json(&self) -> Value {
        let cpu_now = clock::cpu_of_thread(self.tid).unwrap_or(0);
        let functions: Vec<Value> = (self.functions.iter().enumerate())
            .map(|(at, function)| {
                let (mut cpu_ns, mut wall) = (function.cpu_ns, function.wall);
                if let Some((inside, cpu_then, since)) = self.inside
                    && inside == at
                {
                    cpu_ns += cpu_now.saturating_sub(cpu_then);
                    wall += since.elapsed();
                }
                json!({
                    "name": function.name,
                    "calls": function.calls,
                    "cpu_ms": milliseconds(Duration::from_nanos(cpu_ns)),
                    "wall_ms": milliseconds(wall),
                })
            })
            .collect();
        let cpu_ms = milliseconds(Duration::from_nanos(cpu_now));
        json!({ "name": self.name, "tid": self.tid, "cpu_ms": cpu_ms, "functions": functions })
    }
}

impl Meter {
    /// Starts measuring. Call it in the thread that is measured.
    pub fn start(record: Arc<Mutex<Record>>) -> Meter {
        lock(&record).tid = rustix::thread::gettid().as_raw_nonzero().get();
        Meter { record }
    }

    /// Enters a function: its first statement. Measured functions do not call each other.
    pub fn enter(&self, name: &'static str) {
        let mut record = lock(&self.record);
        let at = record.functions.iter().position(|f| f.name == name).unwrap_or_else(|| {
            record.functions.push(Function { name, calls: 0, cpu_ns: 0, wall: Duration::ZERO });
            record.functions.len() - 1
        });
        record.inside = Some((at, thread_cpu(), Instant::now()));
    }

    /// Leaves the function: its last statement.
    pub fn leave(&self) {
        let mut record = lock(&self.record);
        if let Some((at, cpu_then, since)) = record.inside.take() {
            let function = &mut record.functions[at];
            function.calls += 1;
            function.cpu_ns += thread_cpu() - cpu_then;
            function.wall += since.elapsed();
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
