//! For <https://www.speedscope.app>: wall time and CPU time of the same stacks as two profiles of
//! one file (with `--metric off`, their difference as a third). The settings' metric is shown
//! first.
//!
//! The outermost frame of each stack is its group, the heaviest stacks come first. It shows what
//! the settings show, idle time only with `--idle`. Stacks are written as calls that begin and end,
//! which stays as small as the tree however deep it is. Positions on the time line are an order,
//! not dates. Times are whole nanoseconds. The format: `file-format-schema.json` of the npm package
//! `speedscope`.

use std::io::{self, Write};

use serde::Serialize;

use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::Location;
use crate::model::projection::settings::{Metric, Settings};
use crate::model::projection::{Projection, project};

use super::FRAMELESS;
use super::trees::{self, Functions, Step};

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    render(snapshot, settings, &project(snapshot, settings), out)
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    /// The module where no file is known; its functions share a colour.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'a> Frame<'a> {
    fn of(location: &'a Location) -> Frame<'a> {
        let module = Some(&*location.module).filter(|module| !module.is_empty());
        Frame {
            name: &location.function,
            file: location.file.as_deref().or(module),
            line: location.line.filter(|_| location.file.is_some()),
        }
    }

    fn named(name: &'a str) -> Frame<'a> {
        Frame { name, file: None, line: None }
    }
}

pub(super) fn render(
    snapshot: &Snapshot,
    settings: &Settings,
    projection: &Projection,
    out: &mut dyn Write,
) -> io::Result<()> {
    let metrics = match settings.metric {
        Metric::Off => &Metric::ALL[..],
        Metric::Wall | Metric::Cpu => &[Metric::Wall, Metric::Cpu],
    };
    let active = metrics.iter().position(|metric| *metric == settings.metric).unwrap_or(0);
    let title = format!(
        "{} ({})",
        trees::title(snapshot),
        trees::conditions(snapshot, settings, projection)
    );
    write!(
        out,
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"{}\",\"name\":{},\
         \"activeProfileIndex\":{active},\"shared\":{{\"frames\":",
        super::PROGRAM,
        serde_json::to_string(&title)?,
    )?;
    let functions = Functions::new(projection, settings.metric);
    let groups = projection.groups.iter().map(|group| Frame::named(&group.name));
    let frames: Vec<Frame<'_>> = (functions.list.iter().map(|location| Frame::of(location)))
        .chain([Frame::named(FRAMELESS)])
        .chain(groups)
        .collect();
    serde_json::to_writer(&mut *out, &frames)?;
    out.write_all(b"},\"profiles\":[")?;
    for (nth, metric) in metrics.iter().enumerate() {
        out.write_all(if nth == 0 { b"\n" } else { b",\n" })?;
        write_profile(
            projection,
            &Settings { metric: *metric, ..settings.clone() },
            &functions,
            out,
        )?;
    }
    out.write_all(b"]}\n")
}

/// Frames are numbered as [`render`] lists them: functions, the frameless one, groups.
fn write_profile(
    projection: &Projection,
    settings: &Settings,
    functions: &Functions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let metric = settings.metric;
    let weights = trees::weights(projection, metric);
    let ordered = projection.ordered(settings);
    let frameless = functions.list.len();
    let mut events = Events { out, at: 0, any: false };
    write!(
        events.out,
        "{{\"type\":\"evented\",\"name\":\"{}\",\"unit\":\"nanoseconds\",\"startValue\":0,\"events\":[",
        metric.word()
    )?;
    for nth in ordered.groups() {
        let group = &projection.groups[nth as usize];
        let own = group.own.value(metric);
        if own + projection.roots(group).map(|root| weights[root as usize]).sum::<u64>() == 0 {
            continue;
        }
        let frame = frameless + 1 + nth as usize;
        events.open(frame)?;
        for step in trees::walk(&ordered, group) {
            let (Step::Enter(node) | Step::Leave(node)) = step;
            let function = functions.of_node[node as usize] as usize;
            match step {
                _ if weights[node as usize] == 0 => {}
                Step::Enter(_) => events.open(function)?,
                // Own time comes last, since the calls within are the heavier part.
                Step::Leave(_) => {
                    events.at += ordered.node(node).own.value(metric);
                    events.close(function)?;
                }
            }
        }
        if own > 0 {
            events.open(frameless)?;
            events.at += own;
            events.close(frameless)?;
        }
        events.close(frame)?;
    }
    let Events { out, at, .. } = events;
    write!(out, "],\"endValue\":{at}}}")
}

/// Calls that begin and end, ordered by time.
struct Events<'a> {
    out: &'a mut dyn Write,
    /// ns so far.
    at: u64,
    any: bool,
}

impl Events<'_> {
    fn open(&mut self, frame: usize) -> io::Result<()> {
        self.write('O', frame)
    }

    fn close(&mut self, frame: usize) -> io::Result<()> {
        self.write('C', frame)
    }

    fn write(&mut self, kind: char, frame: usize) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        write!(self.out, "{comma}{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{}}}", self.at)
    }
}

#[cfg(test)]
mod tests;
