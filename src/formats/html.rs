//! One self-contained page: a flame graph to explore, and the functions as a table. Opens from disk
//! in any current browser and fetches nothing.
//!
//! ```text
//! page.html    the page's structure; its policy forbids fetching anything
//! style.css    light and dark, wide and narrow
//! profile.js   the tree, its sums under a metric, group or filter, a function's callers,
//!              and where frames are drawn
//! colour.js    by state, whose code, kind or module
//! graph.js     the flame graph: draws its visible part
//! table.js     functions, summed over all their callers
//! main.js      the user's choices, and their effects on the other parts
//! ```
//!
//! Above the graph stand the sentences about what costs most time, as in the live view.
//!
//! A frame says for which locks its stacks waited, and who held them. Deadlocks and all locks are a
//! table above the graph, as text has it.
//!
//! It shows what the settings show, idle time only with `--idle`; the metric, groups and filters
//! can be changed on the page, and its rows: the user's own functions, or all. Names are data: the
//! page sets them as text, never as markup.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::model::facts::snapshot::Snapshot;
use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::{Level, Settings};
use crate::model::projection::{
    Finding, Ordered, Projection, Totals, WaitOfNode, written_findings,
};
use crate::model::vocabulary::role::Role;
use crate::model::vocabulary::state::State;

use super::trees::{self, Functions, Step};
use super::{FRAMELESS, text};

const PAGE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/style.css");
const SCRIPTS: [&str; 5] = [
    include_str!("html/profile.js"),
    include_str!("html/colour.js"),
    include_str!("html/graph.js"),
    include_str!("html/table.js"),
    include_str!("html/main.js"),
];

/// The levels that the page has: its rows, and their order.
const LEVELS: [Level; 2] = [Level::Mine, Level::All];

pub fn write(snapshot: &Snapshot, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let at = |level| trees::project(snapshot, &Settings { level, ..settings.clone() });
    render(snapshot, settings, &LEVELS.map(at), out)
}

/// `projections`: one for each of [`LEVELS`].
pub(super) fn render(
    snapshot: &Snapshot,
    settings: &Settings,
    projections: &[Projection; LEVELS.len()],
    out: &mut dyn Write,
) -> io::Result<()> {
    let data = data(snapshot, settings, projections)?;
    // Each placeholder occurs once in the page.
    let (head, rest) = PAGE.split_once("/*STYLE*/").unwrap_or((PAGE, ""));
    let (body, rest) = rest.split_once("/*DATA*/").unwrap_or((rest, ""));
    let (between, end) = rest.split_once("/*SCRIPT*/").unwrap_or((rest, ""));
    for part in [head, STYLE, body, &data, between] {
        out.write_all(part.as_bytes())?;
    }
    SCRIPTS.iter().try_for_each(|script| out.write_all(script.as_bytes()))?;
    out.write_all(end.as_bytes())
}

/// Name, kind, module, file, line, whose code. For a group the line is its number of threads.
type Function<'a> = (&'a str, &'a str, &'a str, Option<&'a str>, Option<u32>, &'a str);

#[derive(Serialize)]
struct Data<'a> {
    title: String,
    conditions: String,
    /// What costs most time, as the live view has it.
    sentences: Vec<String>,
    head: String,
    /// Deadlocks, and locks that threads waited for, as text has them.
    locks: String,
    /// Numbers of both.
    lock_counts: [usize; 2],
    /// The initial metric: index into wall, cpu, off.
    metric: usize,
    /// ns; the duration over which THR and cores are averaged.
    elapsed: u64,
    /// ns; the resolution of waits.
    interval: u64,
    states: Vec<&'static str>,
    /// The level that is shown first: index into `levels`.
    level: usize,
    levels: Vec<Tree<'a>>,
}

/// The call tree at one level.
#[derive(Default, Serialize)]
struct Tree<'a> {
    functions: Vec<Function<'a>>,
    /// By node in depth-first order, callers first: the parent's index. -1 for the root, whose
    /// children are the groups.
    parents: Vec<i64>,
    /// By node: index into `functions`.
    names: Vec<u32>,
    /// The nodes that stand for what their caller, the user's function, calls elsewhere.
    entries: Vec<i64>,
    /// Own time of nodes: node, cpu ns, hits, hits on a core, then for each state its number and
    /// wall ns.
    own: Vec<Vec<u64>>,
    /// What was waited for, and who held it, as far as `waits` refers to it.
    locks: Vec<String>,
    holders: Vec<String>,
    /// Waits of the stacks that end at a node, in its order: node, index into `locks`, index into
    /// `holders` or -1, ns.
    waits: Vec<[i64; 4]>,
}

/// Returns the data as JSON that no name can break out of.
fn data(
    snapshot: &Snapshot,
    settings: &Settings,
    projections: &[Projection; LEVELS.len()],
) -> io::Result<String> {
    let shown = match settings.level {
        Level::Mine => 0,
        Level::Chains | Level::All => 1,
    };
    let projection = &projections[shown];
    let mut head = Vec::new();
    text::write_head(snapshot, settings, projection, &mut head)?;
    let mut locks = Vec::new();
    text::write_locks(snapshot, settings, projection, &mut locks)?;
    let functions =
        projections.each_ref().map(|projection| Functions::new(projection, settings.metric));
    let data = Data {
        title: trees::title(snapshot),
        conditions: trees::conditions(snapshot, settings, projection),
        sentences: written_findings(snapshot, projection).iter().map(Finding::sentence).collect(),
        head: String::from_utf8_lossy(&head).into_owned(),
        locks: String::from_utf8_lossy(&locks).trim_matches('\n').to_owned(),
        lock_counts: [projection.deadlocks.len(), projection.locks.len()],
        metric: settings.metric as usize,
        elapsed: projection.elapsed(),
        interval: snapshot.resolution(),
        states: State::ALL.map(State::word).to_vec(),
        level: shown,
        levels: projections
            .iter()
            .zip(&functions)
            .map(|(projection, functions)| Tree::new(projection, functions, settings))
            .collect(),
    };
    let json = serde_json::to_string(&data)?;
    // These characters occur only in strings. `<` could begin an end tag or a comment; scripts
    // treat the last two as line ends.
    Ok(json
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029"))
}

impl<'a> Tree<'a> {
    fn new(projection: &'a Projection, functions: &'a Functions, settings: &Settings) -> Tree<'a> {
        let named = functions.list.iter().zip(&functions.roles);
        let mut tree = Tree {
            functions: named.map(|(location, role)| function(location, *role)).collect(),
            locks: (projection.locks.iter())
                .map(|lock| lock.kind.name_of(lock.class.as_deref(), lock.object))
                .collect(),
            ..Tree::default()
        };
        let marker = (FrameKind::Marker.word(), Role::Marker.word());
        tree.functions.push((FRAMELESS, marker.0, "", None, None, marker.1));
        let frameless = tree.functions.len() as u32 - 1;
        tree.functions.push(("all", "group", "", None, None, marker.1));
        tree.node(-1, frameless + 1, &Totals::default());
        let ordered = projection.ordered(settings);
        let mut holders: HashMap<String, i64> = HashMap::new();
        for group in ordered.groups() {
            let group = &projection.groups[group as usize];
            let threads = u32::try_from(group.threads.len()).unwrap_or(u32::MAX);
            tree.functions.push((&group.name, "group", "", None, Some(threads), marker.1));
            let mut path = vec![tree.node(0, tree.functions.len() as u32 - 1, &Totals::default())];
            for step in trees::walk(&ordered, group) {
                let caller = path.last().copied().unwrap_or(0);
                match step {
                    Step::Enter(node) => {
                        let name = functions.of_node[node as usize];
                        let at = tree.node(caller, name, &own_without_entries(&ordered, node));
                        if projection.is_entry(node) {
                            tree.entries.push(at);
                        }
                        for WaitOfNode { lock, holder, waited_ns } in projection.waits_of(node) {
                            let next = holders.len() as i64;
                            let holder = holder.map(|text| *holders.entry(text).or_insert(next));
                            let ns = i64::try_from(waited_ns).unwrap_or(i64::MAX);
                            tree.waits.push([at, lock.into(), holder.unwrap_or(-1), ns]);
                        }
                        path.push(at);
                    }
                    Step::Leave(_) => drop(path.pop()),
                }
            }
            if !group.own.is_empty() {
                tree.node(path[0], frameless, &group.own);
            }
        }
        let mut holders: Vec<(String, i64)> = holders.into_iter().collect();
        holders.sort_by_key(|(_, at)| *at);
        tree.holders = holders.into_iter().map(|(text, _)| text).collect();
        tree
    }

    /// Adds a node; returns its number.
    fn node(&mut self, parent: i64, name: u32, own: &Totals) -> i64 {
        let node = self.parents.len();
        self.parents.push(parent);
        self.names.push(name);
        // A wait may have been seen to begin, and no time of it.
        if !own.is_empty() || own.hits > 0 {
            let states = (0..).zip(own.states_ns).filter(|(_, ns)| *ns > 0);
            let figures = [node as u64, own.cpu_ns, own.hits, own.cpu_hits];
            self.own.push(
                figures.into_iter().chain(states.flat_map(|(state, ns)| [state, ns])).collect(),
            );
        }
        node as i64
    }
}

/// Returns a node's own time without that of its entries, which are frames of the graph too.
fn own_without_entries(ordered: &Ordered<'_>, node: u32) -> Totals {
    let projection = ordered.projection;
    let mut own = ordered.node(node).own;
    for entry in projection.children(node).filter(|child| projection.is_entry(*child)) {
        let entry = ordered.node(entry).total;
        own.wall_ns = own.wall_ns.saturating_sub(entry.wall_ns);
        own.cpu_ns = own.cpu_ns.saturating_sub(entry.cpu_ns);
        own.hits = own.hits.saturating_sub(entry.hits);
        own.cpu_hits = own.cpu_hits.saturating_sub(entry.cpu_hits);
        for (own, entry) in own.states_ns.iter_mut().zip(entry.states_ns) {
            *own = own.saturating_sub(entry);
        }
    }
    own
}

fn function(location: &Location, role: Role) -> Function<'_> {
    (
        &location.function,
        location.kind.word(),
        &location.module,
        location.file.as_deref(),
        location.line,
        role.word(),
    )
}

#[cfg(test)]
mod tests;
