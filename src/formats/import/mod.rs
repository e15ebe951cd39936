//! Imports profiles of other tools as snapshots. The live view, the formats and all settings work
//! on them as on a session.
//!
//! ```text
//! pprof     profile.proto, gzipped or not
//! folded    one line per stack, as flame graph tools read it
//! build     stacks and their time -> facts, tables, a snapshot
//! ```
//!
//! The content decides which format it is. Such files lack much that sampletop records: no quality
//! of measurement, one span without history, often no threads. Missing data stay empty, and the
//! session has no version.

mod build;
mod folded;
mod pprof;

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::formats::saved::Opened;

/// Maximum size after decompression, bytes: ten times a day of a busy server.
const UNPACKED_MAX: usize = 256 << 20;

/// The error for bytes in no known format.
pub const NO_PROFILE: &str = "this is no profile: not sampletop's own, nor pprof's, nor folded stacks; write one with `sampletop record -o NAME.sampletop`";

/// Reads `file`, which is untrusted. `None`: its format is unknown here. An error: the format is
/// known, but the profile cannot be shown; one sentence.
pub fn read(file: &[u8]) -> Option<Result<Opened, String>> {
    if !file.starts_with(&[0x1f, 0x8b]) {
        return read_unpacked(file);
    }
    let mut unpacked = Vec::new();
    let whole =
        MultiGzDecoder::new(file).take(UNPACKED_MAX as u64 + 1).read_to_end(&mut unpacked).is_ok();
    if unpacked.len() > UNPACKED_MAX {
        let most = UNPACKED_MAX >> 20;
        return Some(Err(format!(
            "this is packed, and more than {most} MiB unpacked: too large to be read"
        )));
    }
    let read = read_unpacked(&unpacked)?;
    let cut = "the file is damaged or was cut off; what is missing is not known";
    Some(read.map(|opened| Opened {
        lost: match (whole, opened.lost) {
            (true, lost) => lost,
            (false, Some(lost)) => Some(format!("{cut}; {lost}")),
            (false, None) => Some(cut.to_owned()),
        },
        ..opened
    }))
}

fn read_unpacked(bytes: &[u8]) -> Option<Result<Opened, String>> {
    pprof::read(bytes).or_else(|| folded::read(bytes))
}
