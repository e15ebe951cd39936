//! Converts locations of a profile.proto to frames, with names and kinds of code.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::build::{Builder, is_marker};
use super::file::File;
use crate::formats::pprof::proto::{Line, Location as At, Mapping};
use crate::formats::pprof::{JAVA, KERNEL_PROPER};
use crate::model::facts::tables::{FrameKind, Location, Tier};
use crate::model::vocabulary::frame::RawFrame;

/// Frames by the ids of their locations.
pub struct Places<'a> {
    file: &'a File<'a>,
    strings: HashMap<i64, Arc<str>>,
    frames: HashMap<u64, RawFrame>,
    /// Number of frames that samples refer to and the file lacks.
    pub missing: u64,
}

impl<'a> Places<'a> {
    pub fn new(file: &'a File<'a>) -> Places<'a> {
        Places { file, strings: HashMap::new(), frames: HashMap::new(), missing: 0 }
    }

    pub fn frame(&mut self, id: u64, builder: &mut Builder) -> Option<RawFrame> {
        if let Some(frame) = self.frames.get(&id) {
            return Some(*frame);
        }
        let Some(at) = self.file.locations.get(&id) else {
            self.missing += 1;
            return None;
        };
        let build_id = self.file.mappings.get(&at.mapping_id).map_or(0, |mapping| mapping.build_id);
        let build_id = Some(self.string(build_id)).filter(|build_id| !build_id.is_empty());
        let frame = builder.frame(self.locations(at), build_id);
        self.frames.insert(id, frame);
        Some(frame)
    }

    fn string(&mut self, index: i64) -> Arc<str> {
        self.strings.entry(index).or_insert_with(|| self.file.text(index).into()).clone()
    }

    /// Returns the function, then the functions inlined into it.
    fn locations(&mut self, at: &At) -> Vec<Location> {
        let file = self.file;
        let mapping = file.mappings.get(&at.mapping_id);
        let module = mapping.map_or_else(|| "".into(), |mapping| self.string(mapping.filename));
        let mut lines: Vec<Line> = at.line.iter().rev().copied().collect();
        if lines.is_empty() {
            lines.push(Line::default());
        }
        let mut locations = Vec::new();
        for (nth, line) in lines.into_iter().enumerate() {
            let function = file.functions.get(&line.function_id).copied().unwrap_or_default();
            let name =
                self.string(if function.name == 0 { function.system_name } else { function.name });
            let source = self.string(function.filename);
            let kind = kind(&module, &name, &source);
            let function = if name.is_empty() { unnamed(at, mapping, &module) } else { name };
            let module = match kind {
                // A Java function's module is its class.
                FrameKind::Java => function.rsplit_once('.').map_or("", |(class, _)| class).into(),
                FrameKind::Kernel if !module.starts_with("[kernel") => {
                    module.trim_matches(['[', ']']).into()
                }
                _ => module.clone(),
            };
            let file = Some(source).filter(|source| !source.is_empty());
            let line = u32::try_from(line.line).ok().filter(|line| *line > 0);
            let tier = (nth > 0).then_some(Tier::Inlined);
            locations.push(Location { function, module, file, line, kind, tier });
        }
        locations
    }
}

pub(super) fn kind(module: &str, name: &str, source: &str) -> FrameKind {
    match module {
        JAVA => FrameKind::Java,
        "" if is_marker(name) => FrameKind::Marker,
        "[perf map]" | "[runtime]" => FrameKind::Jit,
        module if is_kernel(module) => FrameKind::Kernel,
        // Code that a runtime compiles from source as it runs.
        module if !module.is_empty() && module == source => FrameKind::Jit,
        _ if source.ends_with(".java") => FrameKind::Java,
        _ if source.ends_with(".py") => FrameKind::Python,
        _ => FrameKind::Native,
    }
}

/// Returns whether the mapping is the kernel or one of its modules: perf calls those
/// `[kernel.kallsyms]` and `[nf_tables]`.
fn is_kernel(mapping: &str) -> bool {
    if mapping.starts_with("[kernel")
        || mapping.starts_with("[guest.kernel")
        || mapping == KERNEL_PROPER
    {
        return true;
    }
    let inner = mapping.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(|name| {
        let of_programs =
            ["vdso", "vsyscall", "vvar", "heap", "stack", "anon", "uprobes", "unknown"];
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !of_programs.contains(&name)
    })
}

/// Names code without a symbol by its address.
fn unnamed(at: &At, mapping: Option<&Mapping>, module: &str) -> Arc<str> {
    let start = mapping.map_or(0, |mapping| mapping.memory_start.wrapping_sub(mapping.file_offset));
    let base = module.rsplit('/').next().unwrap_or("");
    match base {
        "" => format!("0x{:x}", at.address).into(),
        base => format!("{base}!0x{:x}", at.address.wrapping_sub(start)).into(),
    }
}
