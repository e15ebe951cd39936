//! The vDSO's ELF image. Every 64-bit process of a kernel has the same bytes, so our own are read.

/// The vDSO has a few pages.
const CAP: usize = 1 << 20;

/// A copy; `None` where the kernel maps none.
pub fn image() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut image = vec![0; usize::try_from(end.checked_sub(start)?).ok().filter(|len| *len <= CAP)?];
    // Through the file and not a pointer: no unsafe code, and a short read is an error.
    let memory = std::fs::File::open("/proc/self/mem").ok()?;
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut image, start).ok()?;
    Some(image)
}
