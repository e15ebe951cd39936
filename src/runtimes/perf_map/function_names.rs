//! Parses the names in a perf map. V8 (Node) has a notation of its own; others write free text.

use crate::model::facts::tables::{FrameKind, Location, Tier};
use crate::model::vocabulary::anonymous::{self, ANONYMOUS};
use crate::model::vocabulary::text::clean_bytes;

use super::FrameSetup;

/// Maximum bytes kept of a name.
const NAME_MAX: usize = 4096;
/// The module of code that has no other.
const MODULE: &str = "[perf map]";
/// The name of code whose own name has no printable character.
const UNNAMED: &str = "generated code";

/// Returns the location for a name, and how such code builds its frames.
pub fn read(name: &[u8]) -> (Location, FrameSetup) {
    let text = clean_bytes(name, NAME_MAX);
    let (kind, rest) = text.split_once(':').unwrap_or(("", &text));
    let whole = |setup| {
        (
            Location {
                function: if text.trim().is_empty() { UNNAMED } else { text.as_str() }.into(),
                module: MODULE.into(),
                file: None,
                line: None,
                kind: FrameKind::Jit,
                tier: None,
            },
            setup,
        )
    };
    match kind {
        "JS" | "LazyCompile" | "Function" | "Eval" | "Script" => {}
        // They build and remove their callers' frames: it is unknown how far that has come.
        "Builtin" if matches!(rest, "BaselineOutOfLinePrologue" | "BaselineLeaveFrame") => {
            return whole(FrameSetup::Hidden);
        }
        "Builtin" | "BytecodeHandler" => return whole(FrameSetup::Marked),
        _ => return whole(FrameSetup::Plain),
    }
    let (mark, rest) = mark(rest);
    let (tier, setup) = match mark {
        Some('~') => (Some(Tier::Interpreted), FrameSetup::Plain),
        Some('^') => (Some(Tier::Baseline), FrameSetup::ByCall),
        Some(_) => (Some(Tier::Optimized), FrameSetup::Plain),
        None => (None, FrameSetup::Plain),
    };
    let (function, place) = rest.split_at(place_in(rest));
    let (file, line, column) = match position(place.trim()) {
        Some((file, line, column)) => (file, Some(line), column),
        None => (place.trim(), None, None),
    };
    let function = match (function.trim(), line.zip(column)) {
        ("", Some((line, column))) if !file.is_empty() => anonymous::name(file, line, column),
        ("", _) => ANONYMOUS.into(),
        (function, _) => function.into(),
    };
    let location = Location {
        function,
        module: if file.is_empty() { MODULE } else { file }.into(),
        file: (!file.is_empty()).then(|| file.into()),
        line,
        kind: FrameKind::Jit,
        tier,
    };
    (location, setup)
}

/// Splits the mark off a function's name: `~` interpreted, `^` baseline, `+` and `*` optimised. `o`
/// stands before it where the code was entered in a loop, `'` behind it where it is for one
/// context.
fn mark(text: &str) -> (Option<char>, &str) {
    let is_mark = |c: &char| matches!(c, '~' | '^' | '+' | '*');
    let marked =
        text.strip_prefix('o').filter(|rest| rest.chars().next().as_ref().is_some_and(is_mark));
    let marked = marked.unwrap_or(text);
    match marked.chars().next().filter(is_mark) {
        Some(mark) => {
            let rest = &marked[1..];
            (Some(mark), rest.strip_prefix('\'').unwrap_or(rest))
        }
        None => (None, text),
    }
}

/// Returns where the function's name ends and its source position begins. Both may contain spaces.
/// A position begins as a path or with a scheme, else behind the last space.
fn place_in(text: &str) -> usize {
    let begins = [" /", " node:", " file:", " http:", " https:", " webpack:", " evalmachine."];
    begins
        .iter()
        .filter_map(|begin| text.find(begin))
        .min()
        .or_else(|| text.rfind(' '))
        .unwrap_or(text.len())
}

/// Parses `FILE:LINE:COLUMN` or `FILE:LINE`.
fn position(place: &str) -> Option<(&str, u32, Option<u32>)> {
    let number = |text: &str| (text.len() <= 9).then(|| text.parse::<u32>().ok()).flatten();
    let (before, last) = place.rsplit_once(':')?;
    let last = number(last)?;
    match before.rsplit_once(':').and_then(|(file, line)| Some((file, number(line)?))) {
        Some((file, line)) => Some((file, line, Some(last))),
        None => Some((before, last, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn js(name: &str) -> (String, String, Option<u32>, Option<Tier>) {
        let (location, _) = read(name.as_bytes());
        let file = location.file.as_deref().unwrap_or_default().to_owned();
        assert_eq!(&*location.module, if file.is_empty() { MODULE } else { &file }, "{name}");
        (location.function.to_string(), file, location.line, location.tier)
    }

    #[test]
    fn names_of_v8_become_function_file_and_line() {
        let cases = [
            ("JS:*inner /srv/a.js:4:15", ("inner", "/srv/a.js", Some(4), Some(Tier::Optimized))),
            (
                "JS:~get value /srv/my dir/a.js:4:15",
                ("get value", "/srv/my dir/a.js", Some(4), Some(Tier::Interpreted)),
            ),
            (
                "JS:^spin node:internal/x:1:2",
                ("spin", "node:internal/x", Some(1), Some(Tier::Baseline)),
            ),
            ("JS:+f file:///a.mjs:9:1", ("f", "file:///a.mjs", Some(9), Some(Tier::Optimized))),
            ("JS:o*f /a.js:9:1", ("f", "/a.js", Some(9), Some(Tier::Optimized))),
            ("JS:*'f /a.js:9:1", ("f", "/a.js", Some(9), Some(Tier::Optimized))),
            ("LazyCompile:~old /a.js:7", ("old", "/a.js", Some(7), Some(Tier::Interpreted))),
            (
                "JS:* /srv/a.js:1:9",
                ("(anonymous a.js:1:9)", "/srv/a.js", Some(1), Some(Tier::Optimized)),
            ),
            ("Eval:~ :1:1", ("(anonymous)", "", Some(1), Some(Tier::Interpreted))),
            ("JS:~", ("(anonymous)", "", None, Some(Tier::Interpreted))),
            ("JS:open a.js:3:1", ("open", "a.js", Some(3), None)),
            (
                "JS:~f [eval]:99999999999:1",
                ("f", "[eval]:99999999999", Some(1), Some(Tier::Interpreted)),
            ),
            ("Builtin:ArrayMap", ("Builtin:ArrayMap", "", None, None)),
            ("void Program::Main()[Tier0]", ("void Program::Main()[Tier0]", "", None, None)),
            ("$lists:map/2", ("$lists:map/2", "", None, None)),
        ];
        for (name, (function, file, line, tier)) in cases {
            assert_eq!(js(name), (function.into(), file.into(), line, tier), "{name}");
        }
    }

    #[test]
    fn code_sets_up_its_frames_by_its_kind() {
        let cases = [
            ("JS:*f /a.js:9:1", FrameSetup::Plain),
            ("JS:~f /a.js:9:1", FrameSetup::Plain),
            ("JS:^f /a.js:9:1", FrameSetup::ByCall),
            ("Builtin:ArrayMap", FrameSetup::Marked),
            ("BytecodeHandler:Ldar", FrameSetup::Marked),
            ("Builtin:BaselineOutOfLinePrologue", FrameSetup::Hidden),
            ("Builtin:BaselineLeaveFrame", FrameSetup::Hidden),
            ("void Program::Main()[Tier0]", FrameSetup::Plain),
        ];
        for (name, setup) in cases {
            assert_eq!(read(name.as_bytes()).1, setup, "{name}");
        }
    }

    #[test]
    fn hostile_names_come_out_clean() {
        let (location, _) = read(b"JS:*\x1b[2J\xff\xe2\x80\xaef /\x07.js:4:15");
        assert!(
            location.function.chars().all(|c| !c.is_control() && c != '\u{202e}'),
            "{:?}",
            location.function
        );
        for name in [&b"\r"[..], b"\x07 \x1b", b"\xe2\x80\xae"] {
            assert_eq!(&*read(name).0.function, "generated code", "{name:?}");
        }
        let (location, _) = read(&[b'a'; 1 << 20]);
        assert!(location.function.len() <= NAME_MAX);
        for name in [
            &b":"[..],
            b"JS:",
            b"JS:o",
            b"JS:o~",
            b"JS:*'",
            b"JS: ",
            b"JS:~ ::",
            b"JS:~\xc3\xa9 /:",
            b"",
        ] {
            read(name);
        }
    }
}
