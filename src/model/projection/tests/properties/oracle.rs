//! A slow, simple and independent implementation of projections, after the documentation.

use super::*;

pub(super) fn totals(fact: &FactSpec) -> Totals {
    let mut totals = Totals {
        wall_ns: fact.wall_ns,
        cpu_ns: fact.cpu_ns,
        hits: fact.hits.into(),
        cpu_hits: fact.cpu_hits.into(),
        longest_ns: fact.longest_ns,
        longest_from: if fact.longest_ns > 0 { fact.longest_from } else { 0 },
        ..Totals::default()
    };
    totals.states_ns[fact.state] = fact.wall_ns;
    totals
}

/// A shown row: its location when first seen, total, self.
pub(super) type Rows = BTreeMap<(String, Vec<String>), (Location, Totals, Totals)>;

pub fn row_name(location: &Location, roll_up: RollUp) -> String {
    let Location { function, module, file, line, .. } = location;
    match roll_up {
        RollUp::Line => format!("{module}!{function} {file:?} {line:?}"),
        _ => format!("{module}!{function}"),
    }
}

/// Returns the location after roll-up.
pub(super) fn rolled(location: &Location, roll_up: RollUp) -> Location {
    let Location { function, module, kind, .. } = location;
    let class = function.rsplit_once("::").map(|(class, _)| class);
    let package = function.split('.').next().filter(|_| is_go(location));
    let name = match (roll_up, kind) {
        (RollUp::Function | RollUp::Line, _) | (_, FrameKind::Marker) => return location.clone(),
        (RollUp::Class | RollUp::Package, FrameKind::Native) if package.is_some() => package,
        (RollUp::Class, FrameKind::Native) => class,
        (RollUp::Class | RollUp::Package, FrameKind::Python) => Some(&**module),
        (RollUp::Package, FrameKind::Native) => class.and_then(|class| class.split("::").next()),
        _ => None,
    };
    let module = if name.is_some() { "".into() } else { module.clone() };
    let function = name.map_or(module.clone(), |name| name.into());
    Location { function, module, file: None, line: None, kind: *kind, tier: None }
}

/// Returns the projection as rows by path.
pub(super) fn rows(projection: &Projection, settings: &Settings) -> Rows {
    let mut rows = Rows::new();
    for group in &projection.groups {
        for root in projection.roots(group) {
            let mut todo = vec![(root, Vec::new())];
            while let Some((index, mut path)) = todo.pop() {
                let node = projection.node(index, settings.metric);
                path.push(row_name(node.location, settings.roll_up));
                todo.extend(projection.children(index).map(|child| (child, path.clone())));
                let row = (Location::clone(node.location), node.total, node.own);
                assert!(
                    rows.insert((group.name.to_string(), path), row).is_none(),
                    "one row, twice"
                );
            }
        }
    }
    assert_eq!(rows.len(), projection.node_count() as usize, "every node is below a root");
    rows
}

/// Computes the expected result, one stack at a time.
pub(super) struct Oracle {
    pub shown: Totals,
    /// threads, daemons, focus, ignore, idle
    pub hidden: [Totals; 7],
    pub rows: BTreeMap<(String, Vec<String>), OracleRow>,
    pub methods: BTreeMap<String, OracleRow>,
    pub groups: BTreeMap<String, (Totals, Totals, BTreeSet<u32>)>,
}

#[derive(Default)]
pub(super) struct OracleRow {
    pub total: Totals,
    pub own: Totals,
    pub lines: Vec<(Location, u64, u64)>,
    pub threads: BTreeSet<u32>,
}

impl OracleRow {
    pub(super) fn add_line(&mut self, location: &Location, totals: &Totals) {
        match self
            .lines
            .iter_mut()
            .find(|(known, ..)| (known.line, &known.file) == (location.line, &location.file))
        {
            Some((_, wall, cpu)) => {
                *wall += totals.wall_ns;
                *cpu += totals.cpu_ns;
            }
            None => self.lines.push((location.clone(), totals.wall_ns, totals.cpu_ns)),
        }
    }

    /// Returns the heaviest line; of equal ones the lowest.
    pub(super) fn line(&self, metric: Metric) -> Option<u32> {
        let value = |wall_ns, cpu_ns: u64| {
            let mut totals = Totals { wall_ns, cpu_ns, ..Totals::default() };
            totals.settle_off();
            totals.value(metric)
        };
        let mut lines: Vec<_> = self
            .lines
            .iter()
            .map(|(l, wall, cpu)| (u64::MAX - value(*wall, *cpu), l.line.is_none(), l.line))
            .collect();
        lines.sort();
        lines.first().and_then(|(.., line)| *line)
    }
}

pub(super) fn matches(filter: &Filter<Regex>, frames: &[Location]) -> Option<bool> {
    filter.active().map(|pattern| frames.iter().any(|l| pattern.is_match(&l.function)))
}

impl Oracle {
    pub(super) fn new(facts: &[FactSpec], settings: &Settings) -> Oracle {
        let mut oracle = Oracle::account(facts, settings, settings.idle);
        if oracle.shown.is_empty() && !oracle.hidden[5].is_empty() {
            oracle = Oracle::account(facts, settings, true);
        }
        oracle
    }

    pub(super) fn account(facts: &[FactSpec], settings: &Settings, show_idle: bool) -> Oracle {
        let mut oracle = Oracle {
            shown: Totals::default(),
            hidden: [Totals::default(); 7],
            rows: BTreeMap::new(),
            methods: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        for fact in facts {
            let frames: Vec<Location> = fact
                .stack
                .iter()
                .flat_map(|frame| FRAMES[*frame].split('+').enumerate())
                .map(|(depth, text)| location(text, depth > 0))
                .collect();
            oracle.fact(fact, &frames, settings, show_idle, facts);
        }
        oracle
    }

    pub(super) fn fact(
        &mut self,
        fact: &FactSpec,
        frames: &[Location],
        settings: &Settings,
        show_idle: bool,
        all: &[FactSpec],
    ) {
        let totals = totals(fact);
        let filters = &settings.filters;
        let (name, kind) = of_kind(NAMES[fact.name]);
        let (by_rules, inner) = GROUPS[fact.name];
        let of_go = go_group(frames).filter(|_| kind != ThreadKind::Internal);
        let (by_rules, inner) = of_go.unwrap_or_else(|| (by_rules.to_owned(), inner));
        let inner = inner.filter(|_| matches!(settings.grouping, Grouping::Rules));
        let group = match &settings.grouping {
            Grouping::Rules => by_rules,
            Grouping::Name => name.to_owned(),
            Grouping::Thread => format!("{name} ({})", fact.tid),
            Grouping::Process => "1 shop --port 80".to_owned(),
            Grouping::Blocker => match (fact.blocker, State::ALL[fact.state]) {
                (Some(blocker), _) => BLOCKERS[blocker].3.to_owned(),
                (None, State::Run | State::Rdy) => "(not waiting)".to_owned(),
                (None, State::Io | State::Poll | State::Disk) => {
                    "(waits for input or output)".to_owned()
                }
                (None, State::Sleep) => "(sleeps)".to_owned(),
                (None, State::Stopped) => "(stopped)".to_owned(),
                (None, State::Lock | State::Wait) => "(waits for something unknown)".to_owned(),
            },
            Grouping::None => "(all)".to_owned(),
            Grouping::Label(_) => "(no labels)".to_owned(),
            Grouping::Frame(pattern) => match frames.iter().find(|l| pattern.is_match(&l.function))
            {
                Some(location) => location.function.to_string(),
                None => "(no match)".to_owned(),
            },
        };
        let called = [Some(name), Some(&group), inner];
        let chosen = |p: &Regex| called.iter().flatten().any(|name| p.is_match(name));
        let reason = if filters.threads.active().is_some_and(|p| !chosen(p)) {
            Some(0)
        } else if filters.skip_daemon && kind != ThreadKind::Plain {
            Some(1)
        } else if matches(&filters.focus, frames) == Some(false) {
            Some(2)
        } else if matches(&filters.ignore, frames) == Some(true) {
            Some(3)
        } else if filters.gil && !frames.iter().any(|l| l.tier == Some(Tier::Gil)) {
            Some(4)
        } else if !show_idle && is_idle(fact, frames, settings) {
            Some(5)
        } else {
            None
        };
        // A filter hides nothing that would be hidden without it.
        let reason = match reason {
            Some(0..5) if !settings.idle && is_idle(fact, frames, settings) => Some(6),
            reason => reason,
        };
        if let Some(reason) = reason {
            self.hidden[reason].add(&totals);
            return;
        }
        self.shown.add(&totals);

        let kernel = |l: &Location| filters.no_kernel && &*l.module == "vmlinux";
        let hidden = |l: &Location| {
            kernel(l) || filters.hide.active().is_some_and(|p| p.is_match(&l.function))
        };
        let is_python = |l: &Location| l.kind == FrameKind::Python;
        let (outermost, innermost) =
            (frames.iter().position(is_python), frames.iter().rposition(is_python));
        // Who names what is interesting means to see it.
        let interesting = |l: &Location| {
            let prefixes = filters.interesting.active().into_iter().flatten();
            prefixes.into_iter().any(|p| {
                let of_file = l.file.as_ref().is_some_and(|file| file.starts_with(p));
                l.function.starts_with(p) || l.module.starts_with(p) || of_file
            })
        };
        let native = |at: usize, l: &Location| {
            let outside = innermost.is_some_and(|python| at < python);
            let inside = outermost.is_some_and(|python| at > python);
            let of_runtime =
                l.module.starts_with("libpython") || l.function.starts_with("runtime.");
            let of_interpreter = of_runtime && !interesting(l);
            match filters.native {
                NativeFrames::Full => false,
                NativeFrames::Auto => {
                    of_interpreter && (outside || (inside && *l.function == *"_PyEval_Vector"))
                }
                NativeFrames::None => {
                    matches!(l.kind, FrameKind::Native | FrameKind::Kernel) && (outside || inside)
                }
            }
        };
        let shown = (0..).zip(frames).filter(|(at, l)| !hidden(l) && !native(*at, l));
        let mut kept: Vec<&Location> = shown.map(|(_, l)| l).collect();
        kept.dedup_by(|a, b| [a, b].iter().all(|l| &*l.function == "[kernel]"));
        if let Some(prefixes) = filters.interesting.active() {
            let begins = |l: &Location, p: &String| {
                l.function.starts_with(p)
                    || l.module.starts_with(p)
                    || l.file.as_ref().is_some_and(|f| f.starts_with(p))
            };
            let innermost = kept.iter().rposition(|l| prefixes.iter().any(|p| begins(l, p)));
            kept.truncate(innermost.map_or(1, |innermost| innermost + 2));
        }

        let wants_core = Location::named("(wants a core)", FrameKind::Marker);
        if settings.level != Level::All && fact.is_woken_from_idle(settings) {
            kept = vec![&wants_core];
        }

        // A thread's own group has its newest name within the group.
        let group = match settings.grouping {
            Grouping::Thread => self.thread_group(fact, settings, show_idle, all),
            _ => group,
        };
        let entry = self.groups.entry(group.clone()).or_default();
        entry.0.add(&totals);
        if kept.is_empty() && inner.is_none() {
            entry.1.add(&totals);
        }
        entry.2.insert(fact.tid);
        let mut path = Vec::new();
        if let Some(inner) = inner {
            let location = Location::named(inner, FrameKind::Thread);
            path.push(row_name(&location, settings.roll_up));
            let row = self.rows.entry((group.clone(), path.clone())).or_default();
            row.total.add(&totals);
            row.add_line(&location, &totals);
            if kept.is_empty() {
                row.own.add(&totals);
            }
        }
        let mut met = BTreeSet::new();
        let mut kept: Vec<Location> = kept.iter().map(|l| rolled(l, settings.roll_up)).collect();
        if settings.roll_up.joins() {
            kept.dedup_by_key(|l| row_name(l, settings.roll_up));
        }
        for (depth, location) in kept.iter().enumerate() {
            let name = row_name(location, settings.roll_up);
            path.push(name.clone());
            let row = self.rows.entry((group.clone(), path.clone())).or_default();
            let method = self.methods.entry(name.clone()).or_default();
            row.total.add(&totals);
            row.add_line(location, &totals);
            method.threads.insert(fact.tid);
            if met.insert(name) {
                method.total.add(&totals);
                method.add_line(location, &totals);
            }
            if depth + 1 == kept.len() {
                row.own.add(&totals);
                method.own.add(&totals);
            }
        }
    }

    /// Returns the last interned of the names under which a thread was shown.
    pub(super) fn thread_group(
        &self,
        fact: &FactSpec,
        settings: &Settings,
        show_idle: bool,
        all: &[FactSpec],
    ) -> String {
        let mut alone = settings.clone();
        alone.grouping = Grouping::Name;
        // The thread filter must get the same names as before.
        let names = |fact: &FactSpec| format!("{} ({})", of_kind(NAMES[fact.name]).0, fact.tid);
        let order = all.iter().map(|f| f.name).fold(Vec::new(), |mut order, name| {
            if !order.contains(&name) {
                order.push(name);
            }
            order
        });
        let shown = all.iter().filter(|other| other.tid == fact.tid).filter(|other| {
            let threads = &settings.filters.threads;
            if threads.active().is_some_and(|p| {
                !p.is_match(of_kind(NAMES[other.name]).0) && !p.is_match(&names(other))
            }) {
                return false;
            }
            alone.filters.threads = Filter::default();
            let alone = Oracle::account(std::slice::from_ref(other), &alone, show_idle);
            !alone.groups.is_empty()
        });
        let newest = shown.max_by_key(|other| order.iter().position(|name| *name == other.name));
        names(newest.unwrap_or(fact))
    }
}

fn is_go(location: &Location) -> bool {
    location.file.as_deref() == Some("/src/app.go")
}

/// Returns the group of a stack of Go, and the row in it.
fn go_group(frames: &[Location]) -> Option<(String, Option<&'static str>)> {
    let frames = frames.iter().filter(|l| l.kind != FrameKind::Kernel);
    let is_missing = |l: &Location| l.kind == FrameKind::Marker;
    let frames: Vec<&Location> = frames.collect();
    let is_c = |l: &&&Location| !is_go(l) && !is_missing(l);
    let without_c = &frames[frames.iter().take_while(is_c).count()..];
    let is_in_c = without_c.len() < frames.len();
    let first = without_c.iter().find(|l| !is_missing(l))?;
    let is_cut = is_missing(without_c[0]);
    match (&*first.function, is_in_c, is_cut) {
        ("runtime.mcall", _, false) => Some(("[Go runtime]".into(), Some("scheduler"))),
        ("runtime.goexit", false, false) => match without_c {
            [_] => Some(("(unknown goroutine)".into(), None)),
            [_, start, ..] if !is_go(start) => Some(("(unknown goroutine)".into(), None)),
            [_, main, called, ..] if &*main.function == "runtime.main" => {
                let is_start = &*called.function == "main.work";
                Some((if is_start { "main.work".into() } else { "runtime.main".into() }, None))
            }
            [_, start, ..] => Some(match &*start.function {
                "runtime.goexit" | "runtime.mcall" => {
                    ("[Go runtime]".into(), Some("other goroutines"))
                }
                start => (start.to_owned(), None),
            }),
            [] => None,
        },
        (_, false, true) if is_go(first) => Some(("(unknown goroutine)".into(), None)),
        _ => None,
    }
}

pub(super) fn is_idle(fact: &FactSpec, frames: &[Location], settings: &Settings) -> bool {
    let is = |l: &Location, text: &str| *l == location(text, false);
    match State::ALL[fact.state] {
        State::Poll => true,
        State::Wait | State::Sleep => {
            let in_loop = frames.iter().rposition(|l| is(l, LOOP)).is_some_and(|innermost| {
                frames[innermost + 1..].iter().all(|l| {
                    let of_python = l.module.starts_with("libpython");
                    is(l, PLUMBING) || of_python || &*l.module == "vmlinux"
                })
            });
            fact.is_internal() || frames.iter().any(|l| only_waits(l, settings)) || in_loop
        }
        _ => false,
    }
}

/// Returns whether this frame only waits for work.
pub(super) fn only_waits(frame: &Location, settings: &Settings) -> bool {
    *frame == location(POOL, false)
        || settings.idle_at.iter().any(|pattern| pattern.is_match(&frame.function))
}
