//! Shared by the fuzz targets: decoding of inputs into numbers and pieces, and the limits and
//! checks for the parsers. See README.md.

#[path = "../../tests/java_recorded/changed.rs"]
pub mod changed;
#[path = "../../tests/java_recorded/changed_waits.rs"]
pub mod changed_waits;
#[path = "../../tests/symbols/elf.rs"]
pub mod elf;
pub mod go_program;
#[path = "../../src/unwinder/framehop/tests/image.rs"]
pub mod image;
#[path = "../../src/runtimes/cpython/tests/made_up.rs"]
pub mod made_up;
#[path = "../../src/runtimes/cpython/tests/made_up_objects.rs"]
pub mod made_up_objects;
#[path = "../../src/runtimes/cpython/tests/made_up_tasks.rs"]
pub mod made_up_tasks;
#[path = "../../src/pclntab/tests/made_up.rs"]
pub mod pclntab;
#[path = "../../tests/java_recorded/recording.rs"]
pub mod recording;
#[path = "../../tests/saved/sessions.rs"]
pub mod sessions;
#[path = "../../tests/java_recorded/waits.rs"]
pub mod waits;

// `image` and `made_up` are files of the package's own tests, which refer to these modules by
// `crate::`.
pub use sampletop::{process, runtimes};

use sampletop::config::Format;
use sampletop::model::facts::tables::FrameId;
use sampletop::model::vocabulary::text::NAME_CAP;
use sampletop::symbols::{Spot, Step};

/// The sections of debug info that names are read from.
pub const DWARF_SECTIONS: [&str; 10] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_line_str",
    ".debug_str",
    ".debug_str_offsets",
    ".debug_addr",
    ".debug_aranges",
    ".debug_ranges",
    ".debug_rnglists",
];

/// Panics unless every place has a name, and all its text can be shown.
pub fn check_names(spots: &[Spot], named: &[Vec<Step>]) {
    assert_eq!(spots.len(), named.len());
    for steps in named {
        // The function, and at most 128 levels of functions inlined into it.
        assert!((1..=129).contains(&steps.len()), "{} levels", steps.len());
        for step in steps {
            assert!(!step.function.is_empty());
            assert_clean(&step.function, NAME_CAP);
            assert_clean(step.file.as_deref().unwrap_or(""), NAME_CAP);
        }
    }
}

/// Takes numbers and pieces from the front of a fuzz input; returns zeros and nothing once it is
/// used up.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        first
    }

    /// Takes a piece, which its 16-bit length precedes.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = self.u16();
        self.take(length.into())
    }

    pub fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        self.number(2) as u16
    }

    pub fn u64(&mut self) -> u64 {
        self.number(8)
    }

    /// Decodes a change of made-up memory: the address of a word, and its new value. `kind`: 0 to
    /// 4. `pages`: addresses of 4 KiB each. `word`: reads memory.
    pub fn change(&mut self, kind: u8, pages: &[u64], word: impl Fn(u64) -> u64) -> (u64, u64) {
        let mut place = || {
            let page = pages[usize::from(self.u8()) % pages.len()];
            page + 8 * (u64::from(self.u16()) % 512)
        };
        let (at, other) = (place(), place());
        let value = match kind {
            0 => other,
            1 => word(other),
            2 => other % 4096,
            3 => u64::MAX - other % 4096,
            _ => self.u64(),
        };
        (at, value)
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }
}

/// Encodes what [`Input::piece`] decodes, for seeds.
pub fn piece(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("a seed's piece is short");
    [&length.to_le_bytes(), bytes].concat()
}

/// A second stack beside [`image::STACK`].
pub const ALTERNATE: u64 = image::STACK + 0x1000_0000;
/// Where the unwind tables of [`image::elf`] begin in it.
pub const TABLES: usize = 0x200;

/// Decodes a 64-bit word that is likely to lead somewhere, from 16 bits of which the first two
/// choose: a small number, a word of a stack (the third bit: which one), an address of code, or the
/// next 8 bytes.
pub fn word(input: &mut Input<'_>) -> u64 {
    let token = u64::from(input.u16());
    match token >> 14 {
        0 => token,
        1 if token & 0x2000 == 0 => image::STACK + 8 * (token & 0x1fff),
        1 => ALTERNATE + 8 * (token & 0x1fff),
        2 => image::CODE + (token & 0x3fff),
        _ => input.u64(),
    }
}

/// Encodes what [`word`] decodes, for seeds.
pub fn token(word: u64) -> Vec<u8> {
    let short = |kind: u64, rest: u64| ((kind << 14 | rest) as u16).to_le_bytes().to_vec();
    let within = |start: u64, size: u64| word.checked_sub(start).filter(|offset| *offset < size);
    let on = |start: u64| {
        within(start, 8 << 13).filter(|offset| offset % 8 == 0).map(|offset| offset / 8)
    };
    match (within(0, 1 << 14), on(image::STACK), on(ALTERNATE), within(image::CODE, 1 << 14)) {
        (Some(small), ..) => short(0, small),
        (_, Some(at), ..) => short(1, at),
        (_, _, Some(at), _) => short(1, 0x2000 | at),
        (.., Some(offset)) => short(2, offset),
        _ => [short(3, 0), word.to_le_bytes().to_vec()].concat(),
    }
}

/// Runs `work` and panics if it takes more than `ms` of this thread's CPU time. Time and not steps,
/// since most of the work is in libraries; CPU time, so that a busy machine causes no finding. The
/// limits are some ten times what the slowest valid input of the same size takes in an instrumented
/// build.
pub fn within<T>(ms: u64, work: impl FnOnce() -> T) -> T {
    let begin = cpu_ms();
    let result = work();
    let took = cpu_ms() - begin;
    assert!(took <= ms, "took {took} ms of CPU time instead of at most {ms}");
    result
}

fn cpu_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Panics unless `text` can be shown: at most `cap` bytes, and no character that moves the cursor,
/// reverses text or is invisible. Implemented again here, independently of the tested function.
pub fn assert_clean(text: &str, cap: usize) {
    assert!(text.len() <= cap, "{} bytes instead of at most {cap}", text.len());
    let bad = text.chars().find(|c| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{ad}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    });
    assert_eq!(bad, None, "{text:?}");
}

/// Reads a profile of another tool. Whatever it contains, it can be shown, and saved as one of
/// sampletop's own.
pub fn import(data: &[u8]) {
    let opened = match within(3000, || sampletop::formats::import::read(data)) {
        None => return,
        Some(Err(sentence)) => return assert_clean(&sentence, 400),
        Some(Ok(opened)) => opened,
    };
    let snapshot = &opened.snapshot;
    for text in [&snapshot.session.wanted.title, &snapshot.capture] {
        assert_clean(text, NAME_CAP);
    }
    assert_clean(opened.lost.as_deref().unwrap_or(""), 400);
    assert_clean(snapshot.notice.as_deref().unwrap_or(""), 400);
    for id in 0..snapshot.tables.frame_count().min(1_000) {
        for location in snapshot.tables.named(FrameId(id as u32)).locations.iter() {
            assert_clean(&location.function, NAME_CAP);
            assert_clean(&location.module, NAME_CAP);
            assert_clean(location.file.as_deref().unwrap_or(""), NAME_CAP);
        }
    }
    let write = |format| {
        let mut bytes = Vec::new();
        sampletop::formats::write(format, snapshot, &opened.settings, &mut bytes)
            .expect("a vector takes it");
        bytes
    };
    for format in [Format::Text, Format::Json, Format::Pprof] {
        write(format);
    }
    let again =
        sampletop::formats::saved::read(&write(Format::Sampletop)).expect("it was just written");
    assert_eq!(again.lost, None);
}
