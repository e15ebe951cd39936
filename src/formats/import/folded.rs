//! Imports one line per stack, `outermost;...;innermost VALUE`: of sampletop, flamegraph.pl,
//! inferno, async-profiler (`collapsed`) and others. The format does not define the unit of VALUE.

use super::build::{About, Builder, Owner, is_marker};
use crate::formats::saved::Opened;
use crate::model::facts::history::Weights;
use crate::model::facts::tables::{FrameKind, Location, Tier};
use crate::model::vocabulary::frame::RawFrame;
use crate::model::vocabulary::state::State;
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};

/// Assumed ns per unit of VALUE: sampletop writes microseconds.
const UNIT: f64 = 1_000.0;

/// Reads folded stacks. `None` if the lines have another form.
pub fn read(bytes: &[u8]) -> Option<Result<Opened, String>> {
    let mut lines =
        bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    // Skips headers and comments.
    let mut lines = lines.by_ref().filter(|line| !line.starts_with(b"#")).peekable();
    let (first, _) = split(lines.peek()?)?;
    if split(first).is_some() {
        return Some(Err(
            "these stacks have two values, as those of a difference between two profiles do; open the two profiles"
                .into(),
        ));
    }
    let mut builder = Builder::new();
    let (mut read, mut unread) = (0_u64, 0_u64);
    let mut stack = Vec::new();
    for line in lines {
        let Some((frames, value)) = split(line) else {
            unread += 1;
            continue;
        };
        read += 1;
        stack.clear();
        let frames = frames.split(|byte| *byte == b';').rev().filter(|frame| !frame.is_empty());
        stack.extend(frames.map(|text| frame(&mut builder, text)));
        // Less than half a nanosecond rounds to zero.
        let time = (value * UNIT).round() as u64;
        let weights = Weights { wall_ns: time, cpu_ns: time, ..Weights::default() };
        if builder.add(Owner::default(), &mut stack, State::Run, weights).is_none() {
            return Some(Err("the values of these stacks are too large to be added up".into()));
        }
    }
    if unread > read {
        return None;
    }
    let lost = (unread > 0).then(|| format!("{unread} of {} lines are no stacks", read + unread));
    Some(Ok(builder.opened(About {
        title: "folded stacks".into(),
        capture: "folded".into(),
        notice: Some(
            "folded stacks have no unit, threads or states: a value of 1 is shown as 1 us on a core".into(),
        ),
        lost: lost.into_iter().collect(),
        ..About::default()
    })))
}

/// Splits a line into the stack and its value, a number of at least 0.
fn split(line: &[u8]) -> Option<(&[u8], f64)> {
    let blank = line.iter().rposition(|byte| *byte == b' ' || *byte == b'\t')?;
    let (stack, value) = (line[..blank].trim_ascii_end(), &line[blank + 1..]);
    let plain =
        !stack.is_empty() && value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let value: f64 = std::str::from_utf8(value).ok().filter(|_| plain)?.parse().ok()?;
    Some((stack, value))
}

fn frame(builder: &mut Builder, text: &[u8]) -> RawFrame {
    let text = clean_bytes(text, NAME_CAP);
    // A suffix gives the kind of code, by convention of flamegraph.pl and async-profiler.
    let (name, kind, tier) = match text.rsplit_once("_[") {
        Some((name, "k]")) => (name, FrameKind::Kernel, None),
        Some((name, "j]")) => (name, managed(name), None),
        Some((name, "i]")) => (name, managed(name), Some(Tier::Inlined)),
        Some((name, "0]")) => (name, managed(name), Some(Tier::Interpreted)),
        Some((name, "1]")) => (name, managed(name), Some(Tier::C1)),
        _ if is_marker(&text) => (&*text, FrameKind::Marker, None),
        _ => (&*text, FrameKind::Native, None),
    };
    let (function, module) = match kind {
        FrameKind::Java => {
            let function = name.replace('/', ".");
            let module = function.rsplit_once('.').map_or("", |(class, _)| class).into();
            (function.into(), module)
        }
        _ => (name.into(), "".into()),
    };
    builder.frame(vec![Location { function, module, file: None, line: None, kind, tier }], None)
}

/// Returns the kind of code that a runtime compiled: Java names have a class.
fn managed(name: &str) -> FrameKind {
    if name.contains(['.', '/']) { FrameKind::Java } else { FrameKind::Jit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::FrameId;
    use crate::model::projection::project;
    use crate::model::projection::settings::Metric;
    use crate::model::vocabulary::frame::FrameCode;

    fn opened(text: &str) -> Opened {
        read(text.as_bytes()).expect("stacks").expect("one value each")
    }

    /// Returns every stack of the only group, with its time in us.
    fn stacks(opened: &Opened) -> Vec<String> {
        let projection = project(&opened.snapshot, &opened.settings);
        assert_eq!(
            projection.groups.iter().map(|group| &*group.name).collect::<Vec<_>>(),
            ["(all)"]
        );
        let mut stacks = Vec::new();
        let mut todo: Vec<(u32, String)> =
            projection.roots(&projection.groups[0]).map(|root| (root, String::new())).collect();
        while let Some((at, above)) = todo.pop() {
            let node = projection.node(at, Metric::Wall);
            let path = format!("{above}{}", node.location.function);
            assert_eq!(node.own.wall_ns, node.own.cpu_ns);
            stacks.extend(
                (node.own.wall_ns > 0).then(|| format!("{path} {}", node.own.wall_ns as f64 / 1e3)),
            );
            todo.extend(projection.children(at).map(|child| (child, format!("{path};"))));
        }
        stacks.sort();
        stacks
    }

    #[test]
    fn stacks_are_time_of_one_thread_on_a_core() {
        let opened = opened(
            "java;start;run 7\njava;start;run;vfs_read_[k] 5\njava;[torn] 3\njava;start;run 1\n",
        );
        assert_eq!(
            stacks(&opened),
            ["java;[torn] 3", "java;start;run 8", "java;start;run;vfs_read 5"]
        );
        assert_eq!(opened.lost, None);
        // The duration is that of the only thread; the start is unknown.
        assert_eq!((opened.snapshot.at, opened.snapshot.session.started_unix_ns), (16_000, 0));
    }

    #[test]
    fn values_may_have_decimals_and_lines_a_header() {
        let opened = opened("# of a tool\n\n  a;b 1.5 \r\na;b\t2\na;c 0\n;;a;;d; 4\nno number\n");
        assert_eq!(stacks(&opened), ["a;b 3.5", "a;d 4"]);
        assert_eq!(opened.lost.as_deref(), Some("1 of 5 lines are no stacks"));
    }

    #[test]
    fn kinds_of_code_are_told_by_the_end_of_a_name() {
        let opened = opened(
            "comm;java/util/List$1.get_[j];a/B.c_[i];a/B.d_[0];a/B.e_[1];stub_[j];entry_[k];f;[no unwind info: x] 1",
        );
        let tables = &opened.snapshot.tables;
        let ids = (0..tables.frame_count()).map(|id| FrameId(id as u32));
        let read = ids.filter(|id| matches!(tables.frame(*id).decode(), FrameCode::Runtime { .. }));
        let mut kinds: Vec<String> = read
            .map(|id| {
                let location = &tables.named(id).locations[0];
                let tier = location.tier.map_or("", |tier| tier.word());
                format!("{} {} {} {tier}", location.function, location.module, location.kind.word())
            })
            .collect();
        kinds.sort();
        assert_eq!(
            kinds,
            [
                "[no unwind info: x]  marker ",
                "a.B.c a.B java inlined",
                "a.B.d a.B java interpreted",
                "a.B.e a.B java c1",
                "comm  native ",
                "entry  kernel ",
                "f  native ",
                "java.util.List$1.get java.util.List$1 java ",
                "stub  jit ",
            ]
        );
    }

    #[test]
    fn what_is_no_stacks_is_told_apart() {
        for text in [
            "",
            "\n\n# x\n",
            "something else",
            "a 1\nsome text\nand more",
            "1",
            "a;b",
            "a;b -1",
            "a;b 1e3",
            "{\"a\": 1}",
        ] {
            assert!(read(text.as_bytes()).is_none(), "{text}");
        }
        let difference = read(b"a;b 1 2\na;c 3 4\n").expect("stacks").expect_err("two values");
        assert!(difference.contains("two values"), "{difference}");
        let huge = read(b"a 99999999999999999999999999")
            .expect("stacks")
            .expect_err("no time is that long");
        assert!(huge.contains("too large"), "{huge}");
    }
}
