//! The parts of a qualified name: which type or namespace a function belongs to; a class without
//! its package.

/// Types inside of types are looked into so deep: the depth of a hostile name must not become the
/// depth of our stack.
const DEPTH: usize = 3;

/// The path of a name without type arguments: `<a::B<T> as c::D>::e` -> `a`, `B`, `e`. A type that
/// has no path, as arguments of generic functions and `u32` have none, gives way to the trait: `<T
/// as c::D>::e` -> `c`, `D`, `e`.
pub fn segments(function: &str) -> Vec<&str> {
    let mut path = Vec::new();
    collect(function, DEPTH, &mut path);
    path
}

/// Returns a Java class without its package: `com.shop.Cart` is `Cart`.
pub fn simple_class(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The path of the type or namespace that a function belongs to; empty for a function of none. A
/// closure belongs where the function does that it stands in.
pub fn owner(function: &str) -> Vec<&str> {
    let function = function.find("{{vtable.shim}}").map_or(function, |end| &function[..end]);
    let mut path = segments(function);
    while let [.., before, last] = path[..]
        && (last.starts_with('{') || (last == "operator()" && before.starts_with('{')))
    {
        path.pop();
    }
    path.pop();
    path.retain(|part| !part.starts_with('{'));
    path
}

fn collect<'a>(name: &'a str, depth: usize, path: &mut Vec<&'a str>) {
    let mut rest = name;
    if depth > 0
        && let Some(inner) = name.strip_prefix('<')
    {
        let close = closing(inner);
        let (mut of, of_trait) = match outside(&inner[..close], " as ") {
            Some(at) => (&inner[..at], Some(&inner[at + 4..close])),
            None => (&inner[..close], None),
        };
        if let Some(implemented) = of.strip_prefix("impl ") {
            of = outside(implemented, " for ").map_or(implemented, |at| &implemented[at + 5..]);
        }
        let of = plain(of);
        let of = of_trait.filter(|_| !of.contains("::")).unwrap_or(of);
        collect(of, depth - 1, path);
        rest = inner[close..].strip_prefix('>').unwrap_or("");
    }
    let mut from = 0;
    let mut part = |part: &'a str| {
        // `name<T>`, and `name::<T>` whose last part is all type arguments.
        let name = part.split('<').next().unwrap_or(part);
        if !name.is_empty() {
            path.push(name);
        }
    };
    while let Some(at) = outside(&rest[from..], "::") {
        part(&rest[from..from + at]);
        from += at + 2;
    }
    part(&rest[from..]);
}

/// A type without what makes it a reference, a pointer or a trait object.
fn plain(mut of: &str) -> &str {
    loop {
        let shorter = of.trim_start_matches(['&', '*', '<', ' ']);
        let words = ["mut ", "const ", "dyn "];
        let shorter = words.iter().fold(shorter, |of, word| of.strip_prefix(word).unwrap_or(of));
        if shorter.len() == of.len() {
            return of;
        }
        of = shorter;
    }
}

/// How deep in brackets `text` is behind each byte. The arrow of a function type closes nothing.
fn depths(text: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut before = 0;
    text.bytes().enumerate().scan(0usize, move |depth, (at, byte)| {
        match byte {
            b'<' | b'(' | b'[' | b'{' => *depth += 1,
            b'>' if before == b'-' => {}
            b'>' | b')' | b']' | b'}' => *depth = depth.saturating_sub(1),
            _ => {}
        }
        before = byte;
        Some((at, *depth))
    })
}

/// Where the `<` before `text` is closed, or its end.
fn closing(text: &str) -> usize {
    let mut depth = 1usize;
    let mut before = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if before == b'-' => {}
            b'>' if depth == 1 => return at,
            b'>' => depth -= 1,
            _ => {}
        }
        before = byte;
    }
    text.len()
}

/// Where `what` stands first outside of brackets.
fn outside(text: &str, what: &str) -> Option<usize> {
    depths(text)
        .find(|(at, depth)| *depth == 0 && text.as_bytes()[*at..].starts_with(what.as_bytes()))
        .map(|at| at.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn owners() {
        for (function, of) in [
            ("main", ""),
            ("libx.so!fn_1a40", ""),
            ("operator new", ""),
            ("std::sort<int*>", "std"),
            ("std::vector<int, std::allocator<int> >::push_back", "std::vector"),
            ("ns::Foo::operator<<", "ns::Foo"),
            ("ns::Foo::operator->", "ns::Foo"),
            ("ns::Foo::Foo", "ns::Foo"),
            ("ns::run::{lambda(std::string)#1}::operator()", "ns"),
            ("ns::Foo::run<int>::{lambda()#2}::operator()<a::B>", "ns::Foo"),
            ("(anonymous namespace)::run", "(anonymous namespace)"),
            ("JavaThread::run", "JavaThread"),
            ("alloc::vec::Vec<T,A>::extend_desugared", "alloc::vec::Vec"),
            ("<alloc::vec::Vec<u8>>::push", "alloc::vec::Vec"),
            ("<a::B<c::D> as e::F>::g", "a::B"),
            ("<&mut a::B as e::F>::g", "a::B"),
            ("<T as core::fmt::Display>::fmt", "core::fmt::Display"),
            ("<u32 as core::fmt::Display>::fmt", "core::fmt::Display"),
            ("<[i32]>::sort", "[i32]"),
            ("<dyn a::B as e::F>::g", "a::B"),
            ("<impl core::fmt::Display for app::Row>::fmt", "app::Row"),
            ("core::slice::<impl [T]>::sort", "core::slice"),
            ("app::{impl#3}::run", "app"),
            ("app::Pool::run::{closure#0}::{closure#1}", "app::Pool"),
            ("app::pool::run::{{closure}}", "app::pool"),
            (
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                "core::ops::function::FnOnce",
            ),
            ("std::thread::spawn::<fn() -> a::B>", "std::thread"),
            ("", ""),
            ("::", ""),
        ] {
            assert_eq!(owner(function).join("::"), of, "{function}");
        }
    }

    #[test]
    fn nested_brackets_are_not_recursed_into() {
        for hostile in
            ["<".repeat(4096), "<a as ".repeat(600), "<impl <".repeat(600), "<&<&mut ".repeat(600)]
        {
            assert!(owner(&hostile).len() < hostile.len());
        }
    }

    proptest! {
        #[test]
        fn no_name_panics(name in "[a-z:<>()\\[\\]{} &*,é漢-]{0,40}|.{0,20}") {
            prop_assert!(owner(&name).iter().all(|part| !part.is_empty()));
        }
    }
}
