//! Kernel addresses to names, from /proc/kallsyms where the kernel shows addresses to this user
//! (kptr_restrict).

use std::io::Read;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::demangle::readable;
use crate::elf::{build_id_note, hex};
use crate::model::facts::tables::KERNEL;
use crate::model::vocabulary::text::{NAME_CAP, clean};
use crate::process::privileges;

/// Maximum bytes read (a kernel with many modules has some 15 MB).
const TEXT_CAP: u64 = 64 << 20;
/// Maximum distance of an address from its symbol, bytes; kallsyms has no sizes.
const REACH: u64 = 1 << 20;
/// The same behind the last symbol of the core kernel or of a module: what follows may be a module
/// that was loaded since.
const LAST_REACH: u64 = 8 << 10;
/// The module name of the core kernel, whose addresses stay until the next boot.
const PROPER: &str = "vmlinux";
/// Maximum bytes of the kernel's notes; real ones have some hundred.
const NOTES_CAP: u64 = 64 << 10;
/// Minimum time between reads of the symbols.
const AGAIN: Duration = Duration::from_secs(5);

/// The kernel's functions, sorted by address. All names are in one text.
#[derive(Default)]
pub struct Kallsyms {
    names: String,
    /// Of the core kernel.
    build_id: Option<Arc<str>>,
    symbols: Vec<Symbol>,
}

struct Symbol {
    start: u64,
    /// Begin and end of its name, and end of its module's name: equal to the name's end for the
    /// core kernel.
    name: (u32, u32, u32),
}

impl Kallsyms {
    /// Reads the symbols in some tens of milliseconds: not for a thread that others wait for. Empty
    /// where addresses are hidden.
    pub fn read() -> Kallsyms {
        let mut text = String::new();
        // sampletop's capabilities, which are for stacks, may include the right to see kernel
        // addresses.
        let file = privileges::with(|| std::fs::File::open("/proc/kallsyms"));
        match file.map(|file| file.take(TEXT_CAP).read_to_string(&mut text)) {
            Ok(Ok(_)) => Kallsyms { build_id: build_id(), ..Kallsyms::parse(&text) },
            _ => Kallsyms::default(),
        }
    }

    /// Parses lines of `ADDRESS TYPE NAME[\t[MODULE]]`.
    fn parse(text: &str) -> Kallsyms {
        let mut found = Kallsyms::default();
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let start = u64::from_str_radix(address, 16).unwrap_or(0);
            if start >> 47 == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            let module = fields.next().unwrap_or("");
            let module = module
                .strip_prefix('[')
                .and_then(|module| module.strip_suffix(']'))
                .unwrap_or(module);
            let begin = found.names.len() as u32;
            found.names.push_str(name);
            let end = found.names.len() as u32;
            found.names.push_str(module);
            found.symbols.push(Symbol { start, name: (begin, end, found.names.len() as u32) });
        }
        // Of several names for one address the first is kept; those that mark the beginning of a
        // section come last.
        let mut symbols = std::mem::take(&mut found.symbols);
        let marks = |symbol: &Symbol| {
            matches!(found.name_of(symbol), "_text" | "_stext" | "_etext" | "_sinittext")
        };
        symbols.sort_by_key(|symbol| (symbol.start, marks(symbol)));
        symbols.dedup_by_key(|symbol| symbol.start);
        symbols.shrink_to_fit();
        Kallsyms { symbols, ..found }
    }

    /// Whether nothing is known: the kernel hides its addresses from this user.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    fn name_of(&self, symbol: &Symbol) -> &str {
        &self.names[symbol.name.0 as usize..symbol.name.1 as usize]
    }

    /// Returns the module's name; empty for the core kernel.
    fn module_of(&self, symbol: &Symbol) -> &str {
        &self.names[symbol.name.1 as usize..symbol.name.2 as usize]
    }

    /// Returns function and module (`vmlinux`, or `nf_tables`).
    pub fn name(&self, address: u64) -> Option<(String, String)> {
        let after = self.symbols.partition_point(|symbol| symbol.start <= address);
        let symbol = self.symbols.get(after.checked_sub(1)?)?;
        let module = self.module_of(symbol);
        let goes_on = self.symbols.get(after).is_some_and(|next| self.module_of(next) == module);
        if address - symbol.start >= if goes_on { REACH } else { LAST_REACH } {
            return None;
        }
        let module = if module.is_empty() { PROPER } else { module };
        Some((readable(self.name_of(symbol).as_bytes()), clean(module, NAME_CAP).into_owned()))
    }
}

/// Returns the build id of the running kernel.
fn build_id() -> Option<Arc<str>> {
    let mut notes = Vec::new();
    std::fs::File::open("/sys/kernel/notes").ok()?.take(NOTES_CAP).read_to_end(&mut notes).ok()?;
    Some(hex(&build_id_note(&notes)?).into())
}

/// The kernel's symbols as they were last read, shared by several threads.
#[derive(Default)]
pub struct Kernel {
    known: RwLock<Option<(Arc<Kallsyms>, Instant)>>,
}

impl Kernel {
    fn known(&self) -> Option<(Arc<Kallsyms>, Instant)> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns function and module, and whether they are final: before the symbols are read they
    /// are not.
    pub fn name(&self, address: u64) -> (String, String, bool) {
        let known = self.known();
        let found = known.as_ref().and_then(|(symbols, _)| symbols.name(address));
        let (function, module) = found.unwrap_or_else(|| (KERNEL.into(), KERNEL.into()));
        (function, module, known.is_some())
    }

    /// Returns the build id of the core kernel once its symbols were read. Modules have none here:
    /// which file a module was loaded from is not determined.
    pub fn build_id(&self, module: &str) -> Option<Arc<str>> {
        self.known().filter(|_| module == PROPER)?.0.build_id.clone()
    }

    /// Reads the symbols if that was not done yet; and again for addresses outside the core kernel,
    /// where modules come and go. May take long.
    pub fn learn(&self, addresses: impl Iterator<Item = u64>) {
        let outside = |symbols: &Kallsyms| {
            let proper =
                |address| symbols.name(address).is_some_and(|(_, module)| module == PROPER);
            !symbols.is_empty() && !{ addresses }.all(proper)
        };
        let read = match self.known() {
            None => true,
            Some((symbols, at)) => at.elapsed() >= AGAIN && outside(&symbols),
        };
        if read {
            let symbols = (Arc::new(Kallsyms::read()), Instant::now());
            *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(symbols);
        }
    }

    /// Whether the symbols were read and there are none.
    pub fn is_nameless(&self) -> bool {
        self.known().is_some_and(|(symbols, _)| symbols.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "ffffffff81000000 T _text\nffffffff81000000 t first\nffffffff81000100 t do_it\n\
                        ffffffff81000180 D data\nffffffff81000200 W nmi\nffffffff81040000 T last\n\
                        ffffffffc0000000 t nft_do_chain\t[nf_tables]\nffffffffc0001000 t nft_exit [nf_tables]\n\
                        ffffffffc0004000 t bpf_prog_6deef7357e7b4530_sd\t[bpf]\n";

    fn named(address: u64) -> Option<(String, String)> {
        Kallsyms::parse(TEXT).name(address)
    }

    fn is(function: &str, module: &str) -> Option<(String, String)> {
        Some((function.into(), module.into()))
    }

    #[test]
    fn functions_are_named_and_data_is_not() {
        assert_eq!(
            named(0xffff_ffff_8100_0000),
            is("first", "vmlinux"),
            "not by the section that begins there"
        );
        assert_eq!(named(0xffff_ffff_8100_01ff), is("do_it", "vmlinux"));
        assert_eq!(named(0xffff_ffff_8103_ffff), is("nmi", "vmlinux"), "a large function is one");
        assert_eq!(named(0xffff_ffff_c000_0001), is("nft_do_chain", "nf_tables"));
        assert_eq!(named(0xffff_ffff_8000_0000), None);
    }

    #[test]
    fn behind_the_last_function_of_a_module_there_is_another() {
        assert_eq!(named(0xffff_ffff_8104_1fff), is("last", "vmlinux"));
        assert_eq!(named(0xffff_ffff_8104_2000), None);
        assert_eq!(named(0xffff_ffff_c000_2fff), is("nft_exit", "nf_tables"));
        assert_eq!(named(0xffff_ffff_c000_3000), None);
        assert_eq!(named(0xffff_ffff_c000_4000), is("bpf_prog_6deef7357e7b4530_sd", "bpf"));
        assert_eq!(named(0xffff_ffff_d000_0000), None);
    }

    #[test]
    fn hidden_addresses_name_nothing() {
        let kernel = Kallsyms::parse("0000000000000000 T _text\n0000000000000000 t do_it\n");
        assert_eq!(kernel.name(0xffff_ffff_8100_01ff), None);
        assert!(kernel.is_empty());
    }

    #[test]
    fn symbols_are_read_once_until_something_is_outside() {
        let kernel = Kernel::default();
        assert_eq!(kernel.name(0xffff_ffff_8100_0000), (KERNEL.into(), KERNEL.into(), false));
        assert!(!kernel.is_nameless(), "it was not read");
        let put = |age: Duration, text: &str| {
            let at = Instant::now().checked_sub(age).expect("the machine runs for longer");
            *kernel.known.write().expect("no panic") = Some((Arc::new(Kallsyms::parse(text)), at));
        };
        let kept = |address| {
            let before = kernel.known().expect("read").0;
            kernel.learn([address].into_iter());
            Arc::ptr_eq(&before, &kernel.known().expect("read").0)
        };
        let (proper, module, nowhere) =
            (0xffff_ffff_8100_0100, 0xffff_ffff_c000_0000, 0xffff_ffff_a000_0000);
        put(Duration::ZERO, TEXT);
        assert!(kept(proper) && kept(module) && kept(nowhere), "just read");
        put(AGAIN, TEXT);
        assert!(kept(proper));
        assert!(!kept(module), "another module may be there by now");
        put(AGAIN, TEXT);
        assert!(!kept(nowhere));
        put(AGAIN, "");
        assert!(kept(nowhere) && kernel.is_nameless(), "the kernel does not change its mind");
    }

    proptest! {
        #[test]
        fn every_line_is_survived(lines in proptest::collection::vec("[0-9a-f]{0,17}[ \t]?[tTwWD]?[ \t]?\\PC{0,9}[ \t]?\\PC{0,9}", 0..40), address: u64) {
            let kernel = Kallsyms::parse(&lines.join("\n"));
            prop_assert!(kernel.symbols.is_sorted_by(|a, b| a.start < b.start));
            let _ = kernel.name(address);
            for symbol in &kernel.symbols {
                prop_assert!(kernel.name(symbol.start).is_some());
            }
        }
    }
}
