//! Help, suggestions, completions and the manual.

use super::*;

#[test]
fn options_stand_behind_their_subcommand() {
    let config = on(&PIPE, "record --rename s/a/b/ -p 7 --rename s/c/d/ -d 3s");
    assert!(
        matches!(config.mode, Mode::Record { duration: Some(d) } if d == Duration::from_secs(3))
    );
    assert!(pids(&config) == [7]);
    let rules =
        config.settings.rename.iter().map(|rule| (rule.pattern.as_str(), rule.text.as_str()));
    assert_eq!(rules.collect::<Vec<_>>(), [("a", "b"), ("c", "d")]);
    for line in ["-p 7 record", "--metric cpu record -p 7", "-i 5ms dump -p 7"] {
        assert!(refused(&PIPE, line).contains("stand behind it"), "{line}");
    }
    // Except the screen options, which stand in aliases.
    assert_eq!(on(&TERMINAL, "--no-color --ascii open x").screen.color, ColorDepth::None);
    assert!(on(&TERMINAL, "--no-color --ascii open x").screen.ascii);
    assert!(!on(&TERMINAL, "--ascii open x --unicode").screen.ascii);
    assert!(on(&PIPE, "--secure record -p 7").output.secure);
    assert!(on(&PIPE, "record -p 7 --mouse --secure").output.secure);
}

#[test]
fn what_was_meant_is_suggested() {
    for (line, meant) in [
        ("record -p 1 --fcous x", "`--focus`"),
        ("recrod -p 1", "`record`"),
        ("merg a b", "`merge`"),
        ("record --every 5m", "report"),
        ("record -p 1 --each", "dump"),
        ("4321", "`-p 4321`"),
        ("record 4321", "`-p 4321`"),
        ("myserver", "`-- myserver`"),
        ("dump -p 1 x", "`sampletop dump --help`"),
        ("record --zzz", "`sampletop record --help`"),
    ] {
        let message = refused(&TERMINAL, line);
        assert!(message.contains(meant), "{line}: {message}");
    }
    // No subcommand has this option.
    assert!(!refused(&TERMINAL, "record -p 1 --fcous x").contains("does nothing"));
}

#[test]
fn completions_and_the_manual_know_all_subcommands() {
    let printed = |line: &str| {
        let exit = parse_in(words(line).into_iter(), &PIPE).expect_err("no run");
        assert_eq!((exit.code, exit.to_stdout), (ExitCode::Success, true), "{line}");
        exit.message
    };
    let mut texts: Vec<String> = ["bash", "elvish", "fish", "powershell", "zsh"]
        .map(|shell| printed(&format!("completions {shell}")))
        .into();
    texts.push(printed("man").to_lowercase().replace("\\-", "-"));
    for text in texts {
        for name in
            ["record", "report", "open", "diff", "merge", "dump", "demo", "doctor", "max-overhead"]
        {
            assert!(text.contains(name), "{name} is missing: {text}");
        }
        assert_eq!(text.contains("push-spool"), cfg!(feature = "push"), "{text}");
    }
    assert!(refused(&PIPE, "completions").contains("bash"));
    assert!(refused(&PIPE, "completions tcsh").contains("none of bash"));
}

#[test]
fn the_definitions_are_sound_and_the_help_fits() {
    options::definitions().debug_assert();
    let help = |line: &str| {
        let exit = parse_in(words(line).into_iter(), &TERMINAL).expect_err("help is no run");
        assert_eq!((exit.code, exit.to_stdout), (ExitCode::Success, true), "{line}");
        exit.message
    };
    let all = help("--help");
    assert!(all.contains("--interval") && all.contains("Examples:"), "{all}");
    assert!(!all.contains("__workload"), "{all}");
    // The feature libunwind adds an option.
    let lines_max = if cfg!(feature = "libunwind") { 44 } else { 43 };
    assert!(
        help("record --help").lines().count() <= lines_max
            && help("record -h").contains("Example: sampletop record")
    );
    assert_eq!(help("help record"), help("record --help"));
    let mut definitions = options::definitions().term_width(80);
    definitions.build();
    for sub in std::iter::once(&definitions).chain(definitions.get_subcommands()) {
        let help = sub.clone().term_width(80).render_help().to_string();
        for line in help.lines() {
            // Longer lines move all descriptions below their options.
            assert!(!line.starts_with("          "), "this help does not fit: {line}");
            assert!(line.len() <= 80, "{line}");
        }
    }
}
