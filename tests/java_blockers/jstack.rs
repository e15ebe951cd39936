//! What jstack prints of threads, locks and their owners.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::common::java::{Jdk, Jvm as Running, output};

/// An object as jstack prints it: address and class.
pub type Object = (u64, String);

/// A thread as jstack prints it.
#[derive(Default, Debug)]
pub struct Printed {
    pub name: String,
    pub waits_for: Option<Object>,
    /// Monitors and locks that it owns.
    pub owns: BTreeSet<u64>,
    pub locks: Vec<Object>,
}

/// Returns the threads that jstack prints, by native id.
pub fn jstack(jdk: &Jdk, target: &Running) -> BTreeMap<u32, Printed> {
    let text = output(&mut jdk.on("jstack", &["-l"], target));
    // Carriers of virtual threads have their id in brackets only.
    let thread =
        Regex::new(r#"^"(.*)" (?:.*\bnid=(0x[0-9a-f]+|\d+)|#\d+ \[(\d+)\])"#).expect("a pattern");
    let object = Regex::new(r"- (.*?)\s*<0x([0-9a-f]+)> \(an? (.*?)\)").expect("a pattern");
    let mut threads: BTreeMap<u32, Printed> = BTreeMap::new();
    let mut current = 0;
    for line in text.lines() {
        if let Some(found) = thread.captures(line) {
            let id = found.get(2).or(found.get(3)).expect("one of them").as_str();
            current = match id.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16).expect("a number"),
                None => id.parse().expect("a number"),
            };
            let printed = Printed { name: found[1].to_owned(), ..Printed::default() };
            threads.insert(current, printed);
        } else if let Some(found) = object.captures(line) {
            let printed = threads.entry(current).or_default();
            let address = u64::from_str_radix(&found[2], 16).expect("a number");
            let class = found[3].split(" for ").next().unwrap_or_default().to_owned();
            match &found[1] {
                "" => {
                    printed.owns.insert(address);
                    printed.locks.push((address, class));
                }
                "locked" => {
                    printed.owns.insert(address);
                    // In compiled code jstack may not know what a thread waits on.
                    printed.waits_for.get_or_insert((address, class));
                }
                _ => printed.waits_for = Some((address, class)),
            }
        }
    }
    for printed in threads.values_mut() {
        if let Some((address, _)) = &printed.waits_for {
            printed.owns.remove(address);
        }
    }
    threads
}

/// Returns a class as jstack prints it in our notation.
pub fn shown(class: &str) -> String {
    match class {
        "[B" => "byte[]".to_owned(),
        "[[Ljava.lang.String;" => "java.lang.String[][]".to_owned(),
        class => class.to_owned(),
    }
}
