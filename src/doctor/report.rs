//! Facts and verdict, as text and as JSON.

use std::fmt::Write;

use rustix::thread::CapabilitySet;
use serde_json::{Value, json};

use super::facts::{Engine, Facts};
use super::judge::{BackendVerdict, Verdict};
use crate::capture::backend::Kind;

/// Maximum columns of text. Lines to paste are not wrapped.
const WIDTH: usize = 100;

pub fn text(facts: &Facts, verdict: &Verdict) -> String {
    let mut out = String::new();
    for (title, lines) in
        [("", summary(facts, verdict)), ("Capture backends, best first", backends(verdict))]
    {
        section(&mut out, title, &lines);
    }
    if let Some(change) = &verdict.change {
        let title = match change.unlocks {
            Some(backend) => format!("To unlock {}", backend.title()),
            None => "No change here unlocks more".into(),
        };
        section(&mut out, &title, &[("".into(), change.why.clone())]);
        if let Some(line) = &change.line {
            let _ = writeln!(out, "\n    {line}");
        }
    }
    section(&mut out, "Seen here", &seen(facts));
    out
}

fn summary(facts: &Facts, verdict: &Verdict) -> Vec<(String, String)> {
    let whom = match &facts.target {
        Some(target) => format!("process {}", target.pid),
        None => "your own processes".into(),
    };
    let by_stops = verdict
        .backends
        .iter()
        .any(|backend| backend.backend == Kind::Ptrace && backend.lacks.is_none());
    let sentence = match verdict.best {
        Some(Kind::States) if by_stops => format!(
            "sampletop captures {whom} by states: no stacks. With `--capture ptrace` it also shows stacks; that stops running threads, each for microseconds."
        ),
        Some(backend) => format!("sampletop captures {whom} by {}.", backend.title()),
        None => format!("sampletop cannot observe {whom}."),
    };
    vec![("".into(), sentence)]
}

fn backends(verdict: &Verdict) -> Vec<(String, String)> {
    let line = |backend: &BackendVerdict| {
        let words = match &backend.lacks {
            None if backend.backend == Kind::Ptrace => {
                "works; used only with --capture ptrace, because it stops threads".into()
            }
            None => "works".into(),
            Some(lacks) => format!("no: {lacks}. Needs {}", backend.needs),
        };
        (backend.backend.title().to_owned(), words)
    };
    verdict.backends.iter().map(line).collect()
}

fn seen(facts: &Facts) -> Vec<(String, String)> {
    let (kernel, own) = (&facts.kernel, &facts.own);
    let setting = |value: Option<String>| value.unwrap_or_else(|| "not there".into());
    let ours = |first: bool| if first { "the initial one" } else { "not the initial one" };
    let limit = |value: Option<u64>, unit| {
        value.map_or_else(|| "unlimited".into(), |value| format!("{value}{unit}"))
    };
    let mut lines = vec![
        ("kernel", format!("{}, BTF {}", kernel.release, yes_no(kernel.btf))),
        (
            "kernel.perf_event_paranoid",
            setting(kernel.perf_event_paranoid.map(|level| level.to_string())),
        ),
        ("kernel.yama.ptrace_scope", setting(kernel.yama.map(|scope| scope.to_string()))),
        ("lockdown", setting(kernel.lockdown.clone())),
        ("user", format!("{} ({})", own.user, own.uid)),
        ("capabilities, effective", set_words(own.effective)),
        ("capabilities, permitted", set_words(own.permitted)),
        ("capabilities, bounding", set_words(own.bounding)),
        ("no new privileges", yes_no(own.no_new_privileges).into()),
        ("seccomp", own.seccomp.word().into()),
        ("limit of locked memory", limit(own.memlock, " bytes")),
        ("limit of descriptors", limit(own.descriptors, "")),
        ("user namespace", ours(own.first_user_namespace).into()),
        ("pid namespace", ours(own.first_pid_namespace).into()),
        ("container", facts.place.engine.word().into()),
        ("kernel time in samples", yes_no(facts.tried.kernel_visible).into()),
        ("names of kernel functions", yes_no(facts.tried.kernel_names).into()),
    ];
    if let Some(target) = &facts.target {
        let same = |same: Option<bool>| match same {
            Some(true) => "same as sampletop's",
            Some(false) => "differs from sampletop's",
            None => "unreadable",
        };
        lines.extend([
            ("process", format!("{} {}", target.pid, target.command)),
            ("its user", format!("{} ({})", target.user, target.uid)),
            ("its pid namespace", same(target.same_pid_namespace).into()),
            ("its user namespace", same(target.same_user_namespace).into()),
            ("its mount namespace", same(target.same_mount_namespace).into()),
        ]);
    }
    lines.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// Returns the capabilities' names as setcap spells them.
fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names().map(|(name, _)| format!("cap_{}", name.to_lowercase())).collect()
}

fn set_words(set: CapabilitySet) -> String {
    let missing = CapabilitySet::all().difference(set);
    match () {
        () if set.is_empty() => "none".into(),
        () if missing.is_empty() => "all".into(),
        () if missing.bits().count_ones() < 8 => format!("all but {}", names(missing).join(" ")),
        () => names(set).join(" "),
    }
}

/// Writes a title, and names with their values below it. Values are wrapped at blanks and keep
/// their column.
fn section(out: &mut String, title: &str, lines: &[(String, String)]) {
    if !title.is_empty() {
        let _ = writeln!(out, "\n{title}");
    }
    let indent = if title.is_empty() { 0 } else { 2 };
    let column = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let begin = indent + column + if column > 0 { 2 } else { 0 };
    for (name, value) in lines {
        let mut line = format!("{:indent$}{name:column$}", "");
        let mut first = true;
        for word in value.split_whitespace() {
            if !first && line.len() + 1 + word.len() > WIDTH {
                let _ = writeln!(out, "{}", line.trim_end());
                line.clear();
                first = true;
            }
            let wanted = if first { begin } else { line.len() + 1 };
            let _ =
                write!(line, "{:blanks$}{word}", "", blanks = wanted.saturating_sub(line.len()));
            first = false;
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// Returns JSON. Schema `sampletop-doctor/1`: fields may be added, never removed or renamed.
pub fn json(facts: &Facts, verdict: &Verdict) -> String {
    let (kernel, own) = (&facts.kernel, &facts.own);
    let backend = |backend: &BackendVerdict| json!({"name": name(backend.backend), "works": backend.lacks.is_none(), "needs": backend.needs, "lacks": backend.lacks});
    let target = facts.target.as_ref().map(|target| {
        json!({
            "pid": target.pid, "command": target.command, "uid": target.uid, "user": target.user,
            "refused": target.refused,
            "same_namespace": {
                "pid": target.same_pid_namespace, "user": target.same_user_namespace, "mount": target.same_mount_namespace,
            },
        })
    });
    let change = verdict
        .change
        .as_ref()
        .map(|change| json!({"unlocks": change.unlocks.map(name), "why": change.why, "line": change.line}));
    let value: Value = json!({
        "schema": "sampletop-doctor/1",
        "version": env!("CARGO_PKG_VERSION"),
        "kernel": {
            "release": kernel.release, "btf": kernel.btf, "perf_event_paranoid": kernel.perf_event_paranoid,
            "yama_ptrace_scope": kernel.yama, "lockdown": kernel.lockdown,
        },
        "self": {
            "uid": own.uid, "user": own.user,
            "capabilities": {
                "effective": names(own.effective), "permitted": names(own.permitted), "bounding": names(own.bounding),
            },
            "no_new_privileges": own.no_new_privileges, "seccomp": own.seccomp.word(),
            "memlock_bytes": own.memlock, "descriptors": own.descriptors,
            "first_user_namespace": own.first_user_namespace, "first_pid_namespace": own.first_pid_namespace,
        },
        "container": (facts.place.engine != Engine::Host).then(|| facts.place.engine.word()),
        "target": target,
        "ways": verdict.backends.iter().map(backend).collect::<Vec<_>>(),
        "kernel_visible": facts.tried.kernel_visible,
        "kernel_names": facts.tried.kernel_names,
        "best": verdict.best.map(name),
        "change": change,
    });
    let mut text = serde_json::to_string_pretty(&value).unwrap_or_default();
    text.push('\n');
    text
}

/// Returns the backend's word on the command line.
fn name(backend: Kind) -> &'static str {
    match backend {
        Kind::Ptrace => "ptrace",
        other => other.title(),
    }
}
