//! One line per stack: `group;outermost;...;innermost VALUE`, as flame graph tools read it.
//!
//! VALUE is the metric's time in whole microseconds; a stack with less than half of one is dropped.
//! The output shows what the settings show, idle time only with `--idle`. A `;` in a name becomes
//! `:`, control characters become blanks; under roll-up `line` a frame is `name:LINE`. A frame of
//! the kernel ends in `_[k]`, by which those tools colour it.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::{RollUp, Settings};
use crate::model::projection::{Node, Projection, project};

use super::FRAMELESS;

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    render(&project(snapshot, settings), settings, out)
}

pub(super) fn render(
    projection: &Projection,
    settings: &Settings,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut stack = String::new();
    // (node, length of its caller's stack): an explicit stack, since a target may recurse to any
    // depth.
    let mut todo: Vec<(u32, usize)> = Vec::new();
    let ordered = projection.ordered(settings);
    for group in ordered.groups() {
        let group = &projection.groups[group as usize];
        stack.clear();
        push(&mut stack, &group.name);
        let depth = stack.len();
        let own = group.own.value(settings.metric);
        if own > 0 {
            push(&mut stack, FRAMELESS);
            line(&stack, own, out)?;
        }
        todo.extend(ordered.roots(group).into_iter().rev().map(|root| (root, depth)));
        while let Some((node, depth)) = todo.pop() {
            let Node { location, own, .. } = ordered.node(node);
            stack.truncate(depth);
            push_frame(&mut stack, location, settings.roll_up);
            let depth = stack.len();
            line(&stack, own.value(settings.metric), out)?;
            todo.extend(ordered.children(node).into_iter().rev().map(|child| (child, depth)));
        }
    }
    Ok(())
}

/// Writes `stack` with its value.
fn line(stack: &str, ns: u64, out: &mut dyn Write) -> io::Result<()> {
    let microseconds = ns.saturating_add(500) / 1000;
    if microseconds == 0 {
        return Ok(());
    }
    writeln!(out, "{} {microseconds}", guarded(stack))
}

/// Protects a stack from misreading. Tools take a blank and a number at a name's end for a second
/// value, as in a difference of two profiles. They take a line that begins with `# ` for a comment.
pub(super) fn guarded(stack: &str) -> Cow<'_, str> {
    let digits = stack.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let second = digits < stack.len() && stack[..digits].ends_with(' ');
    let comment = stack.starts_with("# ");
    if !second && !comment {
        return Cow::Borrowed(stack);
    }
    let mut stack = stack.to_owned();
    if second {
        stack.replace_range(digits - 1..digits, "_");
    }
    if comment {
        stack.replace_range(1..2, "_");
    }
    Cow::Owned(stack)
}

pub(super) fn push_frame(stack: &mut String, location: &Location, roll_up: RollUp) {
    push(stack, &location.function);
    if location.kind == FrameKind::Kernel {
        stack.push_str("_[k]");
    }
    if let (RollUp::Line, Some(line)) = (roll_up, location.line) {
        stack.push_str(&format!(":{line}"));
    }
}

pub(super) fn push(stack: &mut String, name: &str) {
    if !stack.is_empty() {
        stack.push(';');
    }
    let start = stack.len();
    let blank = |c: char| c.is_control() || c.is_whitespace();
    stack.extend(name.trim_matches(blank).chars().map(|c| match c {
        ';' => ':',
        c if blank(c) => ' ',
        c => c,
    }));
    if stack.len() == start {
        stack.push_str("(unnamed)");
    }
}

#[cfg(test)]
mod tests;
