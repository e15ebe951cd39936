//! All choices of the user about what is shown. A change reads the history again; facts never
//! change.

mod parse;

use std::sync::Arc;

pub use parse::pattern;

pub use crate::model::facts::history::Range;
pub use crate::model::vocabulary::thread_name_rules::Rename;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Metric {
    #[default]
    Wall,
    Cpu,
    /// Wall minus cpu, floored at 0 per row.
    Off,
}

impl Metric {
    pub const ALL: [Metric; 3] = [Metric::Wall, Metric::Cpu, Metric::Off];
    pub fn word(self) -> &'static str {
        match self {
            Metric::Wall => "wall",
            Metric::Cpu => "cpu",
            Metric::Off => "off",
        }
    }
    /// Returns the metric whose share is drawn beside that of this one.
    pub fn beside(self) -> Metric {
        match self {
            Metric::Wall | Metric::Off => Metric::Cpu,
            Metric::Cpu => Metric::Wall,
        }
    }
}

/// The unit that one row stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RollUp {
    #[default]
    Function,
    Line,
    /// The class, type or namespace that owns the function.
    Class,
    /// Java package, outermost C++ namespace, Rust crate.
    Package,
    /// Shared object.
    Module,
}

impl RollUp {
    pub const ALL: [RollUp; 5] =
        [RollUp::Function, RollUp::Line, RollUp::Class, RollUp::Package, RollUp::Module];
    pub fn word(self) -> &'static str {
        match self {
            RollUp::Function => "function",
            RollUp::Line => "line",
            RollUp::Class => "class",
            RollUp::Package => "package",
            RollUp::Module => "module",
        }
    }
    /// Returns the heading of the column of names.
    pub fn heading(self) -> &'static str {
        match self {
            RollUp::Function | RollUp::Line => "FUNCTION",
            RollUp::Class => "CLASS",
            RollUp::Package => "PACKAGE",
            RollUp::Module => "MODULE",
        }
    }
    /// Returns the word for several rows.
    pub fn plural(self) -> &'static str {
        match self {
            RollUp::Function => "functions",
            RollUp::Line => "lines",
            RollUp::Class => "classes",
            RollUp::Package => "packages",
            RollUp::Module => "modules",
        }
    }
    /// Returns whether calls within one unit are joined to one row.
    pub fn joins(self) -> bool {
        !matches!(self, RollUp::Function | RollUp::Line)
    }
}

/// Which frames are rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Level {
    /// The user's functions; what they call elsewhere is one row per entry below them. A stack
    /// without any has its outermost library function.
    Mine,
    /// All frames; chains of calls share a line where a view can do that.
    Chains,
    /// All frames, each on a line of its own.
    #[default]
    All,
}

impl Level {
    pub const ALL: [Level; 3] = [Level::Mine, Level::Chains, Level::All];
    pub fn word(self) -> &'static str {
        match self {
            Level::Mine => "mine",
            Level::Chains => "chains",
            Level::All => "all",
        }
    }
}

/// Which native frames of stacks with Python frames are shown. Stacks without any are not touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NativeFrames {
    /// All but the interpreter's own between Python functions and around them.
    #[default]
    Auto,
    Full,
    /// None, and none of the kernel: their time goes to the Python function that called them.
    None,
}

impl NativeFrames {
    pub const ALL: [NativeFrames; 3] = [NativeFrames::Auto, NativeFrames::Full, NativeFrames::None];
    pub fn word(self) -> &'static str {
        match self {
            NativeFrames::Auto => "auto",
            NativeFrames::Full => "full",
            NativeFrames::None => "none",
        }
    }
}

/// The user's correction of whose code matching frames are.
#[derive(Clone, Debug)]
pub struct Whose {
    /// Matched on function, module and file.
    pub pattern: regex::Regex,
    /// The user's own code; else it is a library's.
    pub mine: bool,
}

/// The grouping of threads.
#[derive(Clone, Debug, Default)]
pub enum Grouping {
    /// Its name after [`Settings::rename`]'s rules.
    #[default]
    Rules,
    /// Its raw name.
    Name,
    Thread,
    Process,
    /// What it waits for: one group per lock.
    Blocker,
    None,
    /// The labels that the program gave to its work; with a key: the value of that one.
    Label(Option<Arc<str>>),
    /// The first (outermost) frame that matches.
    Frame(regex::Regex),
}

impl Grouping {
    pub fn word(&self) -> &'static str {
        match self {
            Grouping::Rules => "rules",
            Grouping::Name => "name",
            Grouping::Thread => "thread",
            Grouping::Process => "process",
            Grouping::Blocker => "blocker",
            Grouping::None => "none",
            Grouping::Label(_) => "label",
            Grouping::Frame(_) => "frame",
        }
    }

    /// Returns the text that [`Grouping::parse`] reads as this one.
    pub fn typed(&self) -> String {
        match self {
            Grouping::Label(Some(key)) => format!("label:{key}"),
            Grouping::Frame(pattern) => format!("frame:{pattern}"),
            other => other.word().to_owned(),
        }
    }
}

/// A filter that can be switched off and keeps its value.
#[derive(Clone, Debug)]
pub struct Filter<T> {
    pub value: Option<T>,
    pub on: bool,
}

impl<T> Default for Filter<T> {
    fn default() -> Filter<T> {
        Filter { value: None, on: false }
    }
}

impl<T> Filter<T> {
    pub fn set(value: T) -> Filter<T> {
        Filter { value: Some(value), on: true }
    }
    /// Returns the value, if there is one and it is switched on.
    pub fn active(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.on)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Filters {
    /// Keep root .. the interesting frame nearest the leaf, plus one callee, which takes the rest
    /// as self time. An interesting leaf keeps itself; without a match the root frame is kept.
    /// Prefixes of function, file or module.
    pub interesting: Filter<Vec<String>>,
    /// Show only stacks with a matching frame.
    pub focus: Filter<regex::Regex>,
    /// Hide stacks with a matching frame.
    pub ignore: Filter<regex::Regex>,
    /// Remove matching frames from their stacks; their self time goes to their caller.
    pub hide: Filter<regex::Regex>,
    /// Remove kernel frames from their stacks; their self time goes to the function that called the
    /// kernel.
    pub no_kernel: bool,
    pub native: NativeFrames,
    /// Show only threads whose raw name or group matches.
    pub threads: Filter<regex::Regex>,
    /// Hide threads that do not keep their program running: daemon threads, and a runtime's own.
    pub skip_daemon: bool,
    /// Show only stacks whose thread holds the lock of its Python interpreter (GIL).
    pub gil: bool,
    /// Minimum share of a drawn row, percent of the shown total.
    pub min_percent: Filter<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SortColumn {
    /// Cumulative time.
    #[default]
    Total,
    /// Method time.
    SelfTime,
    Threads,
    /// Time in [`Metric::beside`].
    Cpu,
    State,
    Name,
    /// Number of observations.
    Hits,
    /// Change from the older half of the range to the newer: what grew first, then what is not
    /// known to have changed. [`SortColumn::Total`] where changes are unknown.
    Change,
    Module,
}

impl SortColumn {
    pub const ALL: [SortColumn; 9] = [
        SortColumn::Total,
        SortColumn::SelfTime,
        SortColumn::Threads,
        SortColumn::Cpu,
        SortColumn::State,
        SortColumn::Name,
        SortColumn::Hits,
        SortColumn::Change,
        SortColumn::Module,
    ];
    pub fn word(self) -> &'static str {
        match self {
            SortColumn::Total => "total",
            SortColumn::SelfTime => "self",
            SortColumn::Threads => "threads",
            SortColumn::Cpu => "cpu",
            SortColumn::State => "state",
            SortColumn::Name => "name",
            SortColumn::Hits => "hits",
            SortColumn::Change => "change",
            SortColumn::Module => "module",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub metric: Metric,
    pub roll_up: RollUp,
    pub grouping: Grouping,
    /// Applied in order under [`Grouping::Rules`], after the default rules.
    pub rename: Vec<Rename>,
    pub filters: Filters,
    pub level: Level,
    /// Of several that match a frame, the last holds.
    pub whose: Vec<Whose>,
    pub range: Range,
    /// Show time spent waiting for work.
    pub idle: bool,
    /// Additional frames, beyond the built-in list, whose blocked stacks wait for work; matched on
    /// function names.
    pub idle_at: Vec<regex::Regex>,
    pub sort: SortColumn,
    pub reverse: bool,
    /// The inverted tree is wanted too.
    pub inverted: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            metric: Metric::Wall,
            roll_up: RollUp::Function,
            grouping: Grouping::Rules,
            rename: Vec::new(),
            filters: Filters::default(),
            level: Level::default(),
            whose: Vec::new(),
            range: Range::Rolling(30 * crate::model::vocabulary::frame::SECOND),
            idle: false,
            idle_at: Vec::new(),
            sort: SortColumn::Total,
            reverse: false,
            inverted: false,
        }
    }
}
