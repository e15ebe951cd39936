//! Short names: the type and the function, without their path. Java packages are reduced to their
//! initials.

use std::borrow::Cow;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::RollUp;
use crate::model::vocabulary::{anonymous, go_functions};

/// Shortens a name: `alloc::vec::Vec<T>::push` -> `Vec::push`; `app::Pool::run::{closure#0}` ->
/// `Pool::run::{closure#0}`; `<core::slice::Iter<T> as Iterator>::next` -> `Iter::next`;
/// `com.shop.PgStatement.executeQuery` -> `c.s.PgStatement.executeQuery`. Markers and plain names
/// are kept. `shop.views.Cart.total` of Python -> `Cart.total`;
/// `net/http.(*conn).serve` of Go -> `http.(*conn).serve`. A rolled-up row is named by its
/// last part.
pub fn short(location: &Location, by: RollUp) -> Cow<'_, str> {
    let name: &str = &location.function;
    match (location.kind, by) {
        (FrameKind::Marker | FrameKind::Thread | FrameKind::Kernel, _) => Cow::Borrowed(name),
        (FrameKind::Java, RollUp::Function | RollUp::Line) => initials(name, 2),
        (FrameKind::Java, RollUp::Class | RollUp::Package) => initials(name, 1),
        (_, RollUp::Module | RollUp::Package) => Cow::Borrowed(name),
        (FrameKind::Python, RollUp::Class) => Cow::Borrowed(last_parts(name, '.')),
        (FrameKind::Python, _) => short_python(name),
        (FrameKind::Native, RollUp::Class) => {
            Cow::Borrowed(name.rsplit("::").next().unwrap_or(name))
        }
        (FrameKind::Native, _)
            if go_functions::is_go(&location.function, location.file.as_deref()) =>
        {
            Cow::Borrowed(go_functions::short(&location.function))
        }
        // `(anonymous app.js:9:12)`, whatever the file is called.
        (FrameKind::Jit, _) if anonymous::file(name).is_some() => Cow::Borrowed(name),
        (FrameKind::Native | FrameKind::Jit, _) => short_native(without_prefix(location)),
    }
}

/// Shortens a name further, where [`short`] does not fit: `com.shop.PgStatement.executeQuery` ->
/// `PgStatement.executeQuery`.
pub fn shortest(location: &Location, by: RollUp) -> Cow<'_, str> {
    match (location.kind, by) {
        (FrameKind::Java, RollUp::Function | RollUp::Line) => {
            Cow::Borrowed(last_parts(&location.function, '.'))
        }
        _ => short(location, by),
    }
}

/// Reduces the parts between dots to their first letters, except the last `whole` ones, as loggers
/// abbreviate class names.
fn initials(name: &str, whole: usize) -> Cow<'_, str> {
    let Some((from, _)) = name.rmatch_indices('.').nth(whole - 1) else {
        return Cow::Borrowed(name);
    };
    let mut short = String::new();
    for package in name[..from].split('.') {
        short.extend(package.chars().next());
        short.push('.');
    }
    short.push_str(&name[from + 1..]);
    Cow::Owned(short)
}

/// Returns the last two parts between separators.
fn last_parts(name: &str, separator: char) -> &str {
    name.rmatch_indices(separator).nth(1).map_or(name, |(at, _)| &name[at + separator.len_utf8()..])
}

/// Reduces a Python name to the function and what it is defined in: `shop.views.Cart.total` ->
/// `Cart.total`; `shop.views.outer.<locals>.<lambda>` -> `outer.<lambda>`.
fn short_python(name: &str) -> Cow<'_, str> {
    const LOCALS: &str = ".<locals>";
    let plain = name.replace(LOCALS, "");
    match plain.len() == name.len() || plain.is_empty() {
        true => Cow::Borrowed(last_parts(name, '.')),
        false => Cow::Owned(last_parts(&plain, '.').to_owned()),
    }
}

/// Strips the C library's internal prefixes: `__libc_recv` -> `recv`, `___pthread_cond_wait` ->
/// `pthread_cond_wait`.
fn without_prefix(location: &Location) -> &str {
    let name = &*location.function;
    let of_libc = ["libc.so", "libc-", "libpthread"];
    if !of_libc.iter().any(|module| location.module.starts_with(module)) {
        return name;
    }
    let mut plain = name.trim_start_matches('_');
    for prefix in ["GI_", "libc_", "new_"] {
        plain = plain.strip_prefix(prefix).unwrap_or(plain).trim_start_matches('_');
    }
    if plain.is_empty() { name } else { plain }
}

fn short_native(name: &str) -> Cow<'_, str> {
    // `libx.so!fn_1a40` and operators are kept.
    if !name.contains("::") && !name.contains('<') || name.contains("operator") {
        return Cow::Borrowed(name);
    }
    // The compiler's suffix of its own copy of a function is of no interest.
    let parts = parts(name.strip_suffix("{{vtable.shim}}").unwrap_or(name));
    let plain: Vec<String> =
        parts.iter().map(|p| without_generics(p)).filter(|p| !p.is_empty()).collect();
    // A closure is identified by the function that contains it.
    let closures = plain.iter().rev().take_while(|p| p.starts_with('{')).count();
    let from = plain.len().saturating_sub(2 + closures);
    let short = plain[from..].join("::");
    if short.is_empty() { Cow::Borrowed(name) } else { Cow::Owned(short) }
}

/// Splits at `::` outside of brackets.
fn parts(name: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0i32, 0);
    let bytes = name.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            // The arrow of a function type closes no bracket.
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth -= 1,
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => {
                parts.push(&name[from..at]);
                at += 1;
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(&name[from..]);
    parts
}

/// Strips generics: `Vec<T>` -> `Vec`, `<A as B>` -> the last part of `A`, `<T>` alone -> nothing.
fn without_generics(part: &str) -> String {
    if let Some(inner) = part.strip_prefix('<').and_then(|p| p.strip_suffix('>')) {
        if let Some(at) = top_level_as(inner) {
            let own = inner[..at]
                .trim_start_matches(['&', '*'])
                .trim_start_matches("mut ")
                .trim_start_matches("const ");
            return parts(own).last().map(|p| without_generics(p)).unwrap_or_default();
        }
        // `<impl Trait for Type>` and a lone `<T>` of a generic function.
        return match inner.strip_prefix("impl ") {
            Some(rest) => parts(rest.rsplit(" for ").next().unwrap_or(rest))
                .last()
                .map(|p| without_generics(p))
                .unwrap_or_default(),
            None if inner.contains("::")
                && part.len() > 2
                && !inner.contains(',')
                && !inner.contains(' ') =>
            {
                parts(inner).last().map(|p| without_generics(p)).unwrap_or_default()
            }
            None => String::new(),
        };
    }
    match part.find('<') {
        Some(0) | None => part.to_string(),
        Some(at) => part[..at].to_string(),
    }
}

/// Finds ` as ` outside of brackets.
fn top_level_as(text: &str) -> Option<usize> {
    let mut depth = 0i32;
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            ')' | ']' => depth -= 1,
            ' ' if depth == 0 && text[at..].starts_with(" as ") => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn native(name: &str) -> String {
        let location = Location {
            function: name.into(),
            module: "m".into(),
            file: None,
            line: None,
            kind: FrameKind::Native,
            tier: None,
        };
        short(&location, RollUp::Function).into_owned()
    }

    #[test]
    fn native_names() {
        for (long, expected) in [
            ("main", "main"),
            ("alloc::vec::Vec<T>::push", "Vec::push"),
            ("alloc::vec::Vec<T,A>::extend_desugared", "Vec::extend_desugared"),
            ("<core::slice::iter::Iter<T> as core::iter::Iterator>::next", "Iter::next"),
            ("<&mut I as core::iter::Iterator>::next", "I::next"),
            ("core::ops::function::FnOnce::call_once{{vtable.shim}}", "FnOnce::call_once"),
            ("app::pool::run::{{closure}}", "pool::run::{{closure}}"),
            ("app::Pool::run::{closure#0}::{closure#1}", "Pool::run::{closure#0}::{closure#1}"),
            ("std::sync::poison::mutex::Mutex<T>::lock", "Mutex::lock"),
            ("std::thread::spawn::<fn() -> i32>", "thread::spawn"),
            ("std::vector<int, std::allocator<int> >::push_back", "vector::push_back"),
            ("Foo::operator<<", "Foo::operator<<"),
            ("libx.so!fn_1a40", "libx.so!fn_1a40"),
            ("(anonymous namespace)::run", "(anonymous namespace)::run"),
            ("<impl core::fmt::Display for app::Row>::fmt", "Row::fmt"),
        ] {
            assert_eq!(native(long), expected, "{long}");
        }
    }

    #[test]
    fn the_c_librarys_own_prefixes_say_nothing() {
        let of = |name: &str, module: &str| {
            let named = Location::named(name, FrameKind::Native);
            short(&Location { module: module.into(), ..named }, RollUp::Function).into_owned()
        };
        for (long, expected) in [
            ("__libc_recv", "recv"),
            ("___pthread_cond_wait", "pthread_cond_wait"),
            ("__GI___clock_nanosleep", "clock_nanosleep"),
            ("recv", "recv"),
            ("__", "__"),
        ] {
            assert_eq!(of(long, "libc.so.6"), expected);
            assert_eq!(of(long, "shop"), long, "a program's own names are kept");
        }
    }

    #[test]
    fn packages_go_where_a_name_does_not_fit() {
        let of = |name, kind, by| shortest(&Location::named(name, kind), by).into_owned();
        let java = |name| of(name, FrameKind::Java, RollUp::Function);
        assert_eq!(java("java.util.regex.Matcher.matches"), "Matcher.matches");
        assert_eq!(java("com.shop.Cart$Item.<init>"), "Cart$Item.<init>");
        assert_eq!(java("main"), "main");
        assert_eq!(of("com.shop.Cart", FrameKind::Java, RollUp::Class), "c.s.Cart");
        assert_eq!(of("a::b::C::d", FrameKind::Native, RollUp::Function), "C::d");
    }

    #[test]
    fn other_languages() {
        let by = |roll_up, name: &str, kind| {
            let (function, module) = (name.into(), "m".into());
            short(&Location { function, module, file: None, line: None, kind, tier: None }, roll_up)
                .into_owned()
        };
        let of = |name, kind| by(RollUp::Function, name, kind);
        let unnamed = "(anonymous evalmachine.<anonymous>:1:1)";
        assert_eq!(of(unnamed, FrameKind::Jit), unnamed);
        for (name, shorter) in [
            ("org.apache.catalina.core.StandardWrapper.invoke", "o.a.c.c.StandardWrapper.invoke"),
            ("com.größe.Kern$Teil.<init>", "c.g.Kern$Teil.<init>"),
            ("a..B.run", "a..B.run"),
            ("Main.main", "Main.main"),
            ("run", "run"),
        ] {
            assert_eq!(of(name, FrameKind::Java), shorter);
        }
        assert_eq!(
            by(RollUp::Class, "com.shop.db.PgStatement", FrameKind::Java),
            "c.s.d.PgStatement"
        );
        assert_eq!(by(RollUp::Package, "com.shop.db", FrameKind::Java), "c.s.db");
        assert_eq!(by(RollUp::Module, "[java]", FrameKind::Java), "[java]");
        assert_eq!(by(RollUp::Class, "alloc::vec::Vec", FrameKind::Native), "Vec");
        assert_eq!(by(RollUp::Module, "libstdc++.so.6", FrameKind::Native), "libstdc++.so.6");
        for (name, shorter) in [
            ("shop.views.Cart.total", "Cart.total"),
            ("shop.views.total", "views.total"),
            ("views.<module>", "views.<module>"),
            ("shop.views.<lambda>", "views.<lambda>"),
            ("shop.views.outer.<locals>.inner", "outer.inner"),
            ("shop.views.Cart.total.<locals>.<listcomp>", "total.<listcomp>"),
            ("shop.a.<locals>.b.<locals>.<lambda>", "b.<lambda>"),
            ("total", "total"),
            (".<locals>", ".<locals>"),
        ] {
            assert_eq!(of(name, FrameKind::Python), shorter);
        }
        let go = |name: &str| {
            let file = Some("/go/src/net/http/server.go".into());
            let location = Location { file, ..Location::named(name, FrameKind::Native) };
            short(&location, RollUp::Function).into_owned()
        };
        assert_eq!(go("net/http.(*conn).serve"), "http.(*conn).serve");
        assert_eq!(go("github.com/x/y.Map[...].func1"), "y.Map[...].func1");
        let python = |roll_up, name| by(roll_up, name, FrameKind::Python);
        assert_eq!(python(RollUp::Class, "shop.views.Cart"), "views.Cart");
        assert_eq!(python(RollUp::Module, "shop.api.views"), "shop.api.views");
        assert_eq!(of("[torn]", FrameKind::Marker), "[torn]");
    }

    proptest! {
        #[test]
        fn no_name_panics_or_vanishes(name in "[a-z:<>()\\[\\]{} &*,é漢-]{1,40}|.{1,20}") {
            prop_assert!(!native(&name).is_empty());
        }
    }
}
