//! libunwind, through ptrace: the unwinder of the `ptrace` backend with `--unwinder libunwind`, and
//! the independent reference for framehop's stacks in the tests. It reads registers and memory of a
//! *stopped* thread word by word, a few hundred times slower than walking a copied stack.

use std::time::Instant;

use unwind::{Accessors, AddressSpace, Byteorder, Cursor, PTraceState, RegNum};

use crate::model::vocabulary::frame::{Marker, RawFrame};
use crate::process::mapped_files::{FileKind, Files};
use crate::process::maps::Maps;
use crate::process::memory::ReadMemory;
use crate::unwinder::Walk;
use crate::unwinder::framehop::code::{Code, ResolvedAddress, Step};
use crate::unwinder::framehop::deep_stacks;
use crate::unwinder::framehop::unwind_tables::Rule;
use crate::unwinder::framehop::walk::FRAMES_MAX;

/// Walks the stopped threads of one process.
pub struct LibunwindUnwinder<M> {
    memory: M,
    files: Files,
    /// The files of addresses, and whether the last address is marked as the outermost.
    code: Code,
}

impl<M: ReadMemory> LibunwindUnwinder<M> {
    /// Creates an unwinder; frames name their files by ids from `files`.
    pub fn new(memory: M, files: Files, pid: u32) -> LibunwindUnwinder<M> {
        let code = Code::new(files.clone(), pid, Box::new(move || Maps::read(pid)));
        LibunwindUnwinder { memory, files, code }
    }

    /// Drops everything known about the process's code, after an exec.
    pub fn invalidate(&mut self) {
        self.code.invalidate();
    }

    /// Appends the frames of thread `tid`, innermost first; if the stack is not proven whole the
    /// last one is a marker.
    ///
    /// The thread must be in a ptrace-stop whose tracer is the calling thread, and stays stopped
    /// for the whole walk.
    pub fn walk_stopped(&mut self, tid: u32, out: &mut Vec<RawFrame>) -> Walk {
        self.code.refresh(Instant::now());
        let first = out.len();
        let end = match self.frames(tid, out) {
            Ok(end) => end,
            Err(_) => Some(self.marker(Marker::BadUnwind, out)),
        };
        deep_stacks::fold(out, first);
        Walk { end, recovered: false }
    }

    fn frames(&mut self, tid: u32, out: &mut Vec<RawFrame>) -> unwind::Result<Option<Marker>> {
        // Created for each walk: libunwind's own cache would not notice replaced libraries.
        let space = AddressSpace::new(Accessors::ptrace(), Byteorder::DEFAULT)?;
        let state = PTraceState::new(tid)?;
        let mut cursor = Cursor::remote(&space, &state)?;
        let first = out.len();
        let mut exact = true;
        loop {
            if out.len() - first >= FRAMES_MAX - 1 {
                return Ok(Some(self.marker(Marker::TooDeep, out)));
            }
            let pc = cursor.register(RegNum::IP)?;
            let Some(resolved) = self.code.resolve(&self.memory, pc, exact) else {
                return Ok(Some(self.marker(Marker::OutsideMaps, out)));
            };
            out.push(resolved.frame);
            // libunwind also guesses by frame pointers where it has no information (for example in
            // the vDSO, whose image it does not find in another process). That it found no further
            // frame proves nothing.
            match resolved.step {
                Step::Table(Rule::Root) => return Ok(None),
                Step::Unknown | Step::Go(_) => {
                    return Ok(Some(self.marker(Marker::NoUnwindInfo, out)));
                }
                _ if self.in_vdso(resolved) => {
                    return Ok(Some(self.marker(Marker::NoUnwindInfo, out)));
                }
                _ => {}
            }
            // The frame that a signal interrupted is exact.
            exact = resolved.step == Step::Signal;
            if !cursor.step()? {
                return Ok(Some(self.marker(Marker::BadUnwind, out)));
            }
        }
    }

    fn in_vdso(&self, resolved: ResolvedAddress) -> bool {
        let file = ResolvedAddress::file(resolved.frame).and_then(|id| self.files.get(id));
        file.is_some_and(|file| file.kind == FileKind::Vdso)
    }

    fn marker(&self, marker: Marker, out: &mut Vec<RawFrame>) -> Marker {
        let file = out.last().and_then(|frame| ResolvedAddress::file(*frame));
        let file = file.filter(|_| matches!(marker, Marker::NoUnwindInfo | Marker::BadUnwind));
        out.push(file.map_or(RawFrame::marker(marker), |file| RawFrame::marker_in(marker, file)));
        marker
    }
}
