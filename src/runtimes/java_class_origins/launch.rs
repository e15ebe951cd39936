//! What the command line of a Java program says about its classes.

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

/// Paths are as written: relative ones begin at the program's working directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Launch {
    /// The file of `-jar`.
    pub jar: Option<String>,
    /// The full name of the main class, if it is not in that file's manifest.
    pub main: Option<String>,
    pub class_path: Vec<String>,
    /// The files of `-javaagent`.
    pub agents: Vec<String>,
}

impl Launch {
    /// Reads the arguments after the program's name. Argument files (`@file`) are skipped.
    pub fn of<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Launch {
        let mut launch = Launch::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (option, value) = match argument.split_once('=') {
                Some((option, value)) if option.starts_with("--") => (option, Some(value)),
                _ => (argument, None),
            };
            let mut value = || value.or_else(|| arguments.next()).unwrap_or_default();
            match option {
                "-jar" => {
                    launch.jar = Some(value().to_owned());
                    // The class path is then the jar.
                    launch.class_path.clear();
                    return launch;
                }
                "-cp" | "-classpath" | "--class-path" => launch.class_path = paths(value()),
                "-p" | "--module-path" => launch.class_path.extend(paths(value())),
                "-m" | "--module" => {
                    launch.main = value().split_once('/').map(|(_, class)| class.to_owned());
                    return launch;
                }
                option if WITH_VALUE.contains(&option) => drop(value()),
                option if option.starts_with("-javaagent:") => {
                    let agent = option["-javaagent:".len()..].split('=').next();
                    launch.agents.extend(agent.map(str::to_owned));
                }
                option if option.starts_with(['-', '@']) => {}
                class => {
                    launch.main = Some(class.replace('/', "."));
                    break;
                }
            }
        }
        if launch.class_path.is_empty() {
            launch.class_path.push(".".into());
        }
        launch
    }
}

fn paths(list: &str) -> Vec<String> {
    list.split(':').filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(line: &str) -> (Option<String>, Option<String>, String, String) {
        let Launch { jar, main, class_path, agents } = Launch::of(line.split(' '));
        (jar, main, class_path.join(":"), agents.join(":"))
    }

    #[test]
    fn the_main_class_and_the_class_path_are_found_between_options() {
        for (line, jar, main, class_path, agents) in [
            ("-Xmx1g -jar /opt/shop.jar --port 80 -cp x", "/opt/shop.jar", "", "", ""),
            (
                "-cp a.jar:lib/b.jar com.shop.Main -jar x",
                "",
                "com.shop.Main",
                "a.jar:lib/b.jar",
                "",
            ),
            ("-classpath classes com/shop/Main", "", "com.shop.Main", "classes", ""),
            ("--class-path=a:b com.shop.Main", "", "com.shop.Main", "a:b", ""),
            ("com.shop.Main", "", "com.shop.Main", ".", ""),
            ("-p mods -m com.shop/com.shop.Main x", "", "com.shop.Main", "mods", ""),
            ("--module-path=mods --module=com.shop/com.shop.Main", "", "com.shop.Main", "mods", ""),
            (
                "-javaagent:/opt/otel.jar=a=b -XX:+UseZGC --add-opens java.base/java.lang=ALL-UNNAMED @args -jar shop.jar",
                "shop.jar",
                "",
                "",
                "/opt/otel.jar",
            ),
            ("--add-opens=java.base/x=y -Dx=y com.shop.Main", "", "com.shop.Main", ".", ""),
            ("-cp", "", "", ".", ""),
            ("-jar", "", "", "", ""),
            ("", "", "", ".", ""),
        ] {
            let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let found = launch(line);
            let found = (
                found.0.filter(|jar| !jar.is_empty()),
                found.1.filter(|m| !m.is_empty()),
                found.2,
                found.3,
            );
            assert_eq!(found, (some(jar), some(main), class_path.into(), agents.into()), "{line}");
        }
    }
}
