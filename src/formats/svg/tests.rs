use proptest::prelude::*;

use super::*;
use crate::formats::fixture::{self, Stack, ran, service, stack, waited};
use crate::model::projection::settings::Metric;
use crate::model::vocabulary::state::State;

fn written(stacks: &[Stack], settings: &Settings) -> String {
    let mut out = Vec::new();
    render(&fixture::snapshot(), settings, &fixture::projection(stacks), &mut out)
        .expect("memory takes everything");
    String::from_utf8(out).expect("UTF-8")
}

/// Returns the title of each drawn frame.
fn titles(svg: &str) -> Vec<&str> {
    svg.split("<title>")
        .skip(1)
        .map(|rest| rest.split("</title>").next().expect("an end"))
        .collect()
}

/// Returns the frames passed to the crate, as (stack, ns).
fn lines(stacks: &[Stack]) -> Vec<(String, u64)> {
    let mut drawn = Stacks { lines: Vec::new(), colors: PaletteMap::default(), total: 0 };
    drawn.fill(&Settings::default(), &fixture::projection(stacks));
    let parsed = |line: &String| {
        let (stack, ns) = line.rsplit_once(' ').expect("a value");
        assert!(
            stack.split(';').all(|name| drawn.colors.get(name).is_some()),
            "a colour by chance: {line}"
        );
        (stack.to_owned(), ns.parse().expect("a number"))
    };
    drawn.lines.iter().map(parsed).collect()
}

#[test]
fn what_is_not_the_users_is_paler() {
    let brightness = |role| {
        let color = color((FrameKind::Native, role), "f");
        [color.r, color.g, color.b].map(u32::from).iter().sum::<u32>()
    };
    assert!(brightness(Role::App) < brightness(Role::Library));
    assert!(brightness(Role::Library) < brightness(Role::Runtime));
}

#[test]
fn every_frame_says_its_time_and_share() {
    let svg = written(&service(), &Settings::default());
    let titles = titles(&svg);
    for expected in [
        "all (10,000 ms, 100%)",
        "worker- (9,960 ms, 99.60%)",
        "query (6,000 ms, 60.00%)",
        "price (2,900 ms, 29.00%)",
        "accept (40 ms, 0.40%)",
    ] {
        assert!(titles.contains(&expected), "{expected}: {titles:?}");
    }
    assert!(
        svg.contains(">app --port 80: wall time<")
            && svg.contains("node7, 2026-01-02 03:04:05.123 UTC, 10.000 s")
    );
    let cpu = written(&service(), &Settings { metric: Metric::Cpu, ..Settings::default() });
    assert!(self::titles(&cpu).contains(&"all (2,960,000 us, 100%)"), "{cpu}");
    assert!(!cpu.contains("accept"), "{cpu}");
}

#[test]
fn nothing_that_is_drawn_is_fetched() {
    let svg = written(&service(), &Settings::default());
    assert!(!svg.contains("href=") && !svg.contains("url(h") && !svg.contains("@import"), "{svg}");
}

#[test]
fn names_cannot_break_out() {
    let names =
        ["</title><script>alert(1)</script>", "]]>", "a\"b'c&amp;", "# x 3.5", "a\u{ffff}b\u{1}c"];
    let svg = written(&[stack(names[3], &names, ran(1000, 100))], &Settings::default());
    let titles = titles(&svg);
    assert!(
        titles.contains(
            &"&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt; (1,000,000 us, 100.00%)"
        ),
        "{titles:?}"
    );
    assert!(titles.contains(&"#_x_3.5 (1,000,000 us, 100.00%)"), "{titles:?}");
    assert!(
        !svg.contains("\u{ffff}") && !svg.contains('\u{1}') && svg.contains("a\u{fffd}b"),
        "{titles:?}"
    );
    assert_eq!(svg.matches("<script").count(), 1);
}

#[test]
fn what_is_too_small_or_too_deep_is_part_of_its_caller() {
    let deep: Vec<&str> = std::iter::repeat_n("r", 2000).collect();
    let mut stacks = vec![stack("g", &["a"], ran(100_000, 1)), stack("deep", &deep, ran(1000, 1))];
    let small: Vec<String> = (0..5000).map(|n| format!("f{n}")).collect();
    stacks.extend(small.iter().map(|name| stack("g", &["a", name], ran(1, 1))));
    let lines = lines(&stacks);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], ("g;a".to_owned(), 105_000_000_000));
    assert_eq!((lines[1].0.split(';').count(), lines[1].1), (MAX_DEPTH, 1_000_000_000));
}

#[test]
fn nothing_is_an_image_that_says_so() {
    assert!(written(&[], &Settings::default()).contains("no wall time was seen"));
    let idle = [stack("g", &["a"], waited(State::Io, 5, 1, 5))];
    assert!(
        written(&idle, &Settings { metric: Metric::Cpu, ..Settings::default() })
            .contains("no cpu time was seen")
    );
}

proptest! {
    #[test]
    fn all_time_is_drawn_whatever_the_names_are(
        stacks in proptest::collection::vec((".{0,4}", proptest::collection::vec("[ab]|.{0,6}|[# 0-9.;]{0,6}", 0..6), 0..9_u64), 0..20)
    ) {
        let stacks: Vec<Stack> = stacks
            .into_iter()
            .map(|(group, frames, ms)| Stack { group, frames, own: ran(ms, 1) })
            .collect();
        let total = stacks.iter().map(|stack| stack.own.wall_ns).sum::<u64>();
        prop_assert_eq!(lines(&stacks).iter().map(|(_, ns)| ns).sum::<u64>(), total);
        let svg = written(&stacks, &Settings::default());
        let formatted: String = titles(&svg).iter().filter_map(|title| title.strip_prefix("all (")).collect();
        let digits: String = formatted.split(' ').next().unwrap_or("").chars().filter(char::is_ascii_digit).collect();
        prop_assert_eq!(digits, if total == 0 { String::new() } else { (total / 1000).to_string() });
    }
}
