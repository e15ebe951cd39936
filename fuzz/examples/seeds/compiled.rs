//! Programs that are compiled, and their sections.

use std::fs;
use std::process::Command;

use crate::Seeds;

impl Seeds {
    pub fn compile(&self, language: &str, source: &str, flags: &[&str]) -> Vec<u8> {
        let (input, output) = (self.folder.join("program.source"), self.folder.join("program"));
        fs::write(&input, source).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
        let small = [
            "-O2",
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-Wl,-z,noseparate-code",
            "-Wl,-z,max-page-size=4096",
        ];
        let mut compiler = Command::new("cc");
        compiler.args(small).args(flags).args(["-x", language]).arg(&input).arg("-o").arg(&output);
        match compiler.status() {
            Ok(status) if status.success() => {}
            done => panic!("a C and C++ compiler is needed: {compiler:?}: {done:?}"),
        }
        let file = fs::read(&output).expect("it was just compiled");
        let _ = (fs::remove_file(input), fs::remove_file(output));
        file
    }
}

/// Scopes, a template, a lambda, a local class, and nested inlined functions.
pub const CPP: &str = "
volatile long sink;
namespace shop {
namespace { __attribute__((noinline)) long hidden(long n) { sink += n; return n * 3; } }
template <typename T> struct Basket {
    T total;
    __attribute__((noinline)) T add(T n) const { struct Local { static T twice(T n) { sink ^= n; return 2 * n; } };
        auto more = [&](T m) { sink -= m; return total + m; };
        return Local::twice(more(n)); }
    operator long() const { return total; }
};
inline __attribute__((always_inline)) long inner(long n) { for (long i = 0; i < n; i++) sink += i; return n; }
__attribute__((noinline)) long outer(long n) { if (__builtin_expect(n < 0, 0)) hidden(n); return inner(n) + hidden(n); }
}
extern \"C\" long start(long n) { shop::Basket<long> b{n}; return b.add(n) + shop::outer(n) + shop::Basket<int>{1}.add(2); }
";

/// Returns name and bytes of each section of a well-formed file.
pub fn sections(file: &[u8]) -> Vec<(String, &[u8])> {
    let number = |at: usize, size: usize| {
        file[at..at + size].iter().rev().fold(0usize, |value, byte| value << 8 | usize::from(*byte))
    };
    let (table, count, names) = (number(40, 8), number(60, 2), number(62, 2));
    let header = |index: usize| table + 64 * index;
    let names = number(header(names) + 24, 8);
    (1..count)
        .map(|index| {
            let (name, kind) = (names + number(header(index), 4), number(header(index) + 4, 4));
            let name = file[name..].split(|b| *b == 0).next().unwrap_or_default();
            let (offset, size) = (number(header(index) + 24, 8), number(header(index) + 32, 8));
            // SHT_NOBITS has no bytes.
            let bytes = if kind == 8 { &[][..] } else { &file[offset..offset + size] };
            (String::from_utf8_lossy(name).into_owned(), bytes)
        })
        .collect()
}
