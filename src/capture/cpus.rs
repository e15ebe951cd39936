//! The list of online CPUs.

use std::io;

/// Returns the CPUs that are online now, from a list such as `0-3,8`.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    parse_cpu_list(&std::fs::read_to_string("/sys/devices/system/cpu/online")?)
        .ok_or_else(|| io::Error::other("cannot read the list of online CPUs"))
}

/// Returns success if an event could not be opened because its CPU is not available. The CPU may
/// have gone offline since. Linux 6.18 also lists it for some ms before perf may use it. It is
/// tried again every second.
pub fn unless_offline(opened: io::Result<()>) -> io::Result<()> {
    match opened {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        result => result,
    }
}

fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    const MOST: u32 = 8_192;
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_is_not_there_is_no_failure() {
        let failed = |errno| Err(io::Error::from_raw_os_error(errno));
        assert!(unless_offline(failed(libc::ENODEV)).is_ok());
        assert!(unless_offline(failed(libc::EMFILE)).is_err());
    }

    #[test]
    fn lists_have_numbers_and_ranges() {
        assert_eq!(parse_cpu_list("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpu_list("3"), Some(vec![3]));
        assert_eq!(
            [parse_cpu_list(""), parse_cpu_list("0-"), parse_cpu_list("0-99999")],
            [None, None, None]
        );
    }
}
