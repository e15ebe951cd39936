//! Leaves a frame of V8's code. Its frames are linked by rbp. Below the link lies the context of a
//! function of JavaScript, or else a mark: twice the type of the frame.
//!
//! Only the innermost frame may be half built. Interpreted code is proven by its bytecode; of all
//! other code the walker looks at the instructions (see [`Leave::AsCode`]).

use crate::clock::monotonic;
use crate::model::facts::tables::Tier;
use crate::model::vocabulary::frame::{Marker, RawFrame};
use crate::process::memory::ReadMemory;
use crate::runtimes::v8::builtins::Builtin;
use crate::runtimes::v8::code_objects::Kind;
use crate::runtimes::v8::functions::{Called, shared_of_function};
use crate::runtimes::v8::heap::{object, small};
use crate::runtimes::v8::{BYTECODES_MAX, V8};
use crate::unwinder::{FrameSetup, Leave, Place};

/// Bytes below the link of a frame: the context or mark, the function, the bytecode and its offset.
const CONTEXT: u64 = 8;
const FUNCTION: u64 = 16;
const BYTECODE: u64 = 32;
const OFFSET: u64 = 40;
/// Bytes above the link: the object on which the function was called.
const RECEIVER: u64 = 16;
/// Bytes of baseline code in which it has its frame built.
const BUILDS_WITHIN: u64 = 64;

/// Reads the thread's stack.
type Word<'w> = &'w mut dyn FnMut(u64) -> Option<u64>;

impl<M: ReadMemory> V8<M> {
    /// See [`crate::unwinder::Generated::leave`].
    pub fn leave_frame(&mut self, place: Place, word: Word<'_>, out: &mut Vec<RawFrame>) -> Leave {
        let address = if place.exact { place.pc } else { place.pc.wrapping_sub(1) };
        if let Some(general) = place.general.filter(|_| ![0, self.pid].contains(&self.tid)) {
            self.workers.note(self.tid, general.r13);
        }
        // Frames that were made of an optimised one return to the start of built-in code.
        match self.builtins.at(address).or_else(|| self.builtins.at(place.pc)) {
            Some(builtin) if place.exact => self.leave_executing(builtin, place, word, out),
            Some(builtin) => self.leave_builtin(builtin, place, word, out),
            None => self.leave_generated(place, address, word, out),
        }
    }

    /// Leaves a frame of built-in code that has called.
    fn leave_builtin(
        &mut self,
        builtin: Builtin,
        place: Place,
        word: Word<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        let Some((fp, mark)) = frame(place, word) else { return Leave::End(Marker::BadUnwind) };
        if let Some(context) = object(mark) {
            if let Some(shared) = self.interpreted(fp, word) {
                self.trampolines.insert(builtin.number);
                out.push(self.interpreted_frame(shared, fp, None, word));
                return by_rbp(fp, word);
            }
            if self.trampolines.contains(&builtin.number) {
                out.push(RawFrame::marker(Marker::Torn));
                return by_rbp(fp, word);
            }
            self.note_resumed(place, fp, context, word);
        } else {
            let Some(name) = self.layout.frame_name(mark) else {
                return Leave::End(Marker::BadUnwind);
            };
            if name.contains("Stub") && self.is_handler(fp, word) {
                return by_rbp(fp, word);
            }
        }
        out.extend(self.builtins.frame(place.pc, false));
        by_rbp(fp, word)
    }

    /// Whether the frame at `fp` is that of a bytecode's handler: the interpreter has called it.
    fn is_handler(&mut self, fp: u64, word: Word<'_>) -> bool {
        let Leave::To { pc, rbp: Some(rbp), .. } = by_rbp(fp, word) else { return false };
        self.builtins.covers(pc.wrapping_sub(1))
            && rbp > fp
            && word(rbp.wrapping_sub(CONTEXT)).and_then(object).is_some()
            && self.interpreted(rbp, word).is_some()
    }

    /// Leaves built-in code that is executing.
    fn leave_executing(
        &mut self,
        builtin: Builtin,
        place: Place,
        word: Word<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        let frame = frame(place, word).filter(|(_, mark)| object(*mark).is_some());
        if let Some((fp, _)) = frame {
            if let Some(shared) = self.interpreted(fp, word) {
                // What executes has no frame of its own: it works for this function.
                let top = word(place.sp).filter(|top| self.is_baseline_of(*top, shared));
                if let Some(pc) = top {
                    out.extend(self.builtins.frame(place.pc, true));
                    return Leave::To { pc, sp: place.sp.wrapping_add(8), rbp: Some(fp) };
                }
                // In its handlers the interpreter has the offset in a register.
                let general = place
                    .general
                    .filter(|general| word(fp.wrapping_sub(BYTECODE)) == Some(general.r12));
                let live = general.map(|general| general.r9);
                out.push(self.interpreted_frame(shared, fp, live, word));
                return by_rbp(fp, word);
            }
            if self.is_of_builtin(fp, builtin.number, word) {
                out.extend(self.builtins.frame(place.pc, true));
                return by_rbp(fp, word);
            }
        }
        let Some(frame) = self.builtins.frame(place.pc, true) else { return Leave::Unknown };
        out.push(frame);
        Leave::AsCode { start: builtin.start, setup: FrameSetup::Marked }
    }

    /// Whether `pc` is a return address in baseline code of this function.
    fn is_baseline_of(&mut self, pc: u64, shared: u64) -> bool {
        let V8 { heap, layout, functions, codes, generated, .. } = self;
        let address = pc.wrapping_sub(1);
        if !generated.iter().any(|range| range.contains(&address)) {
            return false;
        }
        let bytecode = functions.get(heap, layout, shared).and_then(|it| it.bytecode.as_ref());
        let Some(bytecode) = bytecode.map(|bytecode| bytecode.at) else { return false };
        let code = codes.get(heap, layout, address);
        code.is_some_and(|code| match &code.kind {
            Kind::Baseline { bytecode: of, .. } => {
                *of == bytecode && address >= code.range.start + BUILDS_WITHIN
            }
            _ => false,
        })
    }

    /// Whether the frame at `fp` is of a function whose code is this built-in one.
    fn is_of_builtin(&mut self, fp: u64, number: usize, word: Word<'_>) -> bool {
        let V8 { heap, layout, functions, .. } = self;
        let function = word(fp.wrapping_sub(FUNCTION)).and_then(object);
        let shared = function.and_then(|function| shared_of_function(heap, layout, function));
        let function = shared.and_then(|shared| functions.get(heap, layout, shared));
        function.is_some_and(|function| function.builtin == Some(number))
    }

    /// Returns the function whose bytecode the frame at `fp` executes, interpreted or as baseline
    /// code: the function that the frame has, if it has the bytecode that the frame has. Functions
    /// move, bytecode hardly ever does. So what was proven once is found by the bytecode.
    fn interpreted(&mut self, fp: u64, word: Word<'_>) -> Option<u64> {
        let bytecode = object(word(fp.wrapping_sub(BYTECODE))?)?;
        let function = object(word(fp.wrapping_sub(FUNCTION))?)?;
        self.function_of(bytecode, Some(function))
    }

    fn function_of(&mut self, bytecode: u64, function: Option<u64>) -> Option<u64> {
        let V8 { heap, layout, functions, by_bytecode, .. } = self;
        let mut has = |shared: u64| {
            let function = functions.get(heap, layout, shared);
            let found = function.and_then(|function| function.bytecode.as_ref());
            found.is_some_and(|found| found.at == bytecode)
        };
        if let Some(shared) = by_bytecode.get(&bytecode)
            && has(*shared)
        {
            return Some(*shared);
        }
        let shared = shared_of_function(heap, layout, function?).filter(|shared| has(*shared))?;
        if by_bytecode.len() >= BYTECODES_MAX {
            by_bytecode.clear();
        }
        by_bytecode.insert(bytecode, shared);
        Some(shared)
    }

    /// Returns the frame of a function that executes its bytecode. `live`: the offset that the
    /// interpreter has in a register, if it is one.
    fn interpreted_frame(
        &mut self,
        shared: u64,
        fp: u64,
        live: Option<u64>,
        word: Word<'_>,
    ) -> RawFrame {
        self.find_class(shared, fp, word);
        let V8 { heap, layout, functions, names, .. } = self;
        let length = functions
            .get(heap, layout, shared)
            .and_then(|function| function.bytecode.as_ref())
            .map_or(0, |bytecode| u64::from(bytecode.length));
        // Offsets count from the tagged address of the bytecode.
        let bias = layout.bytecode_data - 1;
        let offset = |number: u64| {
            let offset = number.checked_sub(bias).filter(|offset| *offset < length)?;
            u32::try_from(offset).ok()
        };
        let saved = word(fp.wrapping_sub(OFFSET)).and_then(small);
        let saved = saved.and_then(|saved| offset(u64::try_from(saved).ok()?));
        let tier = if saved.is_some() { Tier::Interpreted } else { Tier::Baseline };
        let at = live.and_then(offset).or(saved);
        let frame = functions.frame(heap, layout, names, shared, at, Some(tier));
        frame.map_or(RawFrame::marker(Marker::Torn), |(frame, _)| frame)
    }

    /// Searches the class of a function if that is not known: by the frame at `fp`, if it is the
    /// function's.
    fn find_class(&mut self, shared: u64, fp: u64, word: Word<'_>) {
        let V8 { heap, layout, functions, codes, .. } = self;
        if !functions.may_be_method(shared, false) {
            return;
        }
        let mut at = |at: u64| word(at).and_then(object);
        let Some(function) = at(fp.wrapping_sub(FUNCTION)) else { return };
        // A small number has no class that a program defines.
        let Some(receiver) = at(fp.wrapping_add(RECEIVER)) else { return };
        if shared_of_function(heap, layout, function) == Some(shared)
            && functions.find_class(heap, layout, shared, Called::On { function, receiver })
        {
            codes.forget_frames();
        }
    }

    /// Leaves a frame of generated code.
    fn leave_generated(
        &mut self,
        place: Place,
        address: u64,
        word: Word<'_>,
        out: &mut Vec<RawFrame>,
    ) -> Leave {
        let V8 { heap, layout, codes, .. } = self;
        let code = codes.get(heap, layout, address);
        let found = code.map(|code| {
            let setup = match code.kind {
                Kind::Baseline { .. } => Some(FrameSetup::ByCall),
                Kind::Optimized { .. } => Some(FrameSetup::Plain),
                Kind::Other => None,
            };
            (code.range.start, setup)
        });
        let now = monotonic();
        for place in std::mem::take(&mut codes.replaced) {
            self.replaced.add(place, now);
        }
        if self.replaced.since(self.copied, address) {
            return Leave::End(Marker::CodeReplaced);
        }
        let framed = frame(place, word);
        let Some((start, setup)) = found else {
            // WebAssembly has its code elsewhere; its frames are marked.
            let name = framed.and_then(|(_, mark)| self.layout.frame_name(mark));
            return match (framed, name) {
                (Some((fp, _)), Some(name)) if !place.exact && name.contains("Wasm") => {
                    out.push(self.stub_frame(name));
                    by_rbp(fp, word)
                }
                _ => Leave::Unknown,
            };
        };
        let Some(setup) = setup else {
            let name = framed.and_then(|(_, mark)| self.layout.frame_name(mark));
            out.push(self.stub_frame(name.unwrap_or("code")));
            // It builds its frame in its last instructions, which it jumps to first.
            if let (Some((fp, _)), Some("Irregexp")) = (framed, name) {
                return by_rbp(fp, word);
            }
            return Leave::AsCode { start, setup: FrameSetup::Plain };
        };
        let fp = framed.map(|(fp, _)| fp);
        out.push(self.compiled_frame(start, address, fp, word));
        match framed {
            Some((fp, mark))
                if !place.exact
                    && object(mark).is_some()
                    && (setup != FrameSetup::ByCall || address - start >= BUILDS_WITHIN) =>
            {
                by_rbp(fp, word)
            }
            _ => Leave::AsCode { start, setup },
        }
    }

    /// Returns the frame at an address of compiled code. `fp`: where its link is; in code that
    /// builds or leaves its frame it is that of another function.
    fn compiled_frame(
        &mut self,
        start: u64,
        address: u64,
        fp: Option<u64>,
        word: Word<'_>,
    ) -> RawFrame {
        if let Some(frame) = self.codes.frame(start, address) {
            return frame;
        }
        match self.name_compiled(address, fp, word) {
            Some((frame, is_final)) => {
                if is_final {
                    self.codes.remember(start, address, frame);
                }
                frame
            }
            None => RawFrame::marker(Marker::Torn),
        }
    }

    /// Returns the frame, and whether nothing is missing that may be readable later.
    fn name_compiled(
        &mut self,
        address: u64,
        fp: Option<u64>,
        word: Word<'_>,
    ) -> Option<(RawFrame, bool)> {
        let V8 { heap, layout, codes, .. } = self;
        let code = codes.get(heap, layout, address)?;
        if let Kind::Baseline { bytecode, .. } = code.kind {
            let offset = code.bytecode_offset(layout, address);
            let function = fp.and_then(|fp| object(word(fp.wrapping_sub(FUNCTION))?));
            let shared = self.function_of(bytecode, function)?;
            fp.into_iter().for_each(|fp| self.find_class(shared, fp, word));
            let V8 { heap, layout, functions, names, .. } = self;
            let tier = Some(Tier::Baseline);
            return functions.frame(heap, layout, names, shared, offset, tier);
        }
        let parts = code.parts(layout, address)?;
        if let (Some(outer), Some(fp)) = (parts.last(), fp) {
            self.functions.get(heap, layout, outer.shared)?;
            self.find_class(outer.shared, fp, word);
        }
        let V8 { heap, layout, codes, functions, names, .. } = self;
        let context = fp.and_then(|fp| object(word(fp.wrapping_sub(CONTEXT))?));
        let mut renamed = false;
        for inlined in parts.iter().rev().skip(1) {
            functions.get(heap, layout, inlined.shared)?;
            if let Some(context) = context
                && functions.may_be_method(inlined.shared, true)
            {
                let called = Called::Inlined { context };
                renamed |= functions.find_class(heap, layout, inlined.shared, called);
            }
        }
        if renamed {
            codes.forget_frames();
        }
        let (mut locations, mut places, mut is_final) = (Vec::new(), Vec::new(), true);
        for part in parts.iter().rev() {
            functions.get(heap, layout, part.shared)?;
            let tier = if locations.is_empty() { Tier::Optimized } else { Tier::Inlined };
            let (location, place, has_all) =
                functions.location(heap, layout, names, part.shared, part.source, Some(tier))?;
            is_final &= has_all;
            locations.push(location);
            places.push(place);
        }
        Some((names.frame_at(locations, places), is_final))
    }
}

/// Returns where the frame's link is, and the word below it.
fn frame(place: Place, word: Word<'_>) -> Option<(u64, u64)> {
    let fp = place.rbp.filter(|rbp| rbp.is_multiple_of(8) && *rbp >= place.sp)?;
    Some((fp, word(fp.wrapping_sub(CONTEXT))?))
}

fn by_rbp(fp: u64, word: Word<'_>) -> Leave {
    let behind = fp.checked_add(16);
    match (word(fp.wrapping_add(8)), behind, word(fp)) {
        (Some(pc), Some(sp), Some(rbp)) => Leave::To { pc, sp, rbp: Some(rbp) },
        _ => Leave::End(Marker::BadUnwind),
    }
}
