use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use regex::Regex;

use super::*;

/// A machine with simulated processes.
#[derive(Default)]
struct Machine {
    processes: BTreeMap<u32, Found>,
    group: Vec<u32>,
    reads: usize,
    clock: u64,
}

impl Machine {
    fn start(&mut self, pid: u32, parent: u32, name: &str, command: &str) -> &mut Machine {
        self.clock += 1;
        let (name, command) = (name.to_owned(), command.to_owned());
        self.processes
            .insert(pid, Found { name, command, parent, start: self.clock, watchable: true });
        self
    }
}

impl Processes for Machine {
    fn all(&mut self) -> Vec<u32> {
        // In no particular order.
        self.processes.keys().rev().copied().collect()
    }
    fn read(&mut self, pid: u32) -> Option<Found> {
        self.reads += 1;
        self.processes.get(&pid).cloned()
    }
    fn members(&mut self, _: &Path) -> Vec<u32> {
        self.group.clone()
    }
    fn of_unit(&mut self, name: &str) -> Vec<u32> {
        assert_eq!(name, "nginx.service");
        self.group.clone()
    }
    fn in_file(&mut self, _: &Path) -> Option<u32> {
        self.group.first().copied()
    }
}

/// sampletop is 100, started by sudo (90), started by bash (80).
const OWN: [u32; 3] = [100, 90, 80];

fn machine() -> Machine {
    let mut machine = Machine::default();
    machine.start(1, 0, "init", "/sbin/init").start(80, 1, "bash", "-bash");
    machine.start(90, 80, "sudo", "sudo sampletop --name nginx").start(
        100,
        90,
        "sampletop",
        "sampletop --name nginx",
    );
    machine
}

fn by_name(pattern: &str, children: bool) -> Select {
    Select::new(Wanted::Name(Regex::new(pattern).expect("a pattern")), children, OWN.to_vec())
}

const ROOM: usize = 64;
const NO_PIDS: [u32; 0] = [];

#[test]
fn a_name_matches_comm_or_command_line_but_never_our_own_words() {
    let mut machine = machine();
    machine
        .start(7, 1, "nginx", "nginx: master process")
        .start(8, 7, "worker", "/usr/sbin/nginx -g x")
        .start(9, 1, "n", "n");
    machine.start(95, 1, "sampletop", "sampletop --name nginx");
    let mut select = by_name("nginx", false);
    assert_eq!(select.observe(&mut machine, ROOM), [7, 8]);
    assert_eq!(select.observe(&mut machine, ROOM), NO_PIDS, "each is given out once");
    // An ancestor that matches by its own name is selected, and so is another sampletop.
    assert_eq!(by_name("^bash$", false).observe(&mut machine, ROOM), [80]);
    assert_eq!(
        by_name("sampletop", false).observe(&mut machine, ROOM),
        [95],
        "not itself, nor sudo"
    );
}

#[test]
fn new_and_changed_processes_are_found() {
    let mut machine = machine();
    let mut select = by_name("^nginx$", false);
    assert_eq!(select.observe(&mut machine, ROOM), NO_PIDS);
    // A shell forks, and then runs another program.
    machine.start(200, 80, "bash", "-bash");
    assert_eq!(select.observe(&mut machine, ROOM), NO_PIDS);
    machine.processes.get_mut(&200).expect("started").name = "nginx".into();
    assert_eq!(select.observe(&mut machine, ROOM), [200]);
    // It ends, and another one gets its pid between two scans.
    machine.start(200, 1, "nginx", "nginx");
    assert_eq!(select.observe(&mut machine, ROOM), [200]);
    machine.processes.remove(&200);
    assert_eq!(select.observe(&mut machine, ROOM), NO_PIDS);
    machine.start(200, 1, "nginx", "nginx").start(201, 200, "other", "other");
    assert_eq!(select.observe(&mut machine, ROOM), [200]);
    // Long after it was new, its turn comes.
    for _ in 0..20 {
        assert_eq!(select.observe(&mut machine, ROOM), NO_PIDS);
    }
    machine.processes.get_mut(&201).expect("started").name = "nginx".into();
    let found: Vec<u32> = (0..3).flat_map(|_| select.observe(&mut machine, ROOM)).collect();
    assert_eq!(found, [201]);
}

#[test]
fn children_are_followed_at_any_depth() {
    let mut machine = machine();
    machine
        .start(50, 1, "make", "make")
        .start(30, 50, "sh", "sh -c")
        .start(20, 30, "cc1", "cc1")
        .start(21, 1, "cc1", "cc1");
    let mut select = Select::new(Wanted::Pids(vec![50]), true, OWN.to_vec());
    assert_eq!(select.observe(&mut machine, ROOM), [20, 30, 50]);
    machine.start(60, 20, "as", "as");
    assert_eq!(select.observe(&mut machine, ROOM), [60]);
    // The parent has ended: init is now the parent of its children, which stay selected.
    machine.processes.remove(&50);
    for child in machine.processes.values_mut().filter(|found| found.parent == 50) {
        child.parent = 1;
    }
    machine.start(61, 30, "cc1", "cc1");
    assert_eq!(select.observe(&mut machine, ROOM), [61]);
    // Another process has the pid of one that was watched: its children are not selected.
    machine.start(50, 1, "vim", "vim").start(70, 50, "sh", "sh");
    let again = select.observe(&mut machine, ROOM);
    assert!(again.contains(&50) && again.contains(&70), "-p 50 still names it: {again:?}");
    machine.start(20, 1, "vim", "vim").start(71, 20, "sh", "sh");
    assert_eq!(select.observe(&mut machine, ROOM), NO_PIDS);
    // Without the option no child is followed, and no other process is read.
    let mut alone = Select::new(Wanted::Pids(vec![50]), false, OWN.to_vec());
    machine.reads = 0;
    assert_eq!((alone.observe(&mut machine, ROOM), machine.reads), (vec![50], 1));
}

#[test]
fn a_child_that_is_older_than_its_parent_is_another_ones() {
    let mut machine = machine();
    machine
        .start(31, 50, "orphan", "orphan")
        .start(50, 1, "make", "make")
        .start(32, 50, "cc", "cc");
    let mut select = Select::new(Wanted::Pids(vec![50]), true, OWN.to_vec());
    assert_eq!(select.observe(&mut machine, ROOM), [32, 50]);
}

#[test]
fn a_group_includes_new_members_but_not_sampletop() {
    let mut machine = machine();
    machine.start(7, 1, "a", "a").start(8, 1, "b", "b").start(9, 8, "c", "c");
    machine.group = vec![100, 7];
    let mut select = Select::new(Wanted::Cgroup("x".into()), false, OWN.to_vec());
    assert_eq!(select.observe(&mut machine, ROOM), [7]);
    machine.group.push(8);
    assert_eq!(select.observe(&mut machine, ROOM), [8]);
    machine.processes.get_mut(&9).expect("started").watchable = false;
    machine.group.push(9);
    assert_eq!(select.observe(&mut machine, ROOM), NO_PIDS, "a zombie, or a kernel thread");
}

#[test]
fn dropped_processes_are_selected_once_there_is_room() {
    let mut machine = machine();
    for pid in 1000..1030 {
        machine.start(pid, 1, "w", "w");
    }
    let mut select = by_name("^w$", false);
    assert_eq!(
        select.observe(&mut machine, 20),
        (1000..1016).collect::<Vec<_>>(),
        "a few at a time"
    );
    assert_eq!(select.dropped(), 10);
    assert_eq!(select.observe(&mut machine, 4), (1016..1020).collect::<Vec<_>>());
    assert_eq!((select.observe(&mut machine, 0), select.dropped()), (vec![], 10));
    assert_eq!(select.observe(&mut machine, 64), (1020..1030).collect::<Vec<_>>());
    assert_eq!(select.dropped(), 0);
}

#[test]
fn a_storm_of_forks_costs_a_bounded_number_of_reads() {
    let mut machine = machine();
    let mut select = Select::new(Wanted::Pids(vec![80]), true, OWN.to_vec());
    select.observe(&mut machine, ROOM);
    let mut chosen = BTreeSet::new();
    for storm in 0..50u32 {
        machine.processes.retain(|pid, _| *pid < 1000);
        for n in 0..1000 {
            machine.start(1000 + (storm * 1000 + n) % 30_000, 80, "f", "f");
        }
        machine.reads = 0;
        chosen.extend(select.observe(&mut machine, ROOM));
        assert!(machine.reads <= 2 * READ_AT_ONCE + READ_AGAIN, "{}", machine.reads);
        assert!(
            select.known.len() <= 1004 + 1000,
            "ended processes are dropped: {}",
            select.known.len()
        );
    }
    assert!(chosen.len() > 100, "those that were read were found: {}", chosen.len());
}

proptest! {
    /// Whatever starts and ends: finally every process that matches was returned, no other was, and
    /// none twice.
    #[test]
    fn every_process_is_found_in_the_end(steps in proptest::collection::vec((2u32..40, 1u32..40, 0usize..3, any::<bool>()), 1..60)) {
        let mut machine = machine();
        let mut select = by_name("^match$", false);
        let mut given: Vec<(u32, u64)> = Vec::new();
        for (pid, parent, what, observation) in steps {
            match what {
                0 => { machine.processes.remove(&pid); }
                1 => { machine.start(pid, parent, "other", "other"); }
                _ => { machine.start(pid, parent, "match", "match"); }
            }
            if observation {
                let found = select.observe(&mut machine, ROOM);
                given.extend(found.iter().filter_map(|pid| Some((*pid, machine.processes.get(pid)?.start))));
            }
        }
        for _ in 0..20 {
            let found = select.observe(&mut machine, ROOM);
            given.extend(found.iter().filter_map(|pid| Some((*pid, machine.processes.get(pid)?.start))));
        }
        let mut once = given.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), given.len(), "twice: {:?}", &given);
        for (pid, found) in &machine.processes {
            prop_assert_eq!(given.contains(&(*pid, found.start)), found.name == "match", "{}", pid);
        }
    }
}

#[test]
fn units_and_pid_files_select_their_present_processes() {
    let unit = Wanted::Unit("nginx.service".into());
    let pidfile = Wanted::Pidfile("/run/nginx.pid".into());
    for wanted in [unit, pidfile] {
        let mut machine = machine();
        let mut select = Select::new(wanted, false, OWN.to_vec());
        assert_eq!(select.observe(&mut machine, ROOM), NO_PIDS);
        machine.start(7, 1, "nginx", "nginx").start(8, 1, "other", "other");
        machine.group = vec![7];
        assert_eq!(select.observe(&mut machine, ROOM), [7]);
        machine.processes.remove(&7);
        machine.group.clear();
        assert_eq!(select.observe(&mut machine, ROOM), NO_PIDS);
        machine.clock += 1;
        machine.start(7, 1, "nginx", "nginx");
        machine.group = vec![7];
        assert_eq!(select.observe(&mut machine, ROOM), [7], "the number may be the same");
    }
}
