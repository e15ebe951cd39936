//! Imports profile.proto of sampletop, Go, async-profiler, py-spy, Parca and others. Shows sample
//! types in units of time, as wall or CPU time.

mod file;
mod frames;

use prost::Message;

use super::build::{About, Builder, Owner};
use crate::formats::pprof::proto::{Label, Sample, ValueType};
use crate::formats::pprof::{KIND, PID, STATE, THREAD, TID};
use crate::formats::saved::Opened;
use crate::model::facts::history::Weights;
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::frame::ThreadKind;
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::text::clean;
use file::File;
use frames::Places;

/// Reads a profile. `None` if it is no profile.proto.
pub fn read(bytes: &[u8]) -> Option<Result<Opened, String>> {
    let file = File::read(bytes)?;
    Some(Shown::of(&file).and_then(|shown| build(&file, &shown)))
}

/// One of a sample's values, and the ns that one unit of it stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Time {
    nth: usize,
    ns: u64,
}

/// The values of a sample that are shown.
struct Shown {
    wall: Option<Time>,
    cpu: Option<Time>,
    /// Number of observations.
    hits: Option<usize>,
    /// Sampling interval, ns; 0 if unknown.
    interval_ns: u64,
    capture: String,
    notice: Option<String>,
}

impl Shown {
    /// Chooses the values to show. The error, one sentence: no value is a time.
    fn of(file: &File<'_>) -> Result<Shown, String> {
        let name = |value: &ValueType| clean(&file.text(value.r#type), 40).into_owned();
        let unit = |value: &ValueType| clean(&file.text(value.unit), 40).into_owned();
        let names: Vec<(String, String)> =
            file.types.iter().map(|value| (name(value), unit(value))).collect();
        let time = |nth: usize| ns(&names[nth].1).map(|ns| Time { nth, ns });
        let find = |is: &dyn Fn(&str) -> bool| {
            (0..names.len()).filter(|nth| is(&names[*nth].0)).find_map(time)
        };
        let is_cpu =
            |name: &str| name.to_ascii_lowercase().contains("cpu") && !name.starts_with("off");
        let is_wall = |name: &str| name.to_ascii_lowercase().contains("wall");
        let cpu = find(&is_cpu);
        // Includes the time that threads waited, in Go's profiles of locks.
        let wall = find(&is_wall).or_else(|| if cpu.is_some() { None } else { find(&|_| true) });
        let counts = || (0..names.len()).filter(|nth| names[*nth].1 == "count");
        let hits =
            counts().find(|nth| names[*nth].0.starts_with("sample")).or_else(|| counts().next());
        let listed: Vec<String> =
            names.iter().map(|(name, unit)| format!("{name} in {unit}")).collect();
        let period = u64::try_from(file.period).ok().zip(ns(&unit(&file.period_type)));
        let interval_ns = period.map_or(0, |(period, ns)| period.saturating_mul(ns));
        let shown = Shown {
            wall,
            cpu,
            hits,
            interval_ns,
            capture: clean(&format!("pprof: {}", listed.join(", ")), 200).into_owned(),
            notice: None,
        };
        match (wall.or(cpu), hits, interval_ns) {
            (Some(_), ..) => Ok(shown),
            (None, Some(nth), 1..) => {
                let time = Some(Time { nth, ns: interval_ns });
                let by_cpu = is_cpu(&name(&file.period_type));
                let (wall, cpu) = if by_cpu { (None, time) } else { (time, None) };
                let ms = interval_ns as f64 / 1e6;
                let notice = format!(
                    "each of the {} is shown as the {ms} ms between two of them",
                    names[nth].0
                );
                Ok(Shown { wall, cpu, notice: Some(notice), ..shown })
            }
            _ => Err(format!(
                "this pprof profile holds no time ({}), and sampletop shows time; open one of CPU or wall time",
                clean(&listed.join(", "), 200)
            )),
        }
    }

    /// Converts a sample's values. `None` if some are missing or negative.
    fn weights(&self, values: &[i64]) -> Option<Weights> {
        let value = |nth: usize| values.get(nth).and_then(|value| u64::try_from(*value).ok());
        let time = |time: Option<Time>| match time {
            Some(Time { nth, ns }) => value(nth).map(|value| value.saturating_mul(ns)),
            None => Some(0),
        };
        let cpu_ns = time(self.cpu)?;
        // CPU time counts as wall time too.
        let wall_ns = if self.wall.is_some() { time(self.wall)? } else { cpu_ns };
        let hits = match (self.hits, self.interval_ns) {
            (Some(nth), _) => value(nth)?,
            (None, 1..) => wall_ns.max(cpu_ns) / self.interval_ns,
            (None, 0) => 1,
        };
        let hits = u32::try_from(hits).unwrap_or(u32::MAX);
        let cpu_hits = if cpu_ns > 0 { hits } else { 0 };
        Some(Weights { wall_ns, cpu_ns, hits, cpu_hits, ..Weights::default() })
    }
}

/// Returns the ns in one `unit`; `None` if it is no unit of time.
fn ns(unit: &str) -> Option<u64> {
    match unit.to_ascii_lowercase().as_str() {
        "nanoseconds" | "nanosecond" | "ns" => Some(1),
        "microseconds" | "microsecond" | "us" => Some(1_000),
        "milliseconds" | "millisecond" | "ms" => Some(1_000_000),
        "seconds" | "second" | "s" => Some(1_000_000_000),
        _ => None,
    }
}

fn build(file: &File<'_>, shown: &Shown) -> Result<Opened, String> {
    let mut builder = Builder::new();
    let mut places = Places::new(file);
    let mut unread = file.unread;
    let mut stack = Vec::new();
    let mut states_told = false;
    for bytes in &file.samples {
        let sample = Sample::decode(*bytes).ok();
        let Some((weights, sample)) =
            sample.and_then(|sample| Some((shown.weights(&sample.value)?, sample)))
        else {
            unread += 1;
            continue;
        };
        stack.clear();
        stack.extend(sample.location_id.iter().filter_map(|id| places.frame(*id, &mut builder)));
        let said = Said::of(file, &sample.label);
        let owner =
            Owner { pid: said.pid, tid: said.tid, name: said.thread.as_deref(), kind: said.kind };
        let state = said.state.or((weights.cpu_ns > 0).then_some(State::Run));
        states_told |= state.is_some();
        let state = state.unwrap_or(State::Wait);
        builder
            .add(owner, &mut stack, state, weights)
            .ok_or("the times of this profile are too large to be added up")?;
    }
    let mut lost = Vec::new();
    if unread > 0 {
        lost.push(format!(
            "{unread} parts of the file are no valid samples, functions or locations"
        ));
    }
    if places.missing > 0 {
        lost.push(format!("{} frames are missing in it", places.missing));
    }
    let mut notices: Vec<String> = shown.notice.iter().cloned().collect();
    if !states_told {
        notices.push(
            "the profile does not say whether threads ran or waited: all of it is shown as wait"
                .into(),
        );
    }
    let program = file.first_mapping.map(|mapping| file.text(mapping.filename)).unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or("");
    let preferred =
        Metric::ALL.into_iter().find(|metric| metric.word() == file.text(file.default_type));
    Ok(builder.opened(About {
        title: if program.is_empty() { "pprof profile".into() } else { program.into() },
        capture: shown.capture.clone(),
        started_unix_ns: file.time_nanos.max(0),
        duration: u64::try_from(file.duration_nanos).unwrap_or(0),
        interval_ns: shown.interval_ns,
        metric: preferred.unwrap_or(if shown.wall.is_some() { Metric::Wall } else { Metric::Cpu }),
        notice: (!notices.is_empty()).then(|| notices.join("; ")),
        lost,
    }))
}

/// A sample's thread and state, as its labels give them.
#[derive(Default)]
struct Said {
    pid: u32,
    tid: Option<u32>,
    thread: Option<String>,
    kind: ThreadKind,
    state: Option<State>,
}

impl Said {
    /// Reads sampletop's own label keys, and those of other tools.
    fn of(file: &File<'_>, labels: &[Label]) -> Said {
        let mut said = Said::default();
        for label in labels.iter().take(64) {
            let text = || file.text(label.str);
            let number = || match label.str {
                0 => u32::try_from(label.num).ok(),
                _ => text().parse().ok(),
            };
            match file.text(label.key).as_str() {
                THREAD | "thread_name" | "thread name" | "comm" if label.str != 0 => {
                    said.thread = Some(text())
                }
                TID | "thread_id" | "thread id" => said.tid = number(),
                PID | "process_id" | "process id" => said.pid = number().unwrap_or(0),
                KIND => {
                    let kinds = [ThreadKind::Daemon, ThreadKind::Internal];
                    said.kind =
                        kinds.into_iter().find(|kind| kind.word() == text()).unwrap_or_default();
                }
                STATE => said.state = State::ALL.into_iter().find(|state| state.word() == text()),
                _ => {}
            }
        }
        said
    }
}

#[cfg(test)]
mod tests;
