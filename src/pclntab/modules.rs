//! Whose code a Go function is, by its package.
//!
//! Go's linker writes the paths of the main module and of those it depends on into the program
//! (`.go.buildinfo`, debug/buildinfo), also into stripped ones.

use crate::model::vocabulary::go_functions::package;
use crate::model::vocabulary::role::Origin;

/// First bytes of the build information; it is aligned to 16 bytes.
pub const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Flag: the texts follow right behind the header (Go 1.18 and later).
const INLINE: u8 = 2;
/// Offset of the flags, and bytes of the header.
const FLAGS: usize = 15;
const HEADER: usize = 32;
/// Bytes before and after the modules' text.
const SENTINEL: usize = 16;

/// The modules of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Modules {
    /// Path of the main module, as `github.com/ann/shop`; `None` where the program was not built as
    /// a module.
    main: Option<String>,
}

impl Modules {
    /// Parses the build information, which begins with [`MAGIC`]. (Behind it may be more.)
    pub fn parse(information: &[u8]) -> Modules {
        Modules { main: main_module(information) }
    }

    /// Returns whose code a function is; `Unknown` where the program does not say it.
    pub fn origin(&self, function: &str) -> Origin {
        let package = package(function);
        let is_main = |main: &str| {
            package.strip_prefix(main).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match &self.main {
            _ if package == "main" => Origin::App,
            // What the linker and the compiler made: `type:.eq.x`, `_rt0_amd64`.
            _ if package.is_empty() => Origin::Library,
            Some(main) if is_main(main) => Origin::App,
            Some(_) => Origin::Library,
            None => Origin::Unknown,
        }
    }
}

/// Returns the main module's path.
fn main_module(info: &[u8]) -> Option<String> {
    if !info.starts_with(MAGIC) || info.get(FLAGS)? & INLINE == 0 {
        return None;
    }
    let (_, rest) = text(info.get(HEADER..)?)?;
    let (modules, _) = text(rest)?;
    let modules = modules.get(SENTINEL..modules.len().checked_sub(SENTINEL)?)?;
    let modules = std::str::from_utf8(modules).ok()?;
    let main = modules.lines().find_map(|line| line.strip_prefix("mod\t"))?;
    let path = main.split('\t').next()?;
    // `go run` and `go build x.go` outside of a module.
    Some(path.to_owned()).filter(|path| !path.is_empty() && path != "command-line-arguments")
}

/// Splits off a text behind its length, a number of 7 bits per byte.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut length, mut shift) = (0u64, 0);
    for (at, byte) in bytes.iter().enumerate().take(5) {
        length |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return bytes[at + 1..].split_at_checked(usize::try_from(length).ok()?);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(modules: &str) -> Vec<u8> {
        let mut info = [MAGIC, &[8, INLINE]].concat();
        info.resize(HEADER, 0);
        let modules = [&[b'0'; SENTINEL][..], modules.as_bytes(), &[b'1'; SENTINEL]].concat();
        for text in [&b"go1.26.8"[..], &modules] {
            info.push(text.len() as u8 & 0x7f | 0x80);
            info.push((text.len() >> 7) as u8);
            info.extend_from_slice(text);
        }
        info
    }

    #[test]
    fn the_main_module_is_read() {
        let text = "path\tgithub.com/ann/shop/cmd/server\nmod\tgithub.com/ann/shop\tv1.2.0\th1:=\n\
                    dep\tgithub.com/x/y\tv2.0.0\n";
        let whole = info(text);
        assert_eq!(main_module(&whole).as_deref(), Some("github.com/ann/shop"));
        for end in 0..whole.len() {
            assert_eq!(main_module(&whole[..end]), None, "cut at {end}");
        }
        let none = ["path\tcommand-line-arguments\n", "mod\t\n", "mod\tcommand-line-arguments\t\n"];
        for text in none {
            assert_eq!(main_module(&info(text)), None, "{text}");
        }
        let mut old = info(text);
        old[FLAGS] = 0;
        assert_eq!(main_module(&old), None, "before Go 1.18 it lies elsewhere");
    }

    #[test]
    fn the_main_modules_packages_are_the_programs() {
        let module = |main: Option<&str>| Modules { main: main.map(str::to_owned) };
        for (function, with, without) in [
            ("main.main", Origin::App, Origin::App),
            ("shop/cart.Total", Origin::App, Origin::Unknown),
            ("shop.Total", Origin::App, Origin::Unknown),
            ("shopping.Total", Origin::Library, Origin::Unknown),
            ("encoding/json.structEncoder.encode-fm", Origin::Library, Origin::Unknown),
            ("github.com/x/y.Z", Origin::Library, Origin::Unknown),
            ("type:.eq.x", Origin::Library, Origin::Library),
        ] {
            assert_eq!(module(Some("shop")).origin(function), with, "{function}");
            assert_eq!(module(None).origin(function), without, "{function}");
        }
    }
}
