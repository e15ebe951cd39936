//! Rolls frames up to the class, package or module that they belong to.
//!
//! | | class | package | module |
//! |---|---|---|---|
//! | Java | the class, with inner classes separate; without classes generated for its lambdas | its package | `[java]` |
//! | C++, Rust | the type or namespace that owns the function, else the module | the outermost namespace, the crate; else the module | the shared object |
//! | Go | the type whose method it is, else the package | its package | the program |
//! | JIT code | the file, else the module | the module | the module |
//! | Python | the class, also one within a function; else the module | the outermost package, else the module | the module |
//! | kernel | the module | the module | the module |
//!
//! Modules are shared objects; Java's own modules are not read. So under `module` all Java code is
//! one row, beside the virtual machine and the C library. Of Python, modules are read.

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::projection::settings::RollUp;
use crate::model::vocabulary::go_functions;
use crate::model::vocabulary::qualified::owner;

/// The module of all Java methods.
const JAVA: &str = "[java]";
/// The package of classes without one.
const NO_PACKAGE: &str = "(no package)";

/// The part of a Python name between a function and what is defined in it.
const LOCALS: &str = "<locals>";

/// What follows a class's name in the names of classes generated for it at run time.
const GENERATED: &[&str] = &[
    "$$Lambda",
    "$$StringConcat",
    "$$TypeSwitch",
    "$$SpringCGLIB",
    "$$EnhancerBy",
    "$$FastClassBy",
    "$ByteBuddy",
    "$MockitoMock",
    "$HibernateProxy",
    "_$$_",
];

/// Returns the row of a location under a roll-up; `None` if the location is a row of its own.
pub(super) fn unit(location: &Location, by: RollUp) -> Option<Location> {
    let module: &str = &location.module;
    let owner: Cow<'_, str> = match (by, location.kind) {
        (RollUp::Function | RollUp::Line, _) | (_, FrameKind::Marker | FrameKind::Thread) => {
            return None;
        }
        (RollUp::Class, FrameKind::Java) => class(location).into(),
        (RollUp::Package, FrameKind::Java) => match class(location).rsplit_once('.') {
            Some((package, _)) => package.into(),
            None => NO_PACKAGE.into(),
        },
        (RollUp::Module, FrameKind::Java) => JAVA.into(),
        (RollUp::Class, FrameKind::Native) if is_go(location) => {
            go_functions::receiver(&location.function).into()
        }
        (RollUp::Package, FrameKind::Native) if is_go(location) => {
            go_functions::package(&location.function).into()
        }
        (RollUp::Class, FrameKind::Native) => owner(&location.function).join("::").into(),
        (RollUp::Package, FrameKind::Native) => {
            namespace(&owner(&location.function)).to_owned().into()
        }
        (RollUp::Class, FrameKind::Python) => python_class(location).into(),
        (RollUp::Package, FrameKind::Python) => module.split('.').next().unwrap_or(module).into(),
        (RollUp::Class, FrameKind::Jit) => base(location.file.as_deref().unwrap_or("")).into(),
        (_, FrameKind::Native | FrameKind::Jit | FrameKind::Kernel | FrameKind::Python) => {
            "".into()
        }
    };
    let (name, module): (Arc<str>, Arc<str>) = match (&*owner, module) {
        // Code without an owner belongs to its module; with an unknown module it is a row of its
        // own.
        ("", "") => (location.function.clone(), "".into()),
        ("", module) => (base(module).into(), location.module.clone()),
        // The same row in every module.
        (owner, _) => (owner.into(), "".into()),
    };
    Some(Location {
        function: name,
        module,
        file: None,
        line: None,
        kind: location.kind,
        tier: None,
    })
}

/// Returns whether a frame's time is part of this row.
pub fn is_of(row: &Location, location: &Location, by: RollUp) -> bool {
    let is = |location: &Location| {
        (&row.function, &row.module, row.kind)
            == (&location.function, &location.module, location.kind)
    };
    unit(location, by).map_or_else(|| is(location), |unit| is(&unit))
}

/// Returns the class, which is the frame's module.
fn class(location: &Location) -> &str {
    let class = match &*location.module {
        "" => location.function.rsplit_once('.').map_or("", |(class, _)| class),
        class => class,
    };
    GENERATED.iter().fold(class, |class, mark| class.split_once(mark).map_or(class, |(of, _)| of))
}

/// Returns the class of a Python function with its module, or the module alone: of
/// `shop.views.Cart.total` in `shop.views` it is `shop.views.Cart`. A function within another
/// belongs where that does. Empty without both.
fn python_class(location: &Location) -> &str {
    let (name, module) = (&*location.function, &*location.module);
    let qualified = match module {
        "" => name,
        module => match name.strip_prefix(module).and_then(|rest| rest.strip_prefix('.')) {
            Some(qualified) => qualified,
            None => return module,
        },
    };
    let start = name.len() - qualified.len();
    let mut owner = qualified;
    // `Cart.total.<locals>.inner` -> `Cart.total.<locals>` -> `Cart.total` -> `Cart`.
    loop {
        owner = owner.rsplit_once('.').map_or("", |(owner, _)| owner);
        match owner.strip_suffix(LOCALS) {
            Some(function) => owner = function.trim_end_matches('.'),
            None => break,
        }
    }
    match owner {
        "" => module,
        owner => &name[..start + owner.len()],
    }
}

fn is_go(location: &Location) -> bool {
    go_functions::is_go(&location.function, location.file.as_deref())
}

/// Returns the outermost namespace, or the crate. Empty for a class outside of all namespaces.
fn namespace<'a>(owner: &[&'a str]) -> &'a str {
    match *owner {
        [] => "",
        [first, ..] if first.starts_with(['(', '[']) => "",
        [only] if only.starts_with(|c: char| c.is_uppercase()) => "",
        [first, ..] => first,
    }
}

/// Returns the last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: FrameKind, function: &str, module: &str, expected: [&str; 3]) {
        let file = None;
        let location = Location {
            function: function.into(),
            module: module.into(),
            file,
            line: Some(7),
            kind,
            tier: None,
        };
        for (by, expected) in
            [RollUp::Class, RollUp::Package, RollUp::Module].into_iter().zip(expected)
        {
            let unit = unit(&location, by).expect("it belongs to something");
            assert_eq!(
                (&*unit.function, unit.line, unit.kind),
                (expected, None, kind),
                "{function} by {}",
                by.word()
            );
            assert!(is_of(&unit, &location, by));
        }
    }

    #[test]
    fn java() {
        let java = |class: &str, expected| {
            check(FrameKind::Java, &format!("{class}.run"), class, expected)
        };
        java("com.shop.Cart", ["com.shop.Cart", "com.shop", "[java]"]);
        java("com.shop.Cart$Item", ["com.shop.Cart$Item", "com.shop", "[java]"]);
        java("com.shop.Cart$$Lambda", ["com.shop.Cart", "com.shop", "[java]"]);
        java("com.shop.Cart$$SpringCGLIB$$0", ["com.shop.Cart", "com.shop", "[java]"]);
        java("com.shop.Cart$$anon$1", ["com.shop.Cart$$anon$1", "com.shop", "[java]"]);
        java("Main$Kind", ["Main$Kind", "(no package)", "[java]"]);
        check(FrameKind::Java, "a.B.run", "", ["a.B", "a", "[java]"]);
    }

    #[test]
    fn what_was_made_for_a_class_is_that_class() {
        let of = |class: &str| {
            let function = format!("{class}.run");
            unit(
                &Location { module: class.into(), ..Location::named(&function, FrameKind::Java) },
                RollUp::Class,
            )
        };
        assert_eq!(of("com.shop.Cart$$Lambda"), of("com.shop.Cart"));
        assert_ne!(of("com.shop.Cart$Item"), of("com.shop.Cart"));
    }

    #[test]
    fn go() {
        let of = |function: &str, by| {
            let file = Some("/src/server.go".into());
            let module = "shop".into();
            let named = Location::named(function, FrameKind::Native);
            let unit = unit(&Location { file, module, ..named }, by).expect("a unit");
            (unit.function.to_string(), unit.module.to_string())
        };
        let (class, package) = (RollUp::Class, RollUp::Package);
        let unit = |name: &str| (name.to_owned(), String::new());
        assert_eq!(of("net/http.(*conn).serve", class), unit("net/http.conn"));
        assert_eq!(of("net/http.(*conn).serve", package), unit("net/http"));
        assert_eq!(of("main.main.func1", class), unit("main"));
        assert_eq!(of("type:.eq.main.T", package), ("shop".to_owned(), "shop".to_owned()));
    }

    #[test]
    fn native() {
        let native = |function: &str, expected| {
            check(FrameKind::Native, function, "/usr/lib/libx.so.1", expected)
        };
        native("std::vector<int>::push_back", ["std::vector", "std", "libx.so.1"]);
        native(
            "<alloc::vec::Vec<u8> as app::Trait>::push",
            ["alloc::vec::Vec", "alloc", "libx.so.1"],
        );
        native("JavaThread::run", ["JavaThread", "libx.so.1", "libx.so.1"]);
        native("os::sleep", ["os", "os", "libx.so.1"]);
        native("(anonymous namespace)::run", ["(anonymous namespace)", "libx.so.1", "libx.so.1"]);
        native("pthread_cond_wait", ["libx.so.1", "libx.so.1", "libx.so.1"]);
        native("libx.so.1!fn_1a40", ["libx.so.1", "libx.so.1", "libx.so.1"]);
        check(FrameKind::Native, "0x77", "", ["0x77"; 3]);
    }

    #[test]
    fn python() {
        let python = |function: &str, module: &str, expected| {
            check(FrameKind::Python, function, module, expected)
        };
        let views = "shop.views";
        python("shop.views.Cart.total", views, ["shop.views.Cart", "shop", views]);
        python("shop.views.Cart.Item.price", views, ["shop.views.Cart.Item", "shop", views]);
        python("shop.views.total", views, [views, "shop", views]);
        python("shop.views.<module>", views, [views, "shop", views]);
        python("shop.views.<lambda>", views, [views, "shop", views]);
        python("shop.views.outer.<locals>.inner", views, [views, "shop", views]);
        python("shop.views.outer.<locals>.a.<locals>.<lambda>", views, [views, "shop", views]);
        python(
            "shop.views.Cart.total.<locals>.<listcomp>",
            views,
            ["shop.views.Cart", "shop", views],
        );
        let local = "shop.views.outer.<locals>.Local";
        python(&format!("{local}.run"), views, [local, "shop", views]);
        python("json.loads", "json", ["json"; 3]);
        python("total", "total", ["total"; 3]);
        // No module is known, or it is not part of the name.
        python("Cart.total", "", ["Cart", "Cart.total", "Cart.total"]);
        python("total", "", ["total"; 3]);
        python("viewsets.total", "views", ["views"; 3]);
        python("<string>.<module>", "<string>", ["<string>"; 3]);
    }

    #[test]
    fn others() {
        check(FrameKind::Kernel, "vfs_read", "vmlinux", ["vmlinux"; 3]);
        check(FrameKind::Jit, "add", "[perf map]", ["[perf map]"; 3]);
        let marker = Location {
            function: "[torn]".into(),
            module: "".into(),
            file: None,
            line: None,
            kind: FrameKind::Marker,
            tier: None,
        };
        assert_eq!(unit(&marker, RollUp::Package), None);
        assert!(is_of(&marker, &marker, RollUp::Package));
    }

    #[test]
    fn the_same_name_in_another_module_or_of_another_kind_is_another_row() {
        let function = |module: &str, kind| Location {
            function: "run".into(),
            module: module.into(),
            file: None,
            line: None,
            kind,
            tier: None,
        };
        let row = function("a", FrameKind::Native);
        assert!(is_of(&row, &row, RollUp::Function));
        assert!(!is_of(&row, &function("b", FrameKind::Native), RollUp::Function));
        assert!(!is_of(&row, &function("a", FrameKind::Jit), RollUp::Function));
    }
}
