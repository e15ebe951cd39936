//! Splits a file into self-contained blocks, and finds the intact ones in a damaged file.
//!
//! ```text
//! file   = HEAD block*
//! block  = marker[4] kind[4] unpacked[4] packed[4] crc32(payload)[4]
//!          crc32(the 20 bytes before)[4] payload
//! ```
//!
//! Numbers are little-endian. `payload` is raw deflate data of `packed` bytes, which decompress to
//! exactly `unpacked` bytes.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

/// The first bytes of a file: a line of text, which also serves tools as magic number.
pub const HEAD: &[u8] = b"sampletop profile\n";

const MARKER: [u8; 4] = [0xb5, b's', b't', b'b'];
const HEADER: usize = 24;

/// Maximum size of one decompressed block, bytes.
pub const UNPACKED_MAX: usize = 16 << 20;

/// Writes one block of `parts`. Flushes the compressor between them: each part gets codes that suit
/// its data.
pub fn write(out: &mut dyn Write, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
    let unpacked = parts.iter().map(|part| part.len()).sum();
    let mut packer = DeflateEncoder::new(Vec::with_capacity(unpacked / 2), Compression::default());
    for (nth, part) in parts.iter().filter(|part| !part.is_empty()).enumerate() {
        if nth > 0 {
            packer.flush()?;
        }
        packer.write_all(part)?;
    }
    let payload = packer.finish()?;
    let size = |size: usize| {
        let fits = u32::try_from(size).ok().filter(|_| size <= UNPACKED_MAX);
        fits.ok_or_else(|| io::Error::other("a block of the profile is larger than 16 MiB"))
    };
    let mut header = Vec::with_capacity(HEADER);
    header.extend(MARKER);
    for number in [kind, size(unpacked)?, size(payload.len())?, crc(&payload)] {
        header.extend(number.to_le_bytes());
    }
    header.extend(crc(&header).to_le_bytes());
    out.write_all(&header)?;
    out.write_all(&payload)
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// A block whose checksum matches its payload.
pub struct Block<'a> {
    pub kind: u32,
    unpacked: usize,
    payload: &'a [u8],
}

impl Block<'_> {
    /// Returns the size after decompression, bytes.
    pub fn unpacked_len(&self) -> usize {
        self.unpacked
    }

    /// Decompresses the block. `None` if the size differs from the header's.
    pub fn unpack(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.unpacked.min(1 << 20));
        // One byte above the limit, so that excess data are detected.
        DeflateDecoder::new(self.payload)
            .take(self.unpacked as u64 + 1)
            .read_to_end(&mut bytes)
            .ok()?;
        (bytes.len() == self.unpacked).then_some(bytes)
    }
}

/// Iterates over a file's intact blocks, in file order. Between them it skips to the next marker
/// with a valid header.
///
/// The search also covers the inside of corrupt blocks, since bytes may be missing there. It skips
/// corrupt blocks once their sizes exceed twice the file's. This bounds the cost of misleading
/// headers.
pub fn blocks(file: &[u8]) -> impl Iterator<Item = Block<'_>> {
    let mut at = 0;
    let mut in_vain = 0;
    std::iter::from_fn(move || {
        loop {
            at += file.get(at..)?.windows(MARKER.len()).position(|bytes| bytes == MARKER)?;
            let Some(header) = header(&file[at..]) else {
                at += MARKER.len();
                continue;
            };
            let Some(payload) = file.get(at + HEADER..at + HEADER + header.packed) else {
                // The payload is cut off, or this marker is part of other data and another one
                // follows.
                at += HEADER;
                continue;
            };
            if crc(payload) == header.crc {
                at += HEADER + header.packed;
                return Some(Block { kind: header.kind, unpacked: header.unpacked, payload });
            }
            in_vain += header.packed;
            at += if in_vain <= 2 * file.len() { HEADER } else { HEADER + header.packed };
        }
    })
}

struct Header {
    kind: u32,
    unpacked: usize,
    packed: usize,
    crc: u32,
}

/// Parses a header. `None` if the bytes are none.
fn header(bytes: &[u8]) -> Option<Header> {
    let (header, _) = bytes.split_first_chunk::<HEADER>()?;
    let number = |nth: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[nth * 4 + byte]));
    let (unpacked, packed) = (number(2) as usize, number(3) as usize);
    let sound = number(5) == crc(&header[..HEADER - 4])
        && unpacked <= UNPACKED_MAX
        && packed <= UNPACKED_MAX;
    sound.then(|| Header { kind: number(1), unpacked, packed, crc: number(4) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut file = HEAD.to_vec();
        for (kind, bytes) in [(1, &b"first"[..]), (2, &[7; 1000]), (9, b""), (3, b"last")] {
            let (one, other) = bytes.split_at(bytes.len() / 2);
            write(&mut file, kind, &[one, other]).expect("memory takes it");
        }
        file
    }

    fn read(file: &[u8]) -> Vec<(u32, usize)> {
        blocks(file).filter_map(|block| Some((block.kind, block.unpack()?.len()))).collect()
    }

    #[test]
    fn blocks_come_out_as_they_went_in() {
        assert_eq!(read(&file()), [(1, 5), (2, 1000), (9, 0), (3, 4)]);
        assert_eq!(read(b""), []);
        assert_eq!(read(HEAD), []);
    }

    #[test]
    fn a_changed_bit_costs_one_block_at_most() {
        let whole = read(&file());
        for bit in 0..file().len() * 8 {
            let mut damaged = file();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let left = read(&damaged);
            assert!(left.len() + 1 >= whole.len(), "bit {bit}: {left:?}");
            assert!(left.iter().all(|block| whole.contains(block)), "bit {bit}: {left:?}");
        }
    }

    #[test]
    fn bytes_that_are_missing_or_too_many_cost_one_block_at_most() {
        let whole = read(&file());
        for at in 0..file().len() {
            let mut missing = file();
            missing.remove(at);
            let mut more = file();
            more.insert(at, 0xb5);
            for damaged in [missing, more] {
                assert!(read(&damaged).len() + 1 >= whole.len(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_block_unpacks_to_no_more_than_it_says() {
        let zeros = vec![0; UNPACKED_MAX];
        let mut file = Vec::new();
        write(&mut file, 1, &[&zeros]).expect("just fits");
        assert_eq!(read(&file), [(1, UNPACKED_MAX)]);
        assert!(write(&mut file, 1, &[&zeros, &[0]]).is_err());
        // Headers with too small and too large an unpacked size.
        for unpacked in [10_u32, UNPACKED_MAX as u32 - 1, UNPACKED_MAX as u32 + 1, u32::MAX] {
            let mut file = file.clone();
            file[8..12].copy_from_slice(&unpacked.to_le_bytes());
            let crc = crc(&file[..HEADER - 4]);
            file[HEADER - 4..HEADER].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(read(&file), []);
        }
    }
}
