//! Whose code a Java method is, by the jar or the directory that its class is in.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::java::{JDKS, can_test, output};
use common::{Recording, Running};
use serde_json::Value;

/// Each method of the program, and the directory that its class belongs to.
const CLASSES: [(&str, &str, &str); 5] = [
    ("web", "Shop", "com.shop.web.Shop.serve"),
    ("stock", "Stock", "com.shop.stock.Stock.count"),
    ("trees", "Tree", "net.trees.Tree.grow"),
    ("patched", "Patched", "org.apache.patched.Patched.work"),
    ("late", "Late", "net.late.Late.run"),
];

/// The program's classes, each in a directory of its own.
struct Built {
    home: PathBuf,
    folder: tempfile::TempDir,
}

impl Built {
    /// Returns `None` where there is no JDK.
    fn with_a_jdk() -> Option<Built> {
        if !can_test() {
            return None;
        }
        let built = Built { home: JDKS[0].clone(), folder: tempfile::tempdir().expect("a folder") };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/jars");
        let source = |class: &str| sources.join(format!("{class}.java"));
        let javac = |into: &str, class: &str| {
            let mut javac = Command::new(built.home.join("bin/javac"));
            let known = CLASSES.map(|(folder, ..)| built.path(folder).display().to_string());
            javac.arg("-nowarn").arg("-cp").arg(known.join(":"));
            output(javac.arg("-d").arg(built.path(into)).arg(source(class)));
        };
        // The first one uses the others.
        CLASSES.iter().rev().for_each(|(folder, class, _)| javac(folder, class));
        javac("launcher", "Launcher");
        Some(built)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a jar of the classes in a directory.
    fn jar(&self, jar: &str, manifest: &str, folder: &str) -> PathBuf {
        let (jar, of) = (self.path(jar), self.path("manifest"));
        std::fs::create_dir_all(jar.parent().expect("a folder")).expect("created");
        std::fs::write(&of, manifest).expect("written");
        let mut command = Command::new(self.home.join("bin/jar"));
        // Not compressed, like the jars in one of Spring Boot.
        output(command.arg("cfm0").arg(&jar).arg(&of).arg("-C").arg(self.path(folder)).arg("."));
        jar
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut java = Command::new(self.home.join("bin/java"));
        java.arg("-Xmx64m").args(arguments);
        Running::start_command(java)
    }
}

/// Records the program while it opens its last jar, and returns the role of each of its methods.
fn roles(mut target: Running) -> BTreeMap<&'static str, String> {
    let pid = target.pid();
    let mut record = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    record.args(["record", "-p", &pid.to_string(), "--idle", "--format", "json"]);
    let recording = Recording::start(&mut record);
    target.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("it listens");
    assert_eq!(target.lines.next().expect("a line").expect("text"), "later");
    // Its thread computes.
    recording.until_used(pid, 500);
    let recorded = recording.end();
    let said = String::from_utf8_lossy(&recorded.stderr).into_owned();
    let profile: Value = serde_json::from_slice(&recorded.stdout).expect(&said);
    let mut roles = BTreeMap::new();
    collect(&profile, &mut roles);
    roles
}

fn collect(value: &Value, roles: &mut BTreeMap<&'static str, String>) {
    if let (Some(name), Some(role)) = (value["frame"].as_str(), value["role"].as_str())
        && let Some((_, _, method)) = CLASSES.iter().find(|(_, _, method)| *method == name)
    {
        roles.insert(method, role.to_owned());
    }
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect(value, roles)),
        Value::Object(values) => values.values().for_each(|value| collect(value, roles)),
        _ => {}
    }
}

fn expected(roles: [&str; 5]) -> BTreeMap<&'static str, String> {
    CLASSES.iter().zip(roles).map(|((_, _, method), role)| (*method, role.to_owned())).collect()
}

#[test]
fn a_jar_like_spring_boots_has_the_programs_classes_and_its_libraries() {
    let Some(built) = Built::with_a_jdk() else { return };
    let inside = built.path("launcher/BOOT-INF");
    for name in ["stock", "trees", "late"] {
        built.jar(&format!("launcher/BOOT-INF/lib/{name}.jar"), "", name);
    }
    std::fs::create_dir_all(inside.join("classes")).expect("created");
    for (folder, top) in [("web", "com"), ("patched", "org")] {
        std::fs::rename(built.path(folder).join(top), inside.join("classes").join(top))
            .expect("moved");
    }
    let manifest = "Main-Class: launcher.Launcher\nStart-Class: com.shop.web.Shop\n";
    let jar = built.jar("shop.jar", manifest, "launcher");
    let found = roles(built.start(&["-jar", &jar.display().to_string()]));
    assert_eq!(found, expected(["app", "app", "library", "app", "library"]));
}

#[test]
fn jars_beside_the_programs_are_libraries_also_those_opened_later() {
    let Some(built) = Built::with_a_jdk() else { return };
    let jar = |name: &str| built.jar(&format!("lib/{name}.jar"), "", name).display().to_string();
    let jars = ["web", "stock", "trees", "late"].map(jar).join(":");
    let path = format!("{}:{jars}", built.path("patched").display());
    let found = roles(built.start(&["-cp", &path, "com.shop.web.Shop"]));
    assert_eq!(found, expected(["app", "app", "library", "app", "library"]));
}
