//! Decides whether a class is the program's, by the file it is in and by the main class.
//!
//! | where the class is | whose it is |
//! |---|---|
//! | a directory of classes, also one in the jar (`BOOT-INF/classes`) | the program's |
//! | a jar of `-javaagent` | a library's |
//! | a package near the main class's | the program's |
//! | a nested jar, one of a build tool's cache, another jar than the main class's | a library's |
//! | the main class's jar, if not near it (it may have copies of libraries) | unknown |

use crate::model::vocabulary::java_packages::is_library;
use crate::model::vocabulary::role::Origin;

/// Main classes that start programs of others: these say nothing of the program.
const LAUNCHERS: &[&str] = &[
    "org.springframework.boot.loader.",
    "org.apache.catalina.",
    "org.apache.spark.",
    "org.apache.flink.",
    "org.apache.hadoop.",
    "org.apache.karaf.",
    "org.apache.felix.",
    "org.apache.maven.",
    "org.codehaus.plexus.classworlds.",
    "org.codehaus.groovy.",
    "org.gradle.",
    "org.eclipse.jetty.",
    "org.eclipse.equinox.",
    "org.jboss.",
    "org.junit.",
    "org.testng.",
    "org.glassfish.",
    "com.sun.",
    "com.intellij.rt.",
    "com.ibm.ws.",
    "io.quarkus.",
    "io.micronaut.",
    "io.vertx.",
    "scala.tools.",
    "kotlin.",
    "groovy.",
    "sbt.",
    "clojure.",
    "jdk.",
    "sun.",
    "java.",
];

/// Parts of names that many projects have in common. There a third one tells them apart.
const SHARED: &[&str] = &[
    "com.github",
    "com.gitlab",
    "com.google",
    "com.amazonaws",
    "com.microsoft",
    "io.github",
    "io.gitlab",
    "net.sourceforge",
    "org.apache",
    "org.eclipse",
];

/// Parts of paths where build tools and packages keep libraries.
const LIBRARY_PLACES: &[&str] = &[
    "/.m2/",
    "/.gradle/",
    "/.ivy2/",
    "/coursier/",
    "/WEB-INF/lib/",
    "/BOOT-INF/lib/",
    "/usr/share/java/",
    "/usr/share/maven-repo/",
];

/// The place of a class, the better evidence first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A directory of the program's classes.
    Classes,
    /// The jar with the main class.
    MainJar,
    /// A jar next to it.
    OtherJar,
    /// A jar in another one, or in a place where only libraries are.
    LibraryJar,
    Agent,
}

/// Returns whether only libraries are kept at this path.
pub fn is_library_place(path: &str) -> bool {
    LIBRARY_PLACES.iter().any(|part| path.contains(part))
}

/// The packages that are the program's by name: `com.shop.`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Own {
    prefixes: Vec<String>,
}

impl Own {
    /// Adds what the full name of a main class says.
    pub fn add_main(&mut self, main: &str) {
        let Some((package, _)) = main.rsplit_once('.') else { return };
        if LAUNCHERS.iter().any(|launcher| main.starts_with(launcher)) {
            return;
        }
        let nth = |nth| package.match_indices('.').nth(nth).map_or(package.len(), |(at, _)| at);
        let shared = SHARED.contains(&&package[..nth(1)]);
        // A part of a well-known library that is itself the program: a database, a broker.
        let end = if shared || is_library(main) { nth(2) } else { nth(1) };
        let prefix = format!("{}.", &package[..end]);
        if !self.prefixes.contains(&prefix) {
            self.prefixes.push(prefix);
        }
    }

    /// Returns the origin of a class by its full name.
    pub fn origin(&self, class: &str, place: Place) -> Origin {
        let is_near = self.prefixes.iter().any(|prefix| class.starts_with(prefix.as_str()));
        match place {
            Place::Classes => Origin::App,
            Place::Agent => Origin::Library,
            _ if is_near => Origin::App,
            Place::LibraryJar => Origin::Library,
            // Without a package of its own the program may be anywhere.
            Place::OtherJar if !self.prefixes.is_empty() => Origin::Library,
            Place::OtherJar | Place::MainJar => Origin::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(main: &str) -> Own {
        let mut own = Own::default();
        own.add_main(main);
        own
    }

    #[test]
    fn the_place_decides_and_then_the_package_of_the_main_class() {
        use Place::*;
        for (main, class, place, origin) in [
            ("com.shop.web.Shop", "org.apache.patched.Thing", Classes, Origin::App),
            ("com.shop.web.Shop", "com.shop.cart.Cart", MainJar, Origin::App),
            ("com.shop.web.Shop", "com.shop.cart.Cart", LibraryJar, Origin::App),
            ("com.shop.web.Shop", "com.shop.cart.Cart", OtherJar, Origin::App),
            ("com.shop.web.Shop", "com.shop.cart.Cart", Agent, Origin::Library),
            ("com.shop.web.Shop", "com.shopping.Cart", LibraryJar, Origin::Library),
            ("com.shop.web.Shop", "net.json.Json", MainJar, Origin::Unknown),
            ("com.shop.web.Shop", "net.json.Json", OtherJar, Origin::Library),
            ("com.shop.web.Shop", "net.json.Json", LibraryJar, Origin::Library),
            ("shop.Shop", "shop.cart.Cart", OtherJar, Origin::App),
            ("shop.Shop", "json.Json", OtherJar, Origin::Library),
            ("Shop", "json.Json", OtherJar, Origin::Unknown),
            ("Shop", "json.Json", LibraryJar, Origin::Library),
            ("com.github.ann.Shop", "com.github.bob.Json", OtherJar, Origin::Library),
            ("com.github.ann.Shop", "com.github.ann.cart.Cart", OtherJar, Origin::App),
            // A program of a well-known project, and one that starts those of others.
            (
                "org.apache.cassandra.service.Daemon",
                "org.apache.cassandra.db.X",
                OtherJar,
                Origin::App,
            ),
            (
                "org.apache.cassandra.service.Daemon",
                "org.apache.lucene.X",
                OtherJar,
                Origin::Library,
            ),
            ("org.apache.spark.deploy.SparkSubmit", "com.shop.Job", OtherJar, Origin::Unknown),
            ("org.apache.catalina.startup.Bootstrap", "com.shop.Cart", LibraryJar, Origin::Library),
            (
                "org.apache.catalina.startup.Bootstrap",
                "org.apache.catalina.X",
                MainJar,
                Origin::Unknown,
            ),
        ] {
            assert_eq!(own(main).origin(class, place), origin, "{main} {class} {place:?}");
        }
    }

    #[test]
    fn libraries_are_kept_in_known_places() {
        for (path, is) in [
            ("/root/.m2/repository/com/x/x/1/x-1.jar", true),
            ("/srv/tomcat/webapps/shop/WEB-INF/lib/x.jar", true),
            ("/usr/share/java/x.jar", true),
            ("/opt/shop/lib/x.jar", false),
            ("/opt/shop.jar", false),
        ] {
            assert_eq!(is_library_place(path), is, "{path}");
        }
    }
}
