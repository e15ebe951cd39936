//! Code that replaces other code: no stack is named by code that was not there when the stack was
//! copied.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sampletop::capture::Sampler;
use sampletop::capture::event_ring::Reader;
use sampletop::config::CaptureChoice;
use sampletop::model::vocabulary::event::{Event, Observation, Seen};
use sampletop::model::vocabulary::frame::{FrameCode, Marker};
use sampletop::process::mapped_files::Files;

use crate::bpf::works;
use crate::bpf_stacks::walks::Symbols;
use crate::common::{Running, build};
use crate::storms::{last_losses, start_walking_at, walked};
use crate::support::*;

const A: [&str; 3] = ["a_outer", "a_spin", "call_a"];
const B: [&str; 3] = ["b_outer", "b_spin", "call_b"];

fn library(who: &str, pad: u32, variant: &str) -> PathBuf {
    let (who_is, pad) = (format!("-DWHO={who}"), format!("-DPAD={pad}"));
    build(
        "replaced_library.c",
        &format!("{who}-{variant}"),
        &["-O2", "-shared", "-fPIC", &who_is, &pad],
    )
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Contents of the samples of the target's one thread.
#[derive(Debug, Default)]
struct Shown {
    /// Samples below the call of this library.
    of: BTreeMap<&'static str, usize>,
    whole: usize,
    /// Samples that report that code was replaced.
    replaced: usize,
    all: usize,
}

/// Counts on-CPU samples. Panics if one shows a function of one library beside a function or the
/// call of the other.
fn check(events: &[Event], files: &Files, symbols: &[&Symbols]) -> Shown {
    let mut shown = Shown::default();
    for observation in scan(events).filter(|observation| matches!(observation.seen, Seen::OnCpu)) {
        let names = walked(observation).names(files, symbols);
        let has = |who: &[&str]| names.iter().any(|name| who.contains(&name.as_str()));
        assert!(!(has(&A) && has(&B)), "{names:?} {observation:?}");
        shown.all += 1;
        for (who, of) in [("a", &A), ("b", &B)] {
            *shown.of.entry(who).or_default() += usize::from(has(&of[..2]));
        }
        shown.whole += usize::from(names.iter().any(|name| name == "main"));
        shown.replaced += usize::from(ends_in(observation) == Some(Marker::CodeReplaced));
    }
    shown
}

fn ends_in(observation: &Observation) -> Option<Marker> {
    match observation.stack.last()?.decode() {
        FrameCode::Marker { marker, .. } => Some(marker),
        _ => None,
    }
}

struct Burning {
    target: Running,
    sampler: Sampler,
    reader: Reader,
    events: Vec<Event>,
    files: Files,
}

impl Burning {
    fn start(ms: &str, program: &Path, libraries: [&Path; 2], choice: CaptureChoice) -> Burning {
        let target = Running::start(program, &[ms, text(libraries[0]), text(libraries[1])]);
        let files = Files::default();
        let (sampler, mut reader) = start_walking_at(target.pid(), choice, &files, 2);
        let mut events = Vec::new();
        read_until(&mut reader, &mut events, |events| ticks(events) > 5);
        Burning { target, sampler, reader, events, files }
    }

    /// Returns CPU time by the program's own clock in A and in B, ns, and how often they were at
    /// the same address.
    fn rounds(&mut self, count: usize) -> [u64; 3] {
        ask(&mut self.target, &format!("{count}\n"));
        let Burning { target, reader, events, .. } = self;
        std::thread::scope(|scope| {
            let reported =
                scope.spawn(|| [next_number(target), next_number(target), next_number(target)]);
            while !reported.is_finished() {
                events.extend(reader.by_ref());
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            reported.join().expect("numbers")
        })
    }

    fn end(mut self, symbols: &[&Symbols]) -> (Shown, Vec<Event>) {
        let mark = ticks(&self.events);
        read_until(&mut self.reader, &mut self.events, |events| ticks(events) > mark + 5);
        drop(self.sampler);
        self.events.extend(self.reader.by_ref());
        (check(&self.events, &self.files, symbols), self.events)
    }
}

/// Asserts the counts of `n` samples, each in one of two libraries by the share of its time. Both
/// counts are within 5 standard deviations, which fails by chance once in a million times
/// (two-sided, normal). All others are reported as replaced, 2 % at most.
fn assert_shares(shown: &Shown, own: [u64; 3]) {
    let (a, b) = (shown.of["a"] as f64, shown.of["b"] as f64);
    let (n, p) = (a + b, own[0] as f64 / (own[0] + own[1]) as f64);
    let bound = 5.0 * (n * p * (1.0 - p)).sqrt();
    assert!(
        n >= 200.0 && (a - n * p).abs() <= bound,
        "{a} of {n} samples, {p} of the time: {shown:?}"
    );
    assert!(shown.replaced as f64 <= 0.02 * n + 5.0, "{shown:?}");
}

fn libraries_at_one_address_have_their_own_time(choice: CaptureChoice) {
    let variant = choice.word();
    let program = build("replaced.c", variant, &["-O2"]);
    let (a, b) = (library("a", 16, variant), library("b", 2000, variant));
    let symbols = [&program, &a, &b].map(|path| Symbols::of(path));
    let known = symbols.each_ref();
    for (ms, rounds) in [("30", 40), ("3", 400)] {
        let mut burning = Burning::start(ms, &program, [&a, &b], choice);
        let own = burning.rounds(rounds);
        assert!(own[2] * 10 >= rounds as u64 * 9, "they have to be mapped at one address: {own:?}");
        let (shown, events) = burning.end(&known);
        assert_shares(&shown, own);
        // Nearly all are complete: each is walked by the tables of its own library.
        let n = shown.of["a"] + shown.of["b"];
        assert!(shown.whole * 100 >= n * 90, "{shown:?} {:?}", last_losses(&events));
    }
}

/// Loads faster than mappings can be read.
fn a_thousand_loads_a_second_are_named(choice: CaptureChoice) {
    let variant = format!("fast-{}", choice.word());
    let program = build("replaced.c", &variant, &["-O2"]);
    let (a, b) = (library("a", 16, &variant), library("b", 2000, &variant));
    let symbols = [&program, &a, &b].map(|path| Symbols::of(path));
    let mut burning = Burning::start("0.8", &program, [&a, &b], choice);
    let own = burning.rounds(1200);
    let (shown, _) = burning.end(&symbols.each_ref());
    assert_shares(&shown, own);
}

/// The same file at the same address, and another file under the same path.
fn the_file_that_is_mapped_counts_and_not_its_path(choice: CaptureChoice) {
    let variant = format!("path-{}", choice.word());
    let program = build("replaced.c", &variant, &["-O2"]);
    let (a, b) = (library("a", 16, &variant), library("b", 2000, &variant));
    let symbols = [&program, &a].map(|path| Symbols::of(path));
    let mut burning = Burning::start("5", &program, [&a, &a], choice);
    let own = burning.rounds(100);
    assert!(own[2] >= 90, "{own:?}");
    let Burning { mut reader, mut events, sampler, files, .. } = burning;
    let mark = ticks(&events);
    read_until(&mut reader, &mut events, |events| ticks(events) > mark + 5);
    drop(sampler);
    events.extend(reader.by_ref());
    let on_cpu = || scan(&events).filter(|observation| observation.seen == Seen::OnCpu);
    assert!(
        on_cpu().all(|observation| ends_in(observation) != Some(Marker::CodeReplaced)),
        "nothing was replaced"
    );
    let names = |observation: &Observation| walked(observation).names(&files, &symbols.each_ref());
    assert!(
        on_cpu()
            .filter(|observation| names(observation).iter().any(|name| name == "a_spin"))
            .count()
            > 100
    );
    // Renamed over in turns while no process has it mapped: one path, two files.
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("library.so");
    let put = |from: &Path| {
        let new = folder.path().join("new");
        std::fs::copy(from, &new).expect("copied");
        std::fs::rename(&new, &path).expect("renamed");
    };
    put(&a);
    let mut burning = Burning::start("15", &program, [&path, &path], choice);
    let mut expected = Vec::new();
    for turn in 0..20 {
        let from = looks_so_far(&mut burning);
        burning.rounds(1);
        expected.push((from, if turn % 2 == 0 { "a" } else { "b" }));
        put(if turn % 2 == 0 { &b } else { &a });
    }
    let Burning { mut reader, mut events, sampler, files, .. } = burning;
    let mark = ticks(&events);
    read_until(&mut reader, &mut events, |events| ticks(events) > mark + 5);
    drop(sampler);
    events.extend(reader.by_ref());
    let of_path = |file| files.get(file).is_some_and(|file| file.path == path);
    let mut ids = BTreeMap::new();
    for observation in scan(&events).filter(|observation| observation.seen == Seen::OnCpu) {
        let turn =
            expected.iter().rev().find(|(from, _)| observation.at > *from).map(|(_, who)| *who);
        for frame in &observation.stack {
            if let (Some(who), FrameCode::Code { file, .. }) = (turn, frame.decode())
                && of_path(file)
            {
                *ids.entry(file).or_insert_with(BTreeMap::new).entry(who).or_insert(0) += 1;
            }
        }
    }
    assert!(ids.len() >= 2 && ids.values().all(|of| of.len() == 1), "each is one library: {ids:?}");
}

/// Returns the time from which on samples belong to the next request.
fn looks_so_far(burning: &mut Burning) -> u64 {
    burning.events.extend(burning.reader.by_ref());
    sampletop::clock::monotonic()
}

macro_rules! by_both {
    ($($test:ident)*) => {
        mod by_perf {
            $(#[test] fn $test() { super::$test(super::CaptureChoice::Perf) })*
        }
        mod by_bpf {
            $(#[test] fn $test() { if super::works() { super::$test(super::CaptureChoice::Bpf) } })*
        }
    };
}

by_both! {
    libraries_at_one_address_have_their_own_time
    a_thousand_loads_a_second_are_named
    the_file_that_is_mapped_counts_and_not_its_path
}
