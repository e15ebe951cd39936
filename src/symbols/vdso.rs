//! The vDSO's ELF image. Every 64-bit process of a kernel has the same bytes, so our own copy is
//! read.

/// Maximum bytes; the vDSO has a few pages.
const CAP: usize = 1 << 20;

/// Returns a copy; `None` where the kernel maps none.
pub fn image() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut image =
        vec![0; usize::try_from(end.checked_sub(start)?).ok().filter(|len| *len <= CAP)?];
    // Read through the file, not a pointer: no unsafe code, and a short read is an error.
    let memory = std::fs::File::open("/proc/self/mem").ok()?;
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut image, start).ok()?;
    Some(image)
}

#[cfg(test)]
mod tests {
    use crate::elf::{Elf, hex};

    #[test]
    fn its_build_id_is_the_one_that_readelf_finds() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let image = super::image().expect("the kernel maps one");
        std::fs::write(file.path(), &image).expect("written");
        let output = std::process::Command::new("readelf").arg("-n").arg(file.path()).output();
        let notes = String::from_utf8(output.expect("readelf is needed").stdout).expect("text");
        let id = notes
            .lines()
            .find_map(|line| line.trim().strip_prefix("Build ID: "))
            .map(str::to_owned);
        let ours = Elf::parse(&image).expect("an ELF file").build_id().map(hex);
        assert!(id.is_some() && ours == id, "{notes}");
    }
}
