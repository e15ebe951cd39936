//! The unwind tables (.eh_frame) of one loaded image: the function of an address, and how to leave
//! it.
//!
//! All of it comes from the target. It is checked once, when it is loaded, and indexed anew. So
//! neither this program nor framehop reads an index that is unsorted or points elsewhere.

use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry, LittleEndian,
    Register, RegisterRule, UnwindContext, UnwindSection, UnwindTableRow, X86_64,
};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub type Row = UnwindTableRow<usize>;

/// Maximum bytes of a function's unwind entry, and of the CIE it shares: its program is run
/// instruction by instruction when an address is first seen.
const ENTRY_MAX: usize = 256 << 10;
/// Maximum functions of one image; the largest programs have about half a million.
const FUNCTIONS_MAX: usize = 4 << 20;

/// Maximum work of one walk, in bytes of unwind programs run; other work counts as the bytes that
/// take about as long. It is some tens of milliseconds; the largest real walk in tests/unwinding.rs
/// takes 32,000, cold.
const WORK_MAX: u64 = 16 << 20;

/// Cost of reading a few bytes of another process, in the unit of [`Context::spend`].
pub const READ: usize = 256;

/// The buffers to evaluate rows, and the work that the current walk has left. Each step of a walk
/// is bounded, but their product is not: rows need registers, which are found by running the rows
/// of all inner frames, and so on.
pub struct Context {
    rows: UnwindContext<usize>,
    work: u64,
}

impl Default for Context {
    fn default() -> Context {
        Context { rows: UnwindContext::new(), work: WORK_MAX }
    }
}

impl Context {
    /// Starts a walk.
    pub fn begin(&mut self) {
        self.work = WORK_MAX;
    }

    /// Consumes `work`; `None` when less is left: then the walk has to end.
    pub fn spend(&mut self, work: usize) -> Option<()> {
        let left = self.work.checked_sub(work as u64);
        self.work = left.unwrap_or(0);
        left.map(drop)
    }

    pub fn exhausted(&self) -> bool {
        self.work == 0
    }
}

/// How to leave a frame, as far as it is known before reading the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The return address is marked undefined: the outermost frame.
    Root,
    /// A form that framehop steps over: CFA = rsp + n, or rbp + 16 with rbp saved there; the return
    /// address right below.
    Plain { from_rbp: bool, rbp: SavedRbp },
    /// A form that framehop does not know: the row is evaluated here.
    Described,
}

/// What a frame does with rbp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SavedRbp {
    /// The frame has not changed it.
    Same,
    /// It is on the stack.
    Saved,
    /// It was overwritten and not saved.
    Lost,
}

/// The checked tables of one image. Addresses are those of the process (the image's sections as
/// loaded).
#[derive(Clone)]
pub struct Tables {
    /// The image's lowest address; all addresses below are relative to it.
    base: u64,
    eh_frame: Arc<[u8]>,
    eh_frame_at: u64,
    /// (function start relative to `base`, offset of its entry in `eh_frame`), by start.
    index: Arc<[(u32, u32)]>,
}

impl Tables {
    /// Builds tables from the binary search table of `.eh_frame_hdr` at `hdr_at`. `eh_frame`
    /// returns the section's bytes from an address on, up to a maximum.
    pub fn from_hdr(
        base: u64,
        hdr: &[u8],
        hdr_at: u64,
        eh_frame: impl FnOnce(u64, u64) -> Option<Vec<u8>>,
    ) -> Option<Tables> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(hdr_at);
        let parsed = EhFrameHdr::new(hdr, LittleEndian).parse(&bases, 8).ok()?;
        let eh_frame_at = parsed.eh_frame_ptr().direct().ok()?;
        let table = parsed.table()?;
        let mut entries = table.iter(&bases);
        let mut index = Vec::new();
        while let Ok(Some((start, entry))) = entries.next() {
            if index.len() == FUNCTIONS_MAX {
                break;
            }
            let (Ok(start), Ok(entry)) = (start.direct(), entry.direct()) else { continue };
            let relative = start.checked_sub(base).and_then(|r| u32::try_from(r).ok());
            let offset = entry.checked_sub(eh_frame_at).and_then(|o| u32::try_from(o).ok());
            index.extend(relative.zip(offset));
        }
        // The section's size is unknown in memory: it ends behind its last function's entry.
        let last = index.iter().map(|(_, offset)| u64::from(*offset)).max()?;
        let eh_frame = eh_frame(eh_frame_at, last + ENTRY_MAX as u64)?;
        Some(Tables::new(base, eh_frame, eh_frame_at, index))
    }

    /// Builds tables from `.eh_frame` alone: all of it is parsed once.
    pub fn from_eh_frame(base: u64, eh_frame: Vec<u8>, eh_frame_at: u64) -> Option<Tables> {
        let bases = BaseAddresses::default().set_eh_frame(eh_frame_at);
        let mut section = EhFrame::new(&eh_frame, LittleEndian);
        section.set_address_size(8);
        let mut index = Vec::new();
        let mut entries = section.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            if index.len() == FUNCTIONS_MAX {
                break;
            }
            let gimli::CieOrFde::Fde(entry) = entry else { continue };
            let Ok(entry) = entry.parse(EhFrame::cie_from_offset) else { continue };
            let relative =
                entry.initial_address().checked_sub(base).and_then(|r| u32::try_from(r).ok());
            index.extend(relative.zip(u32::try_from(entry.offset()).ok()));
        }
        if index.is_empty() {
            return None;
        }
        Some(Tables::new(base, eh_frame, eh_frame_at, index))
    }

    fn new(
        base: u64,
        mut eh_frame: Vec<u8>,
        eh_frame_at: u64,
        mut index: Vec<(u32, u32)>,
    ) -> Tables {
        index.sort_unstable();
        index.dedup_by_key(|(start, _)| *start);
        // Drops the bytes that were read ahead behind the last entry.
        let last = index.iter().map(|(_, offset)| *offset as usize).max().unwrap_or(0);
        let length = eh_frame
            .get(last..last + 4)
            .map_or(0, |l| u32::from_le_bytes(l.try_into().expect("4 bytes")));
        let end = last.saturating_add(4).saturating_add(length as usize);
        if end < eh_frame.len() {
            eh_frame.truncate(end);
            eh_frame.extend_from_slice(&[0; 4]);
        }
        Tables { base, eh_frame: eh_frame.into(), eh_frame_at, index: index.into() }
    }

    /// Returns the same tables in framehop's form: `.eh_frame` and a valid `.eh_frame_hdr` built
    /// here.
    pub fn for_framehop(&self) -> framehop::ExplicitModuleSectionInfo<Arc<[u8]>> {
        let mut hdr = Vec::with_capacity(16 + 8 * self.index.len());
        // Version 1; pointer to .eh_frame: absolute; count: udata4; table: udata4 relative to this
        // section, which is declared to lie at `base`.
        hdr.extend_from_slice(&[1, 0x00, 0x03, 0x33]);
        hdr.extend_from_slice(&self.eh_frame_at.to_le_bytes());
        let start = self.eh_frame_at.wrapping_sub(self.base);
        let fits = |offset: u32| {
            start.checked_add(u64::from(offset)).and_then(|at| u32::try_from(at).ok())
        };
        let pairs: Vec<(u32, u32)> =
            self.index.iter().filter_map(|(pc, o)| Some((*pc, fits(*o)?))).collect();
        hdr.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
        for (pc, entry) in pairs {
            hdr.extend_from_slice(&pc.to_le_bytes());
            hdr.extend_from_slice(&entry.to_le_bytes());
        }
        framehop::ExplicitModuleSectionInfo {
            base_svma: self.base,
            eh_frame_svma: Some(
                self.eh_frame_at..self.eh_frame_at.wrapping_add(self.eh_frame.len() as u64),
            ),
            eh_frame: Some(self.eh_frame.clone()),
            eh_frame_hdr_svma: Some(self.base..self.base + hdr.len() as u64),
            eh_frame_hdr: Some(hdr.into()),
            ..Default::default()
        }
    }

    /// Whether framehop can find the entries through its 32-bit index.
    pub fn framehop_reaches(&self) -> bool {
        self.eh_frame_at
            .checked_sub(self.base)
            .is_some_and(|start| start + self.eh_frame.len() as u64 <= u64::from(u32::MAX))
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    /// Returns the bytes of memory used.
    pub fn size(&self) -> usize {
        self.eh_frame.len() + 8 * self.index.len()
    }

    fn bases(&self) -> BaseAddresses {
        BaseAddresses::default().set_eh_frame(self.eh_frame_at)
    }

    pub fn section(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.eh_frame, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn entry(&self, address: u64) -> Option<FrameDescriptionEntry<Slice<'_>>> {
        let relative = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let at = self.index.partition_point(|(start, _)| *start <= relative).checked_sub(1)?;
        let offset = self.index[at].1 as usize;
        let entry = self
            .section()
            .fde_from_offset(&self.bases(), offset.into(), EhFrame::cie_from_offset)
            .ok()?;
        let sound = entry.contains(address)
            && entry.entry_len() <= ENTRY_MAX
            && entry.cie().entry_len() <= ENTRY_MAX;
        sound.then_some(entry)
    }

    /// Returns the code range of the function around `address`: `[start, end)`.
    pub fn function(&self, address: u64) -> Option<(u64, u64)> {
        self.entry(address).map(|entry| (entry.initial_address(), entry.end_address()))
    }

    /// Returns the row for the frame whose code is at `address`, and the encoding of its
    /// expressions.
    pub fn row<'c>(
        &self,
        address: u64,
        context: &'c mut Context,
    ) -> Option<(&'c Row, gimli::Encoding)> {
        let entry = self.entry(address)?;
        let encoding = entry.cie().encoding();
        // Any other column would be a private convention that is not used on x86-64.
        if entry.cie().return_address_register() != X86_64::RA {
            return None;
        }
        context.spend(entry.entry_len() + entry.cie().entry_len())?;
        let rows = &mut context.rows;
        let row =
            entry.unwind_info_for_address(&self.section(), &self.bases(), rows, address).ok()?;
        Some((row, encoding))
    }

    /// Classifies the row of an address; `None` where there is no unwind information.
    pub fn rule(&self, address: u64, context: &mut Context) -> Option<Rule> {
        let (row, _) = self.row(address, context)?;
        let rule = classify(row);
        Some(match rule {
            Rule::Plain { .. } if !self.framehop_reaches() => Rule::Described,
            rule => rule,
        })
    }
}

fn classify(row: &Row) -> Rule {
    match row.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => return Rule::Root,
        Some(RegisterRule::Offset(-8)) => {}
        _ => return Rule::Described,
    }
    let saved = row.register(X86_64::RBP);
    let rbp = match &saved {
        None | Some(RegisterRule::SameValue) => SavedRbp::Same,
        Some(RegisterRule::Undefined) => SavedRbp::Lost,
        Some(RegisterRule::Offset(_)) => SavedRbp::Saved,
        Some(_) => return Rule::Described,
    };
    match row.cfa() {
        CfaRule::RegisterAndOffset { register: Register(7), offset } => {
            // What framehop packs into 16 bits, in words.
            let fits = |offset: i64| offset % 8 == 0 && (offset / 8).unsigned_abs() < 1 << 15;
            let at = match saved {
                Some(RegisterRule::Offset(at)) => offset.checked_add(at),
                _ => Some(0),
            };
            if *offset > 0 && fits(*offset) && at.is_some_and(fits) {
                Rule::Plain { from_rbp: false, rbp }
            } else {
                Rule::Described
            }
        }
        CfaRule::RegisterAndOffset { register: Register(6), offset: 16 }
            if saved == Some(RegisterRule::Offset(-16)) =>
        {
            Rule::Plain { from_rbp: true, rbp }
        }
        _ => Rule::Described,
    }
}
