//! The format of `go tool pprof` and others: profile.proto, packed by gzip.
//!
//! A sample is the time of one thread with one stack in one state, waiting for one thing:
//! `samples` (hits), `cpu` and `wall` in ns. Where the metric is `off`, it is included too (wall
//! minus cpu, so it may be below 0). Labels give the thread, group and state. Label `kind` marks
//! threads that are daemons or the runtime's own, and goroutines that wait; `idle` marks time spent
//! waiting for work. Of a wait, `blocker` says for what kind of lock or the like and of which
//! class, `blocker_address` for which one, and `held_by` which thread held it. Idle time is always
//! included; `-tagignore=idle` excludes it. Labels of a program of Go (`runtime/pprof.Do`) are
//! labels of its samples too, as in the profiles of Go; one with a key of ours is called
//! `label_KEY`. Code has no addresses in memory; functions are named already. A file with several
//! builds has several mappings.

pub mod proto;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::{FRAMELESS, base, dates, text};
use crate::model::facts::snapshot::{Snapshot, Target};
use crate::model::facts::tables::{Blocker, FrameKind, Holder, Location, Tables as Names};
use crate::model::projection::settings::{Level, Metric, Settings};
use crate::model::projection::{self, Frame, Sample, Samples, holder_words};
use crate::model::vocabulary::frame::ThreadKind;
use crate::model::vocabulary::labels::labels as labels_in;
use crate::model::vocabulary::role::Role;
use proto::{Function, Label, Line, Mapping, Profile, ValueType};

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let metric = settings.metric;
    let what =
        What { types: types(metric), first: metric, period: Metric::Wall, labels, merged: false };
    pack(&profile(snapshot, settings, &projection::samples(snapshot, settings), &what)?, out)
}

/// A profile for a server that stores profiles of many hosts over time.
pub struct Interval {
    pub metric: Metric,
    /// Packed, like the output of [`write`].
    pub bytes: Vec<u8>,
    /// The covered time, ns since 1970.
    pub from_unix_ns: i128,
    pub till_unix_ns: i128,
}

/// Returns the same time as profiles of one metric each, CPU and wall: Pyroscope files a profile
/// under the name of one. Their only labels are `group` and, for wall time, `idle`: such servers
/// store a series for each combination, and threads come and go. Empty profiles are dropped.
pub fn intervals(snapshot: &Snapshot, settings: &Settings) -> io::Result<Vec<Interval>> {
    let settings = &Settings { level: Level::All, ..settings.clone() };
    let samples = projection::samples(snapshot, settings);
    let mut intervals = Vec::new();
    for metric in [Metric::Cpu, Metric::Wall] {
        let types = types(metric).into_iter().filter(|(name, ..)| *name == metric.word()).collect();
        let labels = if metric == Metric::Wall { group_and_idle } else { group };
        let what = What { types, first: metric, period: metric, labels, merged: true };
        let profile = profile(snapshot, settings, &samples, &what)?;
        if profile.sample.is_empty() {
            continue;
        }
        let mut bytes = Vec::new();
        pack(&profile, &mut bytes)?;
        let date = |at| dates::unix_ns(&snapshot.session, at);
        intervals.push(Interval {
            metric,
            bytes,
            from_unix_ns: date(samples.from),
            till_unix_ns: date(samples.till),
        });
    }
    Ok(intervals)
}

fn pack(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&profile.encode_to_vec())?;
    packed.finish().map(drop)
}

/// Which sample types and labels are written.
struct What {
    types: Vec<Value>,
    /// The metric shown first.
    first: Metric,
    period: Metric,
    /// Also gets whose code the innermost frame is.
    labels: fn(&Sample, Option<Role>, &Names, &mut Tables) -> Vec<Label>,
    /// Samples with the same stack and labels are merged.
    merged: bool,
}

/// The mapping of all Java code, which is in no file.
pub const JAVA: &str = "[java]";

/// The mapping of the kernel proper; its modules' mappings are in brackets.
pub const KERNEL_PROPER: &str = "vmlinux";

/// Keys of labels.
pub const THREAD: &str = "thread";
pub const TID: &str = "tid";
pub const PID: &str = "pid";
pub const STATE: &str = "state";
/// A thread's role in its runtime; absent for a plain thread.
pub const KIND: &str = "kind";
/// Whose code the innermost frame is.
const ROLE: &str = "role";
const GROUP: &str = "group";
const IDLE: &str = "idle";
/// What a wait was for: kind and class; address; thread.
const BLOCKER: &str = "blocker";
const BLOCKER_ADDRESS: &str = "blocker_address";
const HELD_BY: &str = "held_by";

pub const NANOSECONDS: &str = "nanoseconds";

fn profile(
    snapshot: &Snapshot,
    settings: &Settings,
    samples: &Samples,
    what: &What,
) -> io::Result<Profile> {
    let Samples { from, till, frames, samples } = samples;
    let mut tables = Tables::new();
    let types = &what.types;
    let value_type = |tables: &mut Tables, (name, unit): (&str, &str)| ValueType {
        r#type: tables.string(name),
        unit: tables.string(unit),
    };
    let mut profile = Profile {
        sample_type: types
            .iter()
            .map(|(name, unit, _)| value_type(&mut tables, (name, unit)))
            .collect(),
        period_type: Some(value_type(&mut tables, (what.period.word(), NANOSECONDS))),
        period: signed(snapshot.session.interval_ns),
        time_nanos: i64::try_from(dates::unix_ns(&snapshot.session, *from)).unwrap_or(0),
        duration_nanos: signed(till.saturating_sub(*from)),
        default_sample_type: tables.string(what.first.word()),
        ..Profile::default()
    };
    // Readers take the first mapping for the program's.
    if let Some(program) = program(&snapshot.targets, frames) {
        tables.mapping(&program.location.module, program.build_id.as_deref());
    }
    // A machine frame begins with a frame that is not inlined, and ends before the next such.
    let mut ends: Vec<u64> = vec![0; frames.len()];
    let mut lines: Vec<Line> = Vec::new();
    for (at, frame) in frames.iter().enumerate() {
        lines.clear();
        let mut next = Some(at);
        while let Some(index) = next {
            let frame = &frames[index];
            lines.push(tables.line(&frame.location));
            next = frame.caller.filter(|_| frame.inlined).map(|caller| caller as usize);
        }
        ends[at] = tables.location(&frame.location, frame.build_id.as_deref(), &lines);
    }
    let frameless = samples.iter().any(|sample| sample.innermost.is_none()).then(|| {
        let location = Location::named(FRAMELESS, FrameKind::Marker);
        let line = tables.line(&location);
        tables.location(&location, None, &[line])
    });
    let mut merged: HashMap<(Vec<u64>, Vec<Label>), usize> = HashMap::new();
    for sample in samples.iter().filter(|sample| types.iter().any(|(.., value)| value(sample) != 0))
    {
        let mut location_id = Vec::new();
        let mut next = sample.innermost;
        location_id.extend(frameless.filter(|_| next.is_none()));
        while let Some(at) = next {
            location_id.push(ends[at as usize]);
            // Skip the frames that this one is inlined into.
            let mut outer = &frames[at as usize];
            while let (true, Some(caller)) = (outer.inlined, outer.caller) {
                outer = &frames[caller as usize];
            }
            next = outer.caller;
        }
        let value = types.iter().map(|(.., value)| value(sample)).collect();
        let role = sample.innermost.map(|at| frames[at as usize].role);
        let label = (what.labels)(sample, role, &snapshot.tables, &mut tables);
        let next = profile.sample.len();
        let at = match what.merged {
            true => *merged.entry((location_id.clone(), label.clone())).or_insert(next),
            false => next,
        };
        match profile.sample.get_mut(at) {
            Some(same) => {
                same.value.iter_mut().zip::<Vec<i64>>(value).for_each(|(sum, more)| *sum += more)
            }
            None => profile.sample.push(proto::Sample { location_id, value, label }),
        }
    }
    let settings = &Settings { idle: true, ..settings.clone() };
    profile.comment =
        text::head_lines(snapshot, settings)?.iter().map(|line| tables.string(line)).collect();
    Ok(Profile {
        mapping: tables.mappings,
        location: tables.locations,
        function: tables.functions,
        string_table: tables.strings,
        ..profile
    })
}

type Value = (&'static str, &'static str, fn(&Sample) -> i64);

fn types(metric: Metric) -> Vec<Value> {
    let mut types: Vec<Value> = vec![
        ("samples", "count", |sample| signed(sample.hits)),
        (Metric::Cpu.word(), NANOSECONDS, |sample| signed(sample.cpu_ns)),
        (Metric::Wall.word(), NANOSECONDS, |sample| signed(sample.wall_ns)),
    ];
    if metric == Metric::Off {
        types.push((metric.word(), NANOSECONDS, |sample| {
            signed(sample.wall_ns) - signed(sample.cpu_ns)
        }));
    }
    types
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn labels(sample: &Sample, role: Option<Role>, names: &Names, tables: &mut Tables) -> Vec<Label> {
    let mut labels = vec![
        text_label(tables, THREAD, &sample.name),
        text_label(tables, GROUP, &sample.group),
        text_label(tables, STATE, sample.state.word()),
    ];
    if sample.kind != ThreadKind::Plain || sample.thread.is_goroutine() {
        let kind = super::kind_word(sample.thread, sample.kind);
        labels.push(text_label(tables, KIND, kind));
    }
    labels.extend(role.map(|role| text_label(tables, ROLE, role.word())));
    if sample.idle {
        labels.push(text_label(tables, IDLE, IDLE));
    }
    if let Some(blocker) = names.blocker(sample.blocker) {
        labels.extend(of_blocker(blocker, names, tables));
    }
    if let Some(of_program) = &sample.labels {
        for (key, value) in labels_in(&of_program.function) {
            labels.push(text_label(tables, &of_program_key(key), &value));
        }
    }
    // 0 stands for several.
    for (key, number) in [(PID, sample.thread.pid), (TID, sample.thread.shown_id())] {
        if number != 0 {
            labels.push(Label { key: tables.string(key), num: number.into(), ..Label::default() });
        }
    }
    labels
}

/// Returns the key of a label that the program gave to its work: not one of those above.
fn of_program_key(key: String) -> String {
    const OURS: &[&str] =
        &[THREAD, TID, PID, STATE, KIND, ROLE, GROUP, IDLE, BLOCKER, BLOCKER_ADDRESS, HELD_BY];
    match OURS.contains(&&*key) {
        true => format!("label_{key}"),
        false => key,
    }
}

fn of_blocker(blocker: &Blocker, names: &Names, tables: &mut Tables) -> Vec<Label> {
    let Blocker { kind, class, object, .. } = blocker;
    let name = match blocker.holder {
        Holder::Thread { name, .. } => names.name(name),
        _ => "",
    };
    let held_by = holder_words(blocker.holder, name, blocker.pid);
    let held_by = Some(held_by).filter(|words| !words.is_empty());
    let address = kind.number_of(*object);
    [
        Some((BLOCKER, kind.name_of(class.as_deref(), 0))),
        address.map(|address| (BLOCKER_ADDRESS, address)),
        held_by.map(|name| (HELD_BY, name)),
    ]
    .into_iter()
    .flatten()
    .map(|(key, text)| text_label(tables, key, &text))
    .collect()
}

fn group(sample: &Sample, _: Option<Role>, _: &Names, tables: &mut Tables) -> Vec<Label> {
    vec![text_label(tables, GROUP, &sample.group)]
}

fn group_and_idle(
    sample: &Sample,
    role: Option<Role>,
    names: &Names,
    tables: &mut Tables,
) -> Vec<Label> {
    let mut labels = group(sample, role, names, tables);
    labels.extend(sample.idle.then(|| text_label(tables, IDLE, IDLE)));
    labels
}

fn text_label(tables: &mut Tables, key: &str, text: &str) -> Label {
    let (key, str) = (tables.string(key), tables.string(text));
    Label { key, str, ..Label::default() }
}

/// Returns a frame of the program itself, preferably one with a known build.
fn program<'a>(targets: &[Target], frames: &'a [Frame]) -> Option<&'a Frame> {
    let name = super::program(targets.first()?);
    let is_of_program = |frame: &&Frame| {
        frame.location.kind == FrameKind::Native && base(&frame.location.module) == name
    };
    let mut of_program = frames.iter().filter(is_of_program);
    let known = of_program.clone().find(|frame| frame.build_id.is_some());
    known.or_else(|| of_program.next())
}

/// Returns whether it is a kernel module: these have no path.
fn is_kernel_module(module: &str) -> bool {
    module != KERNEL_PROPER
        && !module.is_empty()
        && module.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The profile's tables, with indexes of their entries.
struct Tables {
    strings: Vec<String>,
    string_ids: HashMap<String, i64>,
    mappings: Vec<Mapping>,
    /// By name and build.
    mapping_ids: HashMap<(i64, i64), u64>,
    functions: Vec<Function>,
    /// By name and file.
    function_ids: HashMap<(Arc<str>, Option<Arc<str>>), u64>,
    locations: Vec<proto::Location>,
    location_ids: HashMap<(u64, Vec<Line>), u64>,
}

impl Tables {
    fn new() -> Tables {
        Tables {
            strings: vec![String::new()],
            string_ids: HashMap::from([(String::new(), 0)]),
            mappings: Vec::new(),
            mapping_ids: HashMap::new(),
            functions: Vec::new(),
            function_ids: HashMap::new(),
            locations: Vec::new(),
            location_ids: HashMap::new(),
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(id) = self.string_ids.get(text) {
            return *id;
        }
        let id = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.string_ids.insert(text.to_owned(), id);
        id
    }

    /// Returns the mapping's id; 0 for what is in no file.
    fn mapping(&mut self, module: &str, build_id: Option<&str>) -> u64 {
        if module.is_empty() {
            return 0;
        }
        let filename = self.string(module);
        let build_id = self.string(build_id.unwrap_or(""));
        let next = self.mappings.len() as u64 + 1;
        let id = *self.mapping_ids.entry((filename, build_id)).or_insert(next);
        if id == next {
            self.mappings.push(Mapping {
                id,
                filename,
                build_id,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
                ..Mapping::default()
            });
        }
        id
    }

    fn line(&mut self, location: &Location) -> Line {
        let key = (location.function.clone(), location.file.clone());
        let function_id = match self.function_ids.get(&key) {
            Some(id) => *id,
            None => {
                let name = self.string(&location.function);
                let filename = self.string(location.file.as_deref().unwrap_or(""));
                let id = self.functions.len() as u64 + 1;
                // No system name: with one, pprof would take the name for mangled and remove
                // template arguments from it.
                self.functions.push(Function { id, name, system_name: 0, filename });
                self.function_ids.insert(key, id);
                id
            }
        };
        Line { function_id, line: location.line.map_or(0, i64::from) }
    }

    /// Adds a machine frame: its functions, the innermost first.
    fn location(&mut self, location: &Location, build_id: Option<&str>, lines: &[Line]) -> u64 {
        let mapping_id = match location.kind {
            FrameKind::Java => self.mapping(JAVA, None),
            FrameKind::Marker | FrameKind::Thread => 0,
            // The kernel's own notation for its modules.
            FrameKind::Kernel if is_kernel_module(&location.module) => {
                self.mapping(&format!("[{}]", location.module), build_id)
            }
            _ => self.mapping(&location.module, build_id),
        };
        let next = self.locations.len() as u64 + 1;
        let id = *self.location_ids.entry((mapping_id, lines.to_vec())).or_insert(next);
        if id == next {
            self.locations.push(proto::Location {
                id,
                mapping_id,
                address: 0,
                line: lines.to_vec(),
            });
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::BlockerId;
    use crate::model::vocabulary::frame::ThreadKey;
    use crate::model::vocabulary::state::State;

    /// Returns the labels of a sample, keys and values; without those of numbers.
    fn labels_of(thread: ThreadKey, kind: ThreadKind, of_program: Option<&str>) -> Vec<String> {
        let marker = |text| Arc::new(Location::named(text, FrameKind::Marker));
        let sample = Sample {
            thread,
            name: "worker".into(),
            kind,
            group: "work".into(),
            state: State::Wait,
            idle: false,
            blocker: BlockerId::NONE,
            labels: of_program.map(marker),
            innermost: None,
            wall_ns: 1,
            cpu_ns: 0,
            hits: 1,
        };
        let mut tables = Tables::new();
        let found = labels(&sample, None, &Names::default(), &mut tables);
        let text = |at: i64| &tables.strings[at as usize];
        let texts = found.iter().filter(|label| label.str != 0);
        texts.map(|label| format!("{}={}", text(label.key), text(label.str))).collect()
    }

    #[test]
    fn a_sample_has_the_labels_of_the_program_and_the_kind_of_its_thread() {
        let plain = ["thread=worker", "group=work", "state=wait"];
        let thread = ThreadKey { pid: 1, tid: 2, start: 3 };
        let all = "[labels handler=/catalog, state=\"a, b\", tid=7, held_by=x]";
        let own = ["handler=/catalog", "label_state=a, b", "label_tid=7", "label_held_by=x"];
        let found = labels_of(thread, ThreadKind::Plain, Some(all));
        assert_eq!(found, [&plain[..], &own].concat());
        assert_eq!(labels_of(thread, ThreadKind::Plain, Some("[labels (other)]")), plain);
        assert_eq!(labels_of(thread, ThreadKind::Daemon, None)[3..], ["kind=daemon"]);
        let goroutine = ThreadKey::goroutine(1, 2, 3);
        assert_eq!(labels_of(goroutine, ThreadKind::Plain, None)[3..], ["kind=goroutine"]);
    }
}
