//! Profiles that `sampletop record` makes of Python programs.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::common::Recording;
use crate::report::{Frame, python, text};

/// A node of a group's call tree.
pub struct Node {
    pub parent: Option<usize>,
    /// If it is one of Python.
    pub python: Option<Frame>,
    pub name: String,
    pub kind: String,
    /// Samples of running threads, of this node and those below it.
    pub hits: u64,
}

/// What called a function of Python, or a native function.
pub enum Caller<'a> {
    /// The nearest function of Python above.
    Function(&'a Frame),
    /// No function of Python.
    Nothing,
    /// A marker stands for some of the frames above.
    Unknown,
}

impl<'a> Caller<'a> {
    /// Returns the function, if it is known.
    pub fn function(self) -> Option<&'a Frame> {
        match self {
            Caller::Function(frame) => Some(frame),
            Caller::Nothing | Caller::Unknown => None,
        }
    }
}

/// A recorded profile.
pub struct Profile {
    pub nodes: Vec<Node>,
    /// The field `health`.
    pub health: Value,
}

impl Profile {
    /// Starts a recording with rows for lines, every `interval`.
    pub fn start(pid: u32, interval: &str, options: &[&str]) -> Recording {
        let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        record.args(["record", "-p", &pid.to_string(), "-i", interval, "--format", "json"]);
        record.args(["--no-kernel", "--by", "line"]).args(options);
        Recording::start(&mut record)
    }

    /// Records the process until it has used this CPU time, ms.
    pub fn of(pid: u32, interval: &str, cpu_ms: u64, options: &[&str]) -> Profile {
        let recording = Profile::start(pid, interval, options);
        recording.until_used(pid, cpu_ms);
        Profile::end(recording)
    }

    /// Ends a recording.
    pub fn end(recording: Recording) -> Profile {
        let output = recording.end();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).expect("json");
        let mut nodes = Vec::new();
        for group in report["groups"].as_array().expect("groups") {
            let first = nodes.len();
            let of_group = group["nodes"].as_array().expect("nodes").iter().map(|node| Node {
                parent: node["parent"].as_u64().map(|parent| first + parent as usize),
                python: python(node),
                name: text(&node["frame"]),
                kind: text(&node["kind"]),
                hits: node["cpu_hits"].as_u64().expect("a number"),
            });
            nodes.extend(of_group);
        }
        Profile { nodes, health: report["health"].clone() }
    }

    /// Returns each node's samples that are not those of a node below it.
    pub fn own(&self) -> Vec<u64> {
        let mut own: Vec<u64> = self.nodes.iter().map(|node| node.hits).collect();
        for node in &self.nodes {
            if let Some(parent) = node.parent {
                own[parent] -= node.hits;
            }
        }
        own
    }

    /// Returns what called the function of a node.
    pub fn caller(&self, node: usize) -> Caller<'_> {
        let mut above = self.nodes[node].parent;
        while let Some(at) = above {
            let node = &self.nodes[at];
            if let Some(frame) = &node.python {
                return Caller::Function(frame);
            }
            if node.kind == "marker" {
                return Caller::Unknown;
            }
            above = node.parent;
        }
        Caller::Nothing
    }

    /// Returns the functions of the stack that ends at a node, outermost first, for messages.
    pub fn stack(&self, node: usize) -> String {
        let mut names = Vec::new();
        let mut at = Some(node);
        while let Some(node) = at {
            let Node { python, parent, .. } = &self.nodes[node];
            names.extend(python.as_ref().map(|frame| format!("{}:{}", frame.name, frame.line)));
            at = *parent;
        }
        names.reverse();
        names.join(";")
    }

    /// Returns how many samples are of running threads.
    pub fn hits(&self) -> u64 {
        self.nodes.iter().filter(|node| node.parent.is_none()).map(|node| node.hits).sum()
    }

    /// Returns the markers that stand for frames, and how many samples have each.
    pub fn markers(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        for node in self.nodes.iter().filter(|node| node.kind == "marker") {
            *found.entry(node.name.clone()).or_default() += node.hits;
        }
        found
    }
}
