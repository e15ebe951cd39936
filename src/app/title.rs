//! The name of a target: what a user calls it, not what started it.

use crate::model::facts::snapshot::Target;
use crate::model::vocabulary::java_launch::{Launch, Runs};

/// Returns the program's name and the language whose runtime executes it, if its command line shows
/// one, or if the program contains one: `("shop.jar", Some("java"))`, `("manage.py",
/// Some("python3"))`, `("uwsgi", Some("python"))`, `("redis-server", None)`.
pub fn title(target: &Target) -> (&str, Option<&str>) {
    let mut words = target.command.split(' ').filter(|word| !word.is_empty());
    let program = base(words.next().unwrap_or(""));
    let versionless = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let contains = match target.runtime {
        "python" if versionless != "python" => Some("python"),
        "jvm" if versionless != "java" => Some("java"),
        _ => None,
    };
    let plain = (program, contains);
    let found = match versionless {
        "java" => java(words),
        "python" | "pypy" | "node" | "nodejs" | "ruby" | "perl" | "php" | "deno" | "bun" => {
            script(words)
        }
        _ => None,
    };
    found.filter(|name| !name.is_empty()).map_or(plain, |name| (name, Some(program)))
}

/// Returns the jar or the main class.
fn java<'a>(words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    Some(match Launch::of(words).runs? {
        Runs::Jar(path) => base(path),
        Runs::Class(class) | Runs::Module(class) => last_part(class),
    })
}

/// Returns the script, or the module of `-m`.
fn script<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    while let Some(word) = words.next() {
        match word {
            "-m" => return words.next(),
            "-c" | "-e" => return None,
            "-W" | "-X" | "-r" | "--require" | "--import" => {
                words.next();
            }
            option if option.starts_with('-') => {}
            file => return Some(base(file)),
        }
    }
    None
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `com.shop.Main` -> `Main`, `com.shop/com.shop.Main` -> `Main`.
fn last_part(class: &str) -> &str {
    base(class).rsplit('.').next().unwrap_or(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_called_by_its_program() {
        let target = |command: &str, runtime| Target {
            pid: 1,
            start: 0,
            command: command.into(),
            runtime,
            uid: 0,
            unit: None,
            started_unix_ns: 0,
            ended: None,
        };
        for (command, name, runtime) in [
            ("/usr/bin/redis-server *:6379", "redis-server", None),
            ("java -Xmx1g -jar /opt/shop.jar --port 80", "shop.jar", Some("java")),
            ("/usr/lib/jvm/17/bin/java -cp a.jar:b.jar com.shop.Main x", "Main", Some("java")),
            ("java -p mods -m com.shop/com.shop.Main", "Main", Some("java")),
            ("java", "java", None),
            ("python3.11 -u manage.py runserver", "manage.py", Some("python3.11")),
            ("python3 -m http.server 80", "http.server", Some("python3")),
            ("python3 -c pass", "python3", None),
            ("node --require x /srv/app/server.js", "server.js", Some("node")),
            ("postgres: shop [local] SELECT", "postgres:", None),
            ("", "", None),
        ] {
            assert_eq!(title(&target(command, "")), (name, runtime), "{command}");
        }
        for (command, runtime, title_as) in [
            ("uwsgi --plugin python3", "python", ("uwsgi", Some("python"))),
            ("gunicorn: worker [shop]", "python", ("gunicorn:", Some("python"))),
            ("python3 -c pass", "python", ("python3", None)),
            ("/opt/app/bin/launcher", "jvm", ("launcher", Some("java"))),
            ("java", "jvm", ("java", None)),
            ("redis-server", "native", ("redis-server", None)),
        ] {
            assert_eq!(title(&target(command, runtime)), title_as, "{command}");
        }
    }
}
