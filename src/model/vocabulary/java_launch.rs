//! What the command line of a Java program says: what it runs, and where its classes are.

/// Options of `java` with a value behind a blank, except those that name classes.
const WITH_VALUE: &[&str] = &[
    "--upgrade-module-path",
    "--add-modules",
    "--add-opens",
    "--add-exports",
    "--add-reads",
    "--enable-native-access",
    "--limit-modules",
    "--patch-module",
    "--source",
    "--describe-module",
    "-d",
];

/// What `java` was told to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs<'a> {
    /// The file of `-jar`.
    Jar(&'a str),
    /// The main class: `com.shop.Main`, also written `com/shop/Main`.
    Class(&'a str),
    /// A module, maybe with its main class: `com.shop/com.shop.Main`.
    Module(&'a str),
}

/// Paths are as written: relative ones begin at the program's working directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Launch<'a> {
    pub runs: Option<Runs<'a>>,
    pub class_path: Vec<&'a str>,
    /// The files of `-javaagent`.
    pub agents: Vec<&'a str>,
}

impl<'a> Launch<'a> {
    /// Reads the arguments after the program's name. Argument files (`@file`) are skipped.
    pub fn of(arguments: impl IntoIterator<Item = &'a str>) -> Launch<'a> {
        let mut launch = Launch::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (option, value) = match argument.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value)),
                _ => (argument, None),
            };
            let mut value = || value.or_else(|| arguments.next());
            match option {
                // The class path is then the jar.
                "-jar" => {
                    launch.runs = value().map(Runs::Jar);
                    launch.class_path.clear();
                    return launch;
                }
                "-m" | "--module" => {
                    launch.runs = value().map(Runs::Module);
                    return launch;
                }
                "-cp" | "-classpath" | "--class-path" => launch.class_path = paths(value()),
                "-p" | "--module-path" => launch.class_path.extend(paths(value())),
                option if WITH_VALUE.contains(&option) => drop(value()),
                option if option.starts_with("-javaagent:") => {
                    let agent = option["-javaagent:".len()..].split('=').next();
                    launch.agents.extend(agent);
                }
                option if option.starts_with(['-', '@']) => {}
                class => {
                    launch.runs = Some(Runs::Class(class));
                    break;
                }
            }
        }
        if launch.class_path.is_empty() {
            launch.class_path.push(".");
        }
        launch
    }
}

fn paths(list: Option<&str>) -> Vec<&str> {
    list.unwrap_or_default().split(':').filter(|path| !path.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_and_the_class_path_are_found_between_options() {
        use Runs::{Class, Jar, Module};
        let main = Some(Class("com.shop.Main"));
        let module = Some(Module("com.shop/com.shop.Main"));
        for (line, runs, class_path, agents) in [
            ("-Xmx1g -jar /opt/shop.jar --port 80 -cp x", Some(Jar("/opt/shop.jar")), "", ""),
            ("-cp a.jar:lib/b.jar com.shop.Main -jar x", main, "a.jar:lib/b.jar", ""),
            ("-classpath classes com/shop/Main", Some(Class("com/shop/Main")), "classes", ""),
            ("--class-path=a:b com.shop.Main", main, "a:b", ""),
            ("com.shop.Main", main, ".", ""),
            ("-p mods -m com.shop/com.shop.Main x", module, "mods", ""),
            ("--module-path=mods --module=com.shop/com.shop.Main", module, "mods", ""),
            (
                "-javaagent:/opt/otel.jar=a=b -XX:+UseZGC --add-opens java.base/java.lang=ALL-UNNAMED @args -jar shop.jar",
                Some(Jar("shop.jar")),
                "",
                "/opt/otel.jar",
            ),
            ("--add-opens=java.base/x=y -Dx=y com.shop.Main", main, ".", ""),
            ("-cp", None, ".", ""),
            ("-jar", None, "", ""),
            ("-version", None, ".", ""),
        ] {
            let launch = Launch::of(line.split(' '));
            let found = (launch.runs, launch.class_path.join(":"), launch.agents.join(":"));
            assert_eq!(found, (runs, class_path.into(), agents.into()), "{line}");
        }
    }
}
