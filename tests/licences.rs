//! The licences of everything that is linked: each permits distribution in a binary package.

use std::process::Command;

/// Licences that require no more than their text, or (CDDL) that their own files stay under them.
const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDDL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Returns whether one alternative of an SPDX expression is allowed. Parentheses stand only around
/// alternatives of a sum.
fn is_allowed(expression: &str) -> bool {
    let sum = |parts: &str| parts.split(" AND ").all(|part| ALLOWED.contains(&part.trim()));
    match expression.split_once(") AND ") {
        Some((first, rest)) => is_allowed(first.trim_start_matches('(')) && is_allowed(rest),
        None => expression.replace('/', " OR ").split(" OR ").any(sum),
    }
}

#[test]
fn every_crate_may_be_given_away() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 100, "the crates are found at all");
    let refused: Vec<String> = packages
        .iter()
        .map(|package| {
            (package["name"].as_str().unwrap_or(""), package["license"].as_str().unwrap_or("none"))
        })
        .filter(|(_, licence)| !is_allowed(licence))
        .map(|(name, licence)| format!("{name}: {licence}"))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    // Published versions only, which advisories speak of.
    let is_published = |package: &&serde_json::Value| match package["source"].as_str() {
        Some(source) => source == "registry+https://github.com/rust-lang/crates.io-index",
        None => package["name"] == "sampletop",
    };
    let others: Vec<&serde_json::Value> =
        packages.iter().filter(|package| !is_published(package)).collect();
    assert!(others.is_empty(), "{others:?}");
    for (expression, allowed) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only AND MIT", false),
        ("(MIT OR GPL-2.0) AND Unicode-3.0", true),
        ("(GPL-2.0) AND MIT", false),
        ("none", false),
    ] {
        assert_eq!(is_allowed(expression), allowed, "{expression}");
    }
}
