//! Demangling: raw symbol names to readable ones, `ns::Type<T>::method`. Parameters, return type,
//! hash, ABI tags, and the suffixes of a function's clones and parts are removed.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

use crate::model::vocabulary::text::{NAME_CAP, clean};

/// Maximum bytes of a symbol that is demangled; longer ones are shown raw and cut.
const MANGLED_CAP: usize = 16 << 10;
/// Maximum bytes of a demangled name. Mangling compresses repeats, so a short symbol can stand for
/// gigabytes.
const DEMANGLED_CAP: usize = 64 << 10;

/// Returns the readable form of a raw symbol name, cleaned and at most [`NAME_CAP`] bytes long.
pub fn readable(raw: &[u8]) -> String {
    let raw = &raw[..raw.len().min(super::symtab::RAW_NAME_CAP)];
    let text = String::from_utf8_lossy(raw);
    let base = without_glibc_alias(without_clone_suffix(&text));
    let name = match base.len() <= MANGLED_CAP {
        true => rust(base).or_else(|| cpp(base)),
        false => None,
    };
    let name = name.map_or(Cow::Borrowed(base), Cow::Owned);
    clean(&name, NAME_CAP).into_owned()
}

/// Removes `__GI_`. `__GI___libc_read` is glibc's internal alias of `__libc_read` (`hidden_proto`
/// in its include/libc-symbols.h): the same code, but users do not know it by that name.
fn without_glibc_alias(raw: &str) -> &str {
    raw.strip_prefix("__GI_").filter(|rest| !rest.is_empty()).unwrap_or(raw)
}

/// Demangles `_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE` and `_R...`, without hash.
fn rust(raw: &str) -> Option<String> {
    if !(raw.starts_with("_R") || raw.starts_with("_ZN")) {
        return None;
    }
    let name = rustc_demangle::try_demangle(raw).ok()?;
    bounded(|out| write!(out, "{name:#}")).map(|name| match name.contains("$") {
        // The legacy scheme leaves unknown escapes as `$...$`.
        true => name.replace("$u20$", " "),
        false => name,
    })
}

fn cpp(raw: &str) -> Option<String> {
    if !(raw.starts_with("_Z") || raw.starts_with("___Z") || raw.starts_with("_GLOBAL_")) {
        return None;
    }
    let of_thunk = of_thunk(raw);
    let raw = of_thunk.as_deref().unwrap_or(raw);
    let name = cpp_symbol(raw.as_bytes()).or_else(|| name_alone(raw))?;
    Some(without_abi_tags(without_qualifiers(&name)))
}

/// Returns the symbol of the virtual function that a thunk is for: `_ZThn56_N1A1fEv` is for
/// `_ZN1A1fEv`. A thunk only corrects `this`, and may contain the function.
fn of_thunk(raw: &str) -> Option<String> {
    let rest = raw.strip_prefix("_ZT")?;
    let function = match rest.strip_prefix('c') {
        // It corrects the result too.
        Some(rest) => after_call_offset(after_call_offset(rest)?)?,
        None => after_call_offset(rest)?,
    };
    Some(format!("_Z{function}"))
}

/// Returns what follows the offset, or the two, by which a thunk corrects a pointer.
fn after_call_offset(text: &str) -> Option<&str> {
    let after_number = |text: &'_ str| -> Option<usize> {
        let (digits, _) = text.split_once('_')?;
        let plain = digits.strip_prefix('n').unwrap_or(digits);
        let is_number = !plain.is_empty() && plain.bytes().all(|b| b.is_ascii_digit());
        is_number.then_some(digits.len() + 1)
    };
    let (kind, rest) = text.split_at_checked(1)?;
    let rest = &rest[after_number(rest)?..];
    match kind {
        "h" => Some(rest),
        "v" => Some(&rest[after_number(rest)?..]),
        _ => None,
    }
}

fn cpp_symbol(raw: &[u8]) -> Option<String> {
    let symbol = Symbol::new_with_options(raw, &ParseOptions::default()).ok()?;
    let options = DemangleOptions::new().no_params().no_return_type();
    bounded(|out| symbol.structured_demangle(out, &options))
}

/// Demangles the name of a template's instance without the types behind it: cpp_demangle 0.5
/// refuses names with some expressions in those, as of `std::log<int>`, whose result is that of an
/// `enable_if`.
fn name_alone(raw: &str) -> Option<String> {
    /// Maximum ends of lists in a symbol that are tried.
    const ENDS: usize = 64;
    let ends = raw.bytes().enumerate().filter(|(_, byte)| *byte == b'E').take(ENDS);
    // With a result and a parameter, because those of a template's instance are mangled.
    ends.filter_map(|(end, _)| cpp_symbol(&[&raw.as_bytes()[..=end], b"vv"].concat())).next()
}

/// Runs a formatter with output of any length, keeping [`DEMANGLED_CAP`] bytes; `None` if it fails
/// by itself.
fn bounded(format: impl FnOnce(&mut Bounded) -> fmt::Result) -> Option<String> {
    let mut out = Bounded { text: String::new(), full: false };
    match format(&mut out) {
        Ok(()) => Some(out.text),
        Err(_) if out.full => Some(out.text),
        Err(_) => None,
    }
    .filter(|text| !text.is_empty())
}

struct Bounded {
    text: String,
    full: bool,
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.text.len() + part.len() > DEMANGLED_CAP {
            self.full = true;
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

/// Removes suffixes like `.isra.0`, `.part.3`, `.cold`, `.constprop.1`, `.llvm.123`, `.lto_priv.0`,
/// `.resume`: a dot with one of these words. A dot elsewhere belongs to the name (`main.run`,
/// `f.x`).
fn without_clone_suffix(raw: &str) -> &str {
    const WORDS: [&str; 16] = [
        "isra",
        "part",
        "cold",
        "constprop",
        "llvm",
        "lto_priv",
        "clone",
        "localalias",
        "resume",
        "destroy",
        "cleanup",
        "actor",
        "warm",
        "unlikely",
        "specialized",
        "outlined",
    ];
    let mut rest = raw;
    // There may be several suffixes; each iteration removes the last one.
    for _ in 0..16 {
        let Some((front, last)) = rest.rsplit_once('.') else { break };
        let number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
        let (front, word) = match (number, front.rsplit_once('.')) {
            (true, Some((before, word))) if WORDS.contains(&word) => (before, word),
            _ => (front, last),
        };
        if front.is_empty() || !WORDS.contains(&word) {
            break;
        }
        rest = front;
    }
    rest
}

/// Removes qualifiers that the demangler left behind the parameter list of a member function.
fn without_qualifiers(name: &str) -> &str {
    let mut name = name.trim_end();
    loop {
        let shorter = [" const", " volatile", " &&", " &", " noexcept"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        match shorter {
            // `operator &&`, `operator const`: the word is part of the name.
            Some(rest) if !rest.ends_with("operator") => name = rest.trim_end(),
            _ => return name,
        }
    }
}

/// Removes ABI tags: `foo[abi:cxx11]` -> `foo`.
fn without_abi_tags(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("[abi:") {
        let Some(end) = rest[at..].find(']') else { break };
        out.push_str(&rest[..at]);
        rest = &rest[at + end + 1..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, want: &str) {
        assert_eq!(readable(raw.as_bytes()), want, "{raw}");
    }

    #[test]
    fn c_names_stay() {
        check("main", "main");
        check("__libc_start_call_main", "__libc_start_call_main");
        check("_Zed", "_Zed");
        check("main.run", "main.run");
        check("f.1", "f.1");
    }

    #[test]
    fn clone_suffixes_go() {
        check("burn.isra.0", "burn");
        check("burn.part.0.cold", "burn");
        check("burn.constprop.12.isra.3", "burn");
        check("_ZN2ns3fooEi.cold", "ns::foo");
        check("run.llvm.1234567890", "run");
        check(".cold", ".cold");
        check("x.part", "x");
    }

    #[test]
    fn glibc_names_are_those_of_its_manual() {
        check("__GI___libc_read", "__libc_read");
        check("__GI_epoll_wait", "epoll_wait");
        check("__GI_", "__GI_");
    }

    #[test]
    fn cpp_names_have_no_parameters() {
        check("_Z3fooi", "foo");
        check("_ZN2ns4TypeIiE6methodEv", "ns::Type<int>::method");
        check("_ZNK2ns4TypeIiE6methodEv", "ns::Type<int>::method");
        check("_ZNO2ns4Type6methodEv", "ns::Type::method");
        check("_ZN2ns4TypeclEi", "ns::Type::operator()");
        check("_ZNK2ns4TypecviEv", "ns::Type::operator int");
        check("_ZN2nsaaERKNS_1AES2_", "ns::operator&&");
        check("_ZN12_GLOBAL__N_14workEi", "(anonymous namespace)::work");
        check("_ZN4TypeC1Ei", "Type::Type");
        check("_ZN4TypeD2Ev", "Type::~Type");
        check("_Z3runIPFviEEvT_", "run<void (*)(int)>");
        check("_ZN3foo3barB5cxx11Ev", "foo::bar");
        check("_Z5applyIiET_S0_", "apply<int>");
    }

    /// Judged by c++filt.
    #[test]
    fn thunks_have_the_name_of_their_function() {
        check("_ZThn56_N4shop4Cart5totalEv", "shop::Cart::total");
        check("_ZTv0_n24_N4shop4Cart5totalEv", "shop::Cart::total");
        check("_ZTchn8_v0_n24_N4shop4Cart4copyEv", "shop::Cart::copy");
        check("_ZThn_N4shop4Cart5totalEv", "_ZThn_N4shop4Cart5totalEv");
        check("_ZTh", "_ZTh");
        check("_ZTv0_", "_ZTv0_");
    }

    #[test]
    fn expressions_in_types_cost_the_name_nothing() {
        let enabled = "ENSt9enable_ifIXsr7is_sameIT_S1_EE5valueEvE4typeES1_";
        check(
            "_ZSt3logIiEN9__gnu_cxx11__enable_ifIXsr12__is_integerIT_EE7__valueEdE6__typeES3_",
            "std::log<int>",
        );
        check(
            &format!("_ZN2ns5applyIi{enabled}"),
            "_ZN2ns5applyIiENSt9enable_ifIXsr7is_sameIT_S1_EE5valueEvE4typeES1_",
        );
        check(&format!("_ZN2ns5applyIiE{enabled}"), "ns::apply<int>");
    }

    #[test]
    fn lambdas_say_where_they_are() {
        check("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()");
        check("_ZZ4mainENKUliE0_clEi", "main::{lambda(int)#2}::operator()");
    }

    #[test]
    fn rust_names_have_no_hash() {
        check("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt");
        check(
            "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
            "<Test + 'static as foo::Bar<Test>>::bar",
        );
        check("_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function");
        check("_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_", "cc::spawn::{closure#0}::{closure#0}");
    }

    #[test]
    fn symbols_are_clean_and_bounded_whatever_they_hold() {
        check("a\u{1b}[2Jb\u{202e}", "a[2Jb");
        let long = readable(&vec![b'x'; 1 << 20]);
        assert!(long.len() <= NAME_CAP && long.ends_with("x..."));
        let mut mangled = b"_Z".to_vec();
        mangled.extend(std::iter::repeat_n(b'N', 1 << 20));
        assert!(readable(&mangled).len() <= NAME_CAP);
        assert_eq!(readable(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_short_symbol_that_stands_for_gigabytes_is_cut() {
        // Each template argument pair repeats everything before it: 2^40 letters.
        let mut bomb = String::from("_Z1fI1aS_");
        for n in 0..40 {
            let back = char::from_digit(n.min(35), 36).map(|c| c.to_ascii_uppercase());
            bomb.push_str(&format!("1bIS{}_S{}_E", back.unwrap_or('0'), back.unwrap_or('0')));
        }
        bomb.push_str("EvT_");
        let name = readable(bomb.as_bytes());
        assert!(name.len() <= NAME_CAP);
    }
}
