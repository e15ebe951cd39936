//! A flame graph in one SVG file, drawn by the crate `inferno`: a click zooms, Ctrl-F searches.
//! Opens from disk in any browser and fetches nothing.
//!
//! The outermost frame is the group, the heaviest calls are on the left. It shows what the settings
//! show, idle time only with `--idle`. Calls with less than a ten-thousandth of the time are merged
//! into their caller, and so are calls deeper than [`MAX_DEPTH`] frames. So the file stays small
//! for any profile.

use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Options, TextTruncateDirection};

use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::FrameKind;
use crate::model::projection::settings::Settings;
use crate::model::projection::{Group, Ordered, Projection, project};
use crate::model::vocabulary::role::Role;

use super::trees::{self, Step};
use super::{FRAMELESS, folded};

/// Maximum frames of a stack, including its group; an image of 8,000 pixels.
const MAX_DEPTH: usize = 500;
/// Minimum share that a frame needs to be drawn: one in this many of the whole time.
const MIN_SHARE_DIVISOR: u64 = 10_000;

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    render(snapshot, settings, &project(snapshot, settings), out)
}

pub(super) fn render(
    snapshot: &Snapshot,
    settings: &Settings,
    projection: &Projection,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut stacks = Stacks { lines: Vec::new(), colors: PaletteMap::default(), total: 0 };
    // The default for all frames.
    stacks.colors.insert("", GREY);
    stacks.fill(settings, projection);
    let title = drawable(&format!("{}: {} time", trees::title(snapshot), settings.metric.word()));
    let subtitle = drawable(&trees::conditions(snapshot, settings, projection));
    if stacks.total == 0 {
        return writeln!(
            out,
            "<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"60\">\
             <text x=\"10\" y=\"30\">no {} time was seen</text></svg>",
            settings.metric.word()
        );
    }
    // The crate rounds figures to whole units, shares included.
    let (unit, ns) = if stacks.total < 10_000_000_000 { ("us", 1e3) } else { ("ms", 1e6) };
    let mut options = Options::default();
    options.title = title;
    options.subtitle = Some(subtitle);
    options.count_name = unit.into();
    options.factor = 1.0 / ns;
    options.min_width = 0.0;
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 251, g: 251, b: 250 }));
    options.palette_map = Some(&mut stacks.colors);
    options.text_truncate_direction = TextTruncateDirection::Right;
    // In the order of the lines, which the crate reverses, and not by name.
    options.flame_chart = true;
    flamegraph::from_lines(&mut options, stacks.lines.iter().rev().map(String::as_str), out)
}

/// Lines as in `folded`, in nanoseconds.
struct Stacks {
    lines: Vec<String>,
    colors: PaletteMap,
    total: u64,
}

impl Stacks {
    fn fill(&mut self, settings: &Settings, projection: &Projection) {
        let metric = settings.metric;
        let weights = trees::weights(projection, metric);
        let of_group = |group: &Group| {
            let roots = projection.roots(group).map(|root| weights[root as usize]);
            group.own.value(metric) + roots.sum::<u64>()
        };
        self.total = projection.groups.iter().map(of_group).sum();
        let least = (self.total / MIN_SHARE_DIVISOR).max(1);
        let ordered = projection.ordered(settings);
        for group in ordered.groups() {
            let group = &projection.groups[group as usize];
            if of_group(group) >= least {
                self.group(&ordered, group, &weights, least, settings);
            }
        }
    }

    fn group(
        &mut self,
        ordered: &Ordered<'_>,
        group: &Group,
        weights: &[u64],
        least: u64,
        settings: &Settings,
    ) {
        let mut stack = String::new();
        folded::push(&mut stack, &group.name);
        self.paint(&mut stack, 0, (FrameKind::Thread, Role::Marker));
        let own = group.own.value(settings.metric);
        if own >= least {
            let caller = stack.len();
            folded::push(&mut stack, FRAMELESS);
            self.paint(&mut stack, caller, (FrameKind::Marker, Role::Marker));
            self.line(&stack, own);
            stack.truncate(caller);
        }
        // For every frame on the stack: the length of its caller's stack, and its time that no
        // drawn callee has.
        let mut open = vec![(0, if own >= least { 0 } else { own })];
        // The omitted call, with everything that it calls.
        let mut dropped = None;
        for step in trees::walk(ordered, group) {
            match step {
                Step::Enter(_) if dropped.is_some() => {}
                Step::Enter(node) if weights[node as usize] < least || open.len() >= MAX_DEPTH => {
                    dropped = Some(node);
                    if let Some((_, time)) = open.last_mut() {
                        *time += weights[node as usize];
                    }
                }
                Step::Enter(node) => {
                    let shown = ordered.node(node);
                    open.push((stack.len(), shown.own.value(settings.metric)));
                    let caller = stack.len();
                    folded::push_frame(&mut stack, shown.location, settings.roll_up);
                    let role = ordered.projection.role(node);
                    self.paint(&mut stack, caller, (shown.location.kind, role));
                }
                Step::Leave(node) if dropped == Some(node) => dropped = None,
                Step::Leave(_) if dropped.is_some() => {}
                Step::Leave(_) => {
                    let (caller, time) = open.pop().unwrap_or_default();
                    self.line(&stack, time);
                    stack.truncate(caller);
                }
            }
        }
        self.line(&stack, open.pop().unwrap_or_default().1);
    }

    /// Makes the name after the caller's stack parseable and drawable, and sets its colour.
    fn paint(&mut self, stack: &mut String, caller: usize, code: (FrameKind, Role)) {
        let start = if caller == 0 { 0 } else { caller + 1 };
        let name = drawable(&folded::guarded(&stack[start..]));
        stack.truncate(start);
        stack.push_str(&name);
        self.colors.insert(&name, color(code, &name));
    }

    fn line(&mut self, stack: &str, ns: u64) {
        if ns > 0 {
            self.lines.push(format!("{stack} {ns}"));
        }
    }
}

/// Replaces characters that XML does not allow, not even escaped.
fn drawable(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'), "\u{fffd}")
}

const GREY: Color = Color { r: 208, g: 208, b: 212 };

/// Returns the colour of the kind, paler where it is not the user's own code. Functions of a kind
/// differ slightly, by their names, so that neighbours are distinguishable.
fn color((kind, role): (FrameKind, Role), name: &str) -> Color {
    // FNV-1a: the same colour in every file.
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let shade = (hash >> 32) as u8 % 48;
    let (r, g, b) = match kind {
        FrameKind::Native => (240, 150 + shade, 70 + shade),
        FrameKind::Java => (110 + shade, 200, 110 + shade),
        FrameKind::Python => (235, 205, 70 + shade),
        FrameKind::Jit => (80 + shade, 200, 190),
        FrameKind::Kernel => (190, 140 + shade, 225),
        FrameKind::Marker => (175, 175, 180),
        FrameKind::Thread => return GREY,
    };
    // What is not the user's own is paler.
    let pale = match role {
        Role::App | Role::Kernel | Role::Marker => 0,
        Role::Library => 5,
        Role::Runtime | Role::Wait => 8,
    };
    let mix = |part: u8| ((u16::from(part) * (10 - pale) + 235 * pale) / 10) as u8;
    Color { r: mix(r), g: mix(g), b: mix(b) }
}

#[cfg(test)]
mod tests;
