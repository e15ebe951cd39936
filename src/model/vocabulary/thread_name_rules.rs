//! Thread name rules: what the names of threads that do the same have in common.

/// Shown for a name of which the rules leave nothing.
pub const UNNAMED: &str = "(unnamed)";

/// `s/REGEX/TEXT/` on a thread's name: every match is replaced; an empty result becomes
/// `(unnamed)`.
#[derive(Clone, Debug)]
pub struct Rename {
    pub pattern: regex::Regex,
    /// As `Regex::replace_all` takes it: `$1`, `${name}`, `$$`.
    pub text: String,
}

/// The name a thread called `name` is grouped under: the default rules, then `rename` in order.
pub fn by_rules(name: &str, rename: &[Rename]) -> String {
    let mut name = named(default_rules(name));
    for rule in rename {
        name = named(rule.pattern.replace_all(&name, rule.text.as_str()).into_owned());
    }
    name
}

fn named(name: String) -> String {
    if name.trim().is_empty() { UNNAMED.to_owned() } else { name }
}

/// Removes `[0-9a-f]{16,}`, then `[.:\d]+`, then squeezes repeated separators.
fn default_rules(name: &str) -> String {
    let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let run = rest.find(|c| !is_hex(c)).unwrap_or(rest.len());
        let end = if run == 0 { c.len_utf8() } else { run };
        if run < 16 {
            kept.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    let mut squeezed = String::with_capacity(kept.len());
    for c in kept.chars().filter(|c| !matches!(c, '.' | ':' | '0'..='9')) {
        let separates =
            matches!(c, '-' | '_' | ' ' | '/' | '#' | '@' | ',' | ';' | '|' | '+' | '=');
        if !(separates && squeezed.ends_with(c)) {
            squeezed.push(c);
        }
    }
    squeezed
}

/// Beginnings of the names of HotSpot's threads that collect garbage (JDK 8 to 26: gc/shared,
/// gc/g1, gc/parallel, gc/shenandoah, gc/z). The VM thread does it under SerialGC, and little else.
const COLLECTORS: &[&str] = &[
    "VM Thread",
    "GC Thread#",
    "GC task thread#",
    "Gang worker#",
    "ParGC Thread#",
    "G1 ",
    "Concurrent Mark",
    "CMS Main Thread",
    "Shenandoah",
    "ZDirector",
    "ZDriver",
    "ZWorker",
    "ZUnmapper",
    "ZUncommitter",
    "XDirector",
    "XDriver",
    "XWorker",
];

/// Returns whether threads of a runtime itself with this name collect garbage.
pub fn is_collector(name: &str) -> bool {
    COLLECTORS.iter().any(|begin| name.starts_with(begin))
}

/// What threads of a runtime itself are called inside of [`INTERNAL`]: without the number at their
/// end, which is all that tells those apart that do the same (`G1 Conc#0`); other digits are part
/// of the name (`C2 CompilerThread1`).
pub fn internal_name(name: &str, rename: &[Rename]) -> String {
    let mut name =
        named(name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '#').to_owned());
    for rule in rename {
        name = named(rule.pattern.replace_all(&name, rule.text.as_str()).into_owned());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_told_from_other_threads_of_the_machine() {
        for name in ["GC Thread#3", "VM Thread", "G1 Conc#0", "ZWorkerYoung#1", "ZDriverMinor"] {
            assert!(is_collector(name), "{name}");
        }
        for name in ["C2 CompilerThread0", "VM Periodic Task Thread", "GC-like", "StringDedup", ""]
        {
            assert!(!is_collector(name), "{name}");
        }
    }

    #[test]
    fn the_default_rules_leave_what_threads_have_in_common() {
        for (name, group) in [
            ("work-1", "work-"),
            ("work-12", "work-"),
            ("http-nio-8080-exec-7", "http-nio-exec-"),
            ("pool-3-thread-11", "pool-thread-"),
            ("kworker/0:1H", "kworker/H"),
            ("conn 10.0.3.9:5432 x", "conn x"),
            ("main", "main"),
            ("1234", "(unnamed)"),
            ("", "(unnamed)"),
            (" 7 ", "(unnamed)"),
            ("req 0123456789abcdef done", "req done"),
            ("req 0123456789abcde done", "req abcde done"),
            ("req deadbeefdeadbeefdeadbeef", "req "),
            ("decade", "decade"),
            ("größe-2", "größe-"),
        ] {
            assert_eq!(by_rules(name, &[]), group, "{name}");
        }
    }

    #[test]
    fn threads_of_a_runtime_keep_the_digits_of_their_names() {
        for (name, inner) in [
            ("C2 CompilerThread0", "C2 CompilerThread"),
            ("GC Thread#12", "GC Thread"),
            ("G1 Main Marker", "G1 Main Marker"),
            ("VM Periodic Tas", "VM Periodic Tas"),
            ("7", UNNAMED),
        ] {
            assert_eq!(internal_name(name, &[]), inner, "{name}");
        }
        let rename = [Rename::parse("s/^C[12] CompilerThread/compiler/").unwrap()];
        assert_eq!(internal_name("C2 CompilerThread0", &rename), "compiler");
    }

    #[test]
    fn renames_follow_the_rules_in_order() {
        let rules = ["s/^http-nio-exec-$/http/", "s/^h(t+)p/$1/", "s/x//"]
            .map(|text| Rename::parse(text).unwrap());
        assert_eq!(by_rules("http-nio-8080-exec-7", &rules), "tt");
        assert_eq!(by_rules("x", &rules), UNNAMED);
        let unnamed = [Rename::parse("s/^.unnamed.$/numbers/").unwrap()];
        assert_eq!(by_rules("42", &unnamed), "numbers");
    }
}
