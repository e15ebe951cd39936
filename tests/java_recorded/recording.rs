//! Recorded memory of a virtual machine, and the stacks that it must yield. Shared by the test, the
//! recorder (record.rs) and a fuzz target.

#![allow(dead_code)] // each of them uses a part

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use sampletop::model::facts::tables::{FrameKind, Location, Tier};
use sampletop::process::memory::ReadMemory;
use sampletop::unwinder::Place;

/// The recording of each version.
pub const RECORDINGS: [(&str, &[u8], &str); 6] = [
    ("8", include_bytes!("jdk-8.gz"), include_str!("jdk-8.txt")),
    ("11", include_bytes!("jdk-11.gz"), include_str!("jdk-11.txt")),
    ("17", include_bytes!("jdk-17.gz"), include_str!("jdk-17.txt")),
    ("21", include_bytes!("jdk-21.gz"), include_str!("jdk-21.txt")),
    ("25", include_bytes!("jdk-25.gz"), include_str!("jdk-25.txt")),
    ("26", include_bytes!("jdk-26.gz"), include_str!("jdk-26.txt")),
];

/// One of them, unpacked.
pub struct Recording {
    pub version: &'static str,
    pub pieces: Pieces,
    pub expected: Expected,
}

impl Recording {
    pub fn load((version, bytes, text): &(&'static str, &[u8], &str)) -> Recording {
        Recording { version, pieces: Pieces::load(bytes), expected: Expected::load(text) }
    }
}

/// Size of a piece of memory, aligned, bytes: later readers with slightly different reads still
/// find their data.
pub const PIECE: u64 = 128;

pub type Piece = [u8; PIECE as usize];

/// Pieces of memory by their address. Other memory cannot be read.
#[derive(Clone, Default)]
pub struct Pieces(pub Arc<BTreeMap<u64, Piece>>);

impl ReadMemory for Pieces {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let Some(piece) = self.0.get(&(at - at % PIECE)) else { break };
            let from = &piece[(at % PIECE) as usize..];
            let length = from.len().min(buf.len() - done);
            buf[done..done + length].copy_from_slice(&from[..length]);
            done += length;
        }
        done
    }
}

impl Pieces {
    /// Decodes runs of neighbouring pieces: address, count, bytes; compressed.
    pub fn load(bytes: &[u8]) -> Pieces {
        let mut unpacked = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut unpacked).expect("a recording");
        let (mut pieces, mut rest) = (BTreeMap::new(), &unpacked[..]);
        while let Some((head, bytes)) = rest.split_first_chunk::<16>() {
            let word =
                |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
            let (start, count) = (word(0), word(8));
            let (run, after) = bytes.split_at((count * PIECE) as usize);
            for (number, piece) in run.chunks_exact(PIECE as usize).enumerate() {
                pieces.insert(start + number as u64 * PIECE, piece.try_into().expect("a piece"));
            }
            rest = after;
        }
        assert!(rest.is_empty(), "a recording that was cut");
        Pieces(Arc::new(pieces))
    }

    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let mut out = GzEncoder::new(Vec::new(), Compression::best());
        let mut pieces = self.0.iter().peekable();
        while let Some((start, piece)) = pieces.next() {
            let mut run = vec![piece];
            while let Some((_, piece)) =
                pieces.next_if(|(at, _)| **at == start + run.len() as u64 * PIECE)
            {
                run.push(piece);
            }
            out.write_all(&start.to_le_bytes())?;
            out.write_all(&(run.len() as u64).to_le_bytes())?;
            run.into_iter().try_for_each(|piece| out.write_all(piece))?;
        }
        std::fs::write(path, out.finish()?)
    }
}

/// What the recorded memory must yield. As text:
///
/// ```text
/// jdk VERSION
/// image ADDRESS                       where libjvm.so is mapped
/// thread ID NAME
/// enter PC SP RBP                     native code was called by generated code, which is left
///                                     from here
/// at METHOD TIER PLACE                a frame; PLACE as jstack has it: `File.java:7`,
///                                     `Unknown Source`, ...
/// leave PC SP RBP                     who called that is native code again
/// ```
///
/// Methods and places are those of jstack; so are names. The rest is sampletop's own output at a
/// time when the two agreed. Addresses are hexadecimal; an unknown RBP is `-`.
#[derive(Default, PartialEq, Debug)]
pub struct Expected {
    pub version: String,
    pub image: u64,
    pub threads: Vec<Thread>,
}

#[derive(Default, PartialEq, Debug)]
pub struct Thread {
    pub id: u32,
    pub name: String,
    pub segments: Vec<Segment>,
}

/// Java frames between two native ones, innermost first.
#[derive(PartialEq, Debug)]
pub struct Segment {
    pub enter: Point,
    pub frames: Vec<Frame>,
    pub leave: Point,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Point {
    pub pc: u64,
    pub sp: u64,
    pub rbp: Option<u64>,
}

impl Point {
    /// Returns where a walk continues: `pc` is a return address.
    pub fn place(self) -> Place {
        Place { pc: self.pc, exact: false, sp: self.sp, rbp: self.rbp, general: None }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub method: String,
    pub tier: String,
    pub place: String,
}

impl Frame {
    /// Returns the frame in jstack's notation, except for the tier.
    pub fn of(location: &Location) -> Frame {
        let place = match (location.tier, &location.file, location.line) {
            (Some(Tier::Native), ..) => "Native Method".to_string(),
            (_, None, _) => "Unknown Source".to_string(),
            (_, Some(file), None) => file.to_string(),
            (_, Some(file), Some(line)) => format!("{file}:{line}"),
        };
        let java = location.kind == FrameKind::Java;
        let tier = location.tier.filter(|_| java).map_or("-", Tier::word);
        Frame { method: location.function.replace(' ', "_"), tier: tier.into(), place }
    }
}

impl Expected {
    pub fn load(text: &str) -> Expected {
        let mut expected = Expected::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let hexadecimal = |word: &str| u64::from_str_radix(word, 16).expect("an address");
            let point = || match rest.split(' ').collect::<Vec<_>>()[..] {
                [pc, sp, rbp] => {
                    let rbp = (rbp != "-").then(|| hexadecimal(rbp));
                    Point { pc: hexadecimal(pc), sp: hexadecimal(sp), rbp }
                }
                _ => panic!("{line}"),
            };
            let thread = expected.threads.last_mut();
            match kind {
                "jdk" => expected.version = rest.into(),
                "image" => expected.image = hexadecimal(rest),
                "thread" => {
                    let (id, name) = rest.split_once(' ').expect("id and name");
                    let id = id.parse().expect("a number");
                    expected.threads.push(Thread { id, name: name.into(), segments: Vec::new() });
                }
                "enter" => {
                    let segment =
                        Segment { enter: point(), frames: Vec::new(), leave: Point::default() };
                    thread.expect("a thread").segments.push(segment);
                }
                "leave" => {
                    thread
                        .and_then(|thread| thread.segments.last_mut())
                        .expect("a segment")
                        .leave = point();
                }
                "at" => {
                    let words: Vec<&str> = rest.splitn(3, ' ').collect();
                    let [method, tier, place] = words[..] else { panic!("{line}") };
                    let frame =
                        Frame { method: method.into(), tier: tier.into(), place: place.into() };
                    thread
                        .and_then(|thread| thread.segments.last_mut())
                        .expect("a segment")
                        .frames
                        .push(frame);
                }
                _ => panic!("{line}"),
            }
        }
        expected
    }

    pub fn text(&self) -> String {
        let point = |Point { pc, sp, rbp }: Point| {
            format!("{pc:x} {sp:x} {}", rbp.map_or("-".to_string(), |rbp| format!("{rbp:x}")))
        };
        let mut lines = vec![format!("jdk {}", self.version), format!("image {:x}", self.image)];
        for thread in &self.threads {
            lines.push(format!("thread {} {}", thread.id, thread.name));
            for segment in &thread.segments {
                lines.push(format!("enter {}", point(segment.enter)));
                let frames = segment.frames.iter();
                lines
                    .extend(frames.map(|Frame { method, tier, place }| {
                        format!("at {method} {tier} {place}")
                    }));
                lines.push(format!("leave {}", point(segment.leave)));
            }
        }
        lines.join("\n") + "\n"
    }
}
