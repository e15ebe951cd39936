//! redis-server under redis-benchmark, on every core.
//!
//! A server and its clients share one core, so that this core never sleeps: when the server waits,
//! a client runs. On separate cores they wait for each other, and a watcher gets the gaps for
//! nothing. The first server is watched; the operations of all of them count.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sampletop::clock;

use super::running::wait_until;
use super::targets::Reading;

/// The commands that clients send. Each has a process of clients.
const COMMANDS: [&str; 2] = ["get", "set"];
/// Clients of each command.
const CLIENTS: &str = "10";
/// More requests than any run takes.
const REQUESTS: &str = "2000000000";

/// A process that is killed when dropped.
struct Part(Child);

impl Part {
    fn start(command: &mut Command) -> Part {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Part(command.spawn().expect("redis starts"))
    }

    /// Returns its CPU time, ns.
    fn cpu(&self) -> f64 {
        clock::cpu_of_process(self.0.id()).expect("it runs") as f64
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Server {
    process: Part,
    socket: PathBuf,
}

pub struct Redis {
    /// Before the servers: they are killed first.
    clients: Vec<Part>,
    servers: Vec<Server>,
}

impl Redis {
    pub fn start(scratch: &Path) -> Redis {
        let ours = sched_getaffinity(None).expect("our cores");
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for core in (0..CpuSet::MAX_CPU).filter(|core| ours.is_set(*core)) {
            let mut one = CpuSet::new();
            one.set(core);
            // Children inherit it.
            sched_setaffinity(None, &one).expect("one of our cores");
            let server = Server::start(scratch, core);
            for command in COMMANDS {
                clients.push(Part::start(
                    Command::new("redis-benchmark")
                        .args(["-q", "-P", "1", "-c", CLIENTS, "-n", REQUESTS, "-t", command, "-s"])
                        .arg(&server.socket),
                ));
            }
            servers.push(server);
        }
        sched_setaffinity(None, &ours).expect("our cores");
        for server in &servers {
            let begin = server.operations();
            wait_until("requests", || server.operations() > begin + 10_000.0);
        }
        Redis { clients, servers }
    }

    pub fn pid(&self) -> u32 {
        self.servers[0].process.0.id()
    }

    pub fn read(&self) -> Reading {
        let operations = self.servers[0].operations();
        let cpu = self.servers[0].process.cpu();
        let of_others: f64 = self.servers[1..].iter().map(Server::operations).sum();
        let processes = self.servers.iter().map(|server| &server.process).chain(&self.clients);
        let cpu_of_all = processes.map(Part::cpu).sum();
        let operations_of_all = operations + of_others;
        Reading { operations, cpu, operations_of_all, cpu_of_all, wall: clock::monotonic() as f64 }
    }
}

impl Server {
    fn start(scratch: &Path, core: usize) -> Server {
        let socket = scratch.join(format!("redis-{core}"));
        let process = Part::start(
            Command::new("redis-server")
                .args(["--port", "0", "--save", "", "--appendonly", "no", "--dir"])
                .arg(scratch)
                .arg("--unixsocket")
                .arg(&socket),
        );
        wait_until("redis-server", || UnixStream::connect(&socket).is_ok());
        Server { process, socket }
    }

    /// Returns the commands that it has processed.
    fn operations(&self) -> f64 {
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        stream.write_all(b"INFO stats\r\nQUIT\r\n").expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        let count = answer.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        count.and_then(|count| count.trim().parse().ok()).expect("its count of commands")
    }
}
