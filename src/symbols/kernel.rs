//! Kernel addresses -> names, from /proc/kallsyms where the kernel shows addresses to us (kptr_restrict).

use std::io::Read;

use crate::model::text::{NAME_CAP, clean};

/// Text beyond this is not read (a kernel with many modules has some 15 MB).
const TEXT_CAP: u64 = 256 << 20;
/// An address further than this behind a symbol is not in it; kallsyms has no sizes.
const REACH: u64 = 1 << 20;

/// The kernel's functions, sorted by address. Names stay in one text.
#[derive(Default)]
pub struct Kallsyms {
    names: String,
    /// (address, name's begin, name's end, module's end: equal to the name's end for the kernel proper)
    symbols: Vec<(u64, u32, u32, u32)>,
}

impl Kallsyms {
    /// Takes some tens of milliseconds: not for a thread that anybody waits for. Empty where addresses are hidden.
    pub fn read() -> Kallsyms {
        let mut text = String::new();
        match std::fs::File::open("/proc/kallsyms").map(|file| file.take(TEXT_CAP).read_to_string(&mut text)) {
            Ok(Ok(_)) => Kallsyms::parse(&text),
            _ => Kallsyms::default(),
        }
    }

    /// Lines of `ADDRESS TYPE NAME[\t[MODULE]]`.
    fn parse(text: &str) -> Kallsyms {
        let mut found = Kallsyms::default();
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let address = u64::from_str_radix(address, 16).unwrap_or(0);
            if address >> 47 == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            let begin = found.names.len() as u32;
            found.names.push_str(name);
            let end = found.names.len() as u32;
            found.names.push_str(fields.next().unwrap_or(""));
            found.symbols.push((address, begin, end, found.names.len() as u32));
        }
        found.symbols.sort_by_key(|symbol| symbol.0);
        found.symbols.dedup_by_key(|symbol| symbol.0);
        found.symbols.shrink_to_fit();
        found
    }

    /// Function and module (`[kernel]`, or `[nf_tables]`).
    pub fn name(&self, address: u64) -> Option<(String, String)> {
        let after = self.symbols.partition_point(|symbol| symbol.0 <= address);
        let (start, begin, end, module_end) = *self.symbols.get(after.checked_sub(1)?)?;
        if address - start >= REACH {
            return None;
        }
        let name = &self.names[begin as usize..end as usize];
        let module = match &self.names[end as usize..module_end as usize] {
            "" => "[kernel]",
            module => module,
        };
        Some((clean(name, NAME_CAP).into_owned(), clean(module, NAME_CAP).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_and_data_is_not() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 t do_it\nffffffff81000180 D data\n\
                    ffffffffc0000000 t nft_do_chain\t[nf_tables]\n";
        let kernel = Kallsyms::parse(text);
        assert_eq!(kernel.name(0xffff_ffff_8100_01ff), Some(("do_it".into(), "[kernel]".into())));
        assert_eq!(kernel.name(0xffff_ffff_c000_0001), Some(("nft_do_chain".into(), "[nf_tables]".into())));
        assert_eq!(kernel.name(0xffff_ffff_8000_0000), None);
        assert_eq!(kernel.name(0xffff_ffff_a000_0000), None, "far behind the last function");
    }

    #[test]
    fn hidden_addresses_name_nothing() {
        let kernel = Kallsyms::parse("0000000000000000 T _text\n0000000000000000 t do_it\n");
        assert_eq!(kernel.name(0xffff_ffff_8100_01ff), None);
    }
}
