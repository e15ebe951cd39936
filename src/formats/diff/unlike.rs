//! The conditions under which the two profiles were made. A different condition may explain
//! different figures.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Profile, Report};
use crate::formats::base;
use crate::formats::dates;
use crate::formats::program;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::Projection;
use crate::model::vocabulary::frame::Ns;

/// One condition of both profiles.
pub struct Condition {
    /// The name in text; json has it in lower case.
    pub name: &'static str,
    pub before: String,
    pub after: String,
    /// The difference is large enough to matter.
    pub differs: bool,
}

/// Conditions that only sampletop's own profiles record.
const OWN: &[&str] = &["Interval", "Samples", "Names", "Memory", "Version", "Cores"];
const NOT_RECORDED: &str = "not told";

pub fn conditions(report: &Report<'_>) -> Vec<Condition> {
    let sides = [
        (&report.profiles.before, &report.projections.before),
        (&report.profiles.after, &report.projections.after),
    ];
    let condition = |name, text: &dyn Fn(&Profile<'_>, &Projection) -> String, differs: bool| {
        let [before, after] = sides.map(|(profile, projection)| {
            let told = !(profile.snapshot.session.is_foreign() && OWN.contains(&name));
            Some(text(profile, projection))
                .filter(|text| told && !text.is_empty())
                .unwrap_or_else(|| NOT_RECORDED.into())
        });
        Condition { name, before, after, differs }
    };
    // Equal words mean equal conditions.
    let same = |name, text: &dyn Fn(&Snapshot) -> String| {
        let condition = condition(name, &|profile, _| text(profile.snapshot), false);
        Condition { differs: condition.before != condition.after, ..condition }
    };
    let of = |f: &dyn Fn(&Snapshot) -> f64| sides.map(|(profile, _)| f(profile.snapshot));
    let elapsed = sides.map(|(_, projection)| projection.elapsed() as f64);
    let interval = of(&|snapshot| snapshot.resolution() as f64);
    let missed = of(&missed);
    let builds = Builds::new(sides.map(|(profile, _)| profile.snapshot));
    vec![
        condition("File", &|profile, _| profile.name.to_owned(), false),
        same("Command", &|snapshot| listed(snapshot.targets.iter().map(|target| &*target.command))),
        condition(
            "Process",
            &|profile, _| listed(profile.snapshot.targets.iter().map(|t| t.pid.to_string())),
            false,
        ),
        condition("Builds", &|profile, _| builds.text(profile.snapshot), builds.differ()),
        same("Runtime", &|snapshot| listed(snapshot.targets.iter().map(|target| target.runtime))),
        same("Host", &|snapshot| snapshot.session.host.clone()),
        same("Kernel", &|snapshot| snapshot.session.kernel.clone()),
        same("Cores", &|snapshot| {
            format!("{} for the target", snapshot.session.cores_milli as f64 / 1000.0)
        }),
        condition(
            "From",
            &|profile, projection| {
                let at = dates::unix_ns(&profile.snapshot.session, projection.from);
                format!("{} UTC", dates::utc(at))
            },
            false,
        ),
        condition(
            "Elapsed",
            &|_, projection| format!("{:.3} s", projection.elapsed() as f64 / 1e9),
            apart(elapsed, 0.02),
        ),
        same("Capture", &|snapshot| snapshot.capture.to_string()),
        condition(
            "Interval",
            &|profile, _| {
                let asked = profile.snapshot.session.interval_ns;
                format!(
                    "{} asked, {} got",
                    ms(asked),
                    ms(profile.snapshot.health.interval_achieved_ns)
                )
            },
            apart(interval, 0.2),
        ),
        condition(
            "Samples",
            &|profile, _| {
                let losses = &profile.snapshot.health.losses;
                let failed = losses.unwind_failed + losses.truncated + losses.torn;
                format!("{} stacks, {failed} not whole, {} dropped", losses.samples, losses.dropped)
            },
            (missed[0] - missed[1]).abs() > 0.01,
        ),
        same("Names", &|snapshot| match snapshot.health.naming {
            true => "some functions have no name yet".into(),
            false => "complete".into(),
        }),
        same("Memory", &|snapshot| match (
            snapshot.health.folded_facts,
            snapshot.health.dropped_buckets,
        ) {
            (0, 0) => "nothing folded".into(),
            (folded, dropped) => {
                format!("{folded} facts folded into (other), {dropped} spans dropped")
            }
        }),
        same("Version", &|snapshot| format!("sampletop {}", snapshot.session.version)),
    ]
}

/// The builds to list: those of the program, and other modules of which the two profiles have
/// different builds.
struct Builds {
    /// Names of modules.
    listed: Vec<Arc<str>>,
    differing: BTreeSet<Arc<str>>,
}

impl Builds {
    fn new(sides: [&Snapshot; 2]) -> Builds {
        let [before, after] = sides.map(|snapshot| snapshot.tables.builds());
        let other = |(module, builds): &(&Arc<str>, &BTreeSet<Arc<str>>)| {
            after.get(*module).is_some_and(|after| after != *builds)
        };
        let differing: BTreeSet<Arc<str>> =
            before.iter().filter(other).map(|(module, _)| module.clone()).collect();
        let programs: BTreeSet<&str> =
            sides.iter().flat_map(|side| side.targets.iter().map(program)).collect();
        let all: BTreeSet<&Arc<str>> = before.keys().chain(after.keys()).collect();
        let (of_program, others): (Vec<&Arc<str>>, Vec<_>) =
            all.into_iter().partition(|module| programs.contains(base(module)));
        let others = others.into_iter().filter(|module| differing.contains(*module));
        Builds { listed: of_program.into_iter().chain(others).cloned().collect(), differing }
    }

    fn text(&self, snapshot: &Snapshot) -> String {
        let builds = snapshot.tables.builds();
        let told = self.listed.iter().filter_map(|module| Some((module, builds.get(module)?)));
        let short = |id: &Arc<str>| id.chars().take(12).collect::<String>();
        let text = told.map(|(module, ids)| {
            let ids: Vec<String> = ids.iter().map(short).collect();
            format!("{} {}", base(module), ids.join(" and "))
        });
        text.collect::<Vec<_>>().join(", ")
    }

    fn differ(&self) -> bool {
        !self.differing.is_empty()
    }
}

/// Returns the share of all stacks that is missing or incomplete.
fn missed(snapshot: &Snapshot) -> f64 {
    let losses = &snapshot.health.losses;
    let missed = losses.dropped + losses.unwind_failed + losses.truncated + losses.torn;
    missed as f64 / (losses.samples + losses.dropped).max(1) as f64
}

/// Returns whether the two differ by more than this part of the greater.
fn apart([a, b]: [f64; 2], part: f64) -> bool {
    (a - b).abs() > part * a.max(b)
}

/// Joins the words, each once, in their order.
fn listed(words: impl Iterator<Item = impl Into<String>>) -> String {
    let mut listed: Vec<String> = Vec::new();
    for word in words.map(Into::into) {
        if !listed.contains(&word) {
            listed.push(word);
        }
    }
    listed.join(", ")
}

fn ms(ns: Ns) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}
