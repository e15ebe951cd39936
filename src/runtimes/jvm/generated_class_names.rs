//! Stable names of generated classes.
//!
//! Classes that are generated while a program runs end in a number, an address or something random.
//! The same code would be another row in each run. The part behind the word that says who generated
//! them is removed. Names that a compiler wrote into a class file (`Outer$1`, `lambda$main$0`) are
//! the same in every run and stay.

/// Markers of classes that were generated for another class; what follows the marker is removed.
const MADE: &[&str] = &[
    // Lambdas; before JDK 15 with a number.
    "$$Lambda",
    // Byte Buddy, and what is made by it.
    "$ByteBuddy",
    "$MockitoMock",
    "$HibernateProxy",
    "$HibernateBasicProxy",
    // CGLIB in Spring 6.
    "$$SpringCGLIB",
    // Javassist.
    "_$$_jvst",
    "_$$_javassist",
];

/// Other markers of CGLIB; behind them, up to the next `$$`, stands the generator.
const ENHANCED: &[&str] = &["$$EnhancerBy", "$$FastClassBy", "$$KeyFactoryBy"];

/// Whole class names that are followed by a number.
const NUMBERED: &[&str] = &[
    "GeneratedMethodAccessor",
    "GeneratedConstructorAccessor",
    "GeneratedSerializationConstructorAccessor",
    "$Proxy",
];

/// Forms of method handles, each followed by a number (JDK 8) or by none.
const FORMS: &str = "java.lang.invoke.LambdaForm$";

/// Returns a class as Java writes it, from its symbol: `java/lang/Thread`,
/// `Foo$$Lambda+0x00007f1e`.
pub fn class_name(symbol: &str) -> String {
    // Hidden classes end in a plus and their address.
    let symbol = symbol.split_once('+').map_or(symbol, |(name, _)| name);
    // Older ones have an address or number as their last part, which no class name begins with.
    let symbol = match symbol.rsplit_once('/') {
        Some((name, number)) if number.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => symbol,
    };
    let name = symbol.replace('/', ".");
    for made in MADE {
        if let Some((of, _)) = name.split_once(made) {
            return format!("{of}{made}");
        }
    }
    for enhanced in ENHANCED {
        if let Some(at) = name.find(enhanced)
            && let Some(end) = name[at + 2..].find("$$")
        {
            return name[..at + 2 + end].to_owned();
        }
    }
    let without_number = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let (package, class) = without_number.rsplit_once('.').unwrap_or(("", without_number));
    if NUMBERED.contains(&class) {
        // Packages of proxies have numbers too: jdk.proxy2.
        return match package.starts_with("jdk.proxy") || package.starts_with("com.sun.proxy") {
            true => format!("{}.{class}", package.trim_end_matches(|c: char| c.is_ascii_digit())),
            false => without_number.to_owned(),
        };
    }
    if name.starts_with(FORMS) {
        return without_number.trim_end_matches('$').to_owned();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_are_called_the_same_in_every_run() {
        for (symbol, name) in [
            ("java/lang/Thread", "java.lang.Thread"),
            ("Foo$$Lambda+0x00007f1e", "Foo$$Lambda"),
            ("Foo$$Lambda$14+0x0000000800c03000", "Foo$$Lambda"),
            ("p/Foo$$Lambda$14/0x0000000800c03000", "p.Foo$$Lambda"),
            ("p/Foo$$Lambda$14/834600351", "p.Foo$$Lambda"),
            ("Foo$$Lambda$1", "Foo$$Lambda"),
            ("Foo$$StringConcat+0x00007f1e", "Foo$$StringConcat"),
            ("java/lang/invoke/LambdaForm$MH+0x00007f1e", "java.lang.invoke.LambdaForm$MH"),
            (
                "java/lang/invoke/LambdaForm$DMH/0x0000000800c03000",
                "java.lang.invoke.LambdaForm$DMH",
            ),
            ("java/lang/invoke/LambdaForm$MH/834600351", "java.lang.invoke.LambdaForm$MH"),
            ("java/lang/invoke/LambdaForm$MH$12", "java.lang.invoke.LambdaForm$MH"),
            ("java/lang/invoke/LambdaForm$Holder", "java.lang.invoke.LambdaForm$Holder"),
            ("sun/reflect/GeneratedMethodAccessor17", "sun.reflect.GeneratedMethodAccessor"),
            (
                "jdk/internal/reflect/GeneratedConstructorAccessor3",
                "jdk.internal.reflect.GeneratedConstructorAccessor",
            ),
            ("jdk/proxy2/$Proxy12", "jdk.proxy.$Proxy"),
            ("com/sun/proxy/$Proxy7", "com.sun.proxy.$Proxy"),
            ("shop/v2/$Proxy7", "shop.v2.$Proxy"),
            ("shop/Cart$$EnhancerBySpringCGLIB$$1a2b3c4d", "shop.Cart$$EnhancerBySpringCGLIB"),
            ("shop/Cart$$FastClassBySpringCGLIB$$ab12", "shop.Cart$$FastClassBySpringCGLIB"),
            ("shop/Cart$$EnhancerByGuice$$12345", "shop.Cart$$EnhancerByGuice"),
            ("shop/Cart$$SpringCGLIB$$0", "shop.Cart$$SpringCGLIB"),
            ("shop/Cart$ByteBuddy$k3Jd8sQ1", "shop.Cart$ByteBuddy"),
            ("shop/Cart$MockitoMock$1234", "shop.Cart$MockitoMock"),
            ("shop/Cart$HibernateProxy$Ab12", "shop.Cart$HibernateProxy"),
            ("shop/Cart_$$_jvst8c2_0", "shop.Cart_$$_jvst"),
        ] {
            assert_eq!(class_name(symbol), name, "{symbol}");
            assert_eq!(class_name(&name.replace('.', "/")), name, "of what is called so already");
        }
    }

    #[test]
    fn names_in_class_files_stay() {
        for symbol in [
            "a/B$C",
            "a/B$1",
            "a/B2",
            "a/B$Proxy3",
            "a/Foo$$anon$1",
            "a/Foo$_run_closure1",
            "a/Main12",
            "v2/x3/Y4",
            "",
        ] {
            assert_eq!(class_name(symbol), symbol.replace('/', "."));
        }
    }

    proptest! {
        #[test]
        fn no_name_panics(symbol in "[a-zA-Z0-9/$+._é漢]{0,40}|.{0,20}") {
            class_name(&symbol);
        }
    }
}
