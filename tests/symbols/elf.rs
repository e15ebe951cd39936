//! Synthetic ELF files around sections of any content.

/// End of the code, in the file and in memory alike; `0..CODE_END` is one executable segment.
pub const CODE_END: u64 = 0x4000;

pub const PROGBITS: u32 = 1;

/// Returns a 64-bit little-endian file for x86-64 with one executable segment and these sections
/// (name, type, bytes).
pub fn file(sections: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    let mut names = vec![0];
    let mut headers = vec![0; 64];
    let mut header = |name: usize, kind: u32, offset: usize, size: usize| {
        let mut header = [0; 64];
        header[..4].copy_from_slice(&(name as u32).to_le_bytes());
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
        headers.extend(header);
    };
    for (name, kind, bytes) in sections {
        header(names.len(), *kind, file.len(), bytes.len());
        names.extend(name.bytes());
        names.push(0);
        file.extend_from_slice(bytes);
    }
    let name = names.len();
    names.extend(b".shstrtab\0");
    header(name, 3, file.len(), names.len());
    file.extend(&names);
    let table = file.len() as u64;
    let count = headers.len() / 64;
    file.extend(headers);
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &3u16.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(40, &table.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &1u16.to_le_bytes());
    put(58, &64u16.to_le_bytes());
    put(60, &(count as u16).to_le_bytes());
    put(62, &(count as u16 - 1).to_le_bytes());
    // PT_LOAD, readable and executable.
    put(64, &1u32.to_le_bytes());
    put(68, &5u32.to_le_bytes());
    put(96, &CODE_END.to_le_bytes());
    put(104, &CODE_END.to_le_bytes());
    file
}
