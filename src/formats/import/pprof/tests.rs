use super::frames::kind;
use super::*;
use crate::formats::pprof::proto::{Function, Line, Location as At, Mapping, Profile};
use crate::model::facts::tables::FrameKind;
use crate::model::projection::{Projection, project};

/// Returns a profile with one function, `f`, and these types and values. Adds missing strings.
fn profile(
    types: &[(&str, &str)],
    period: Option<(&str, &str, i64)>,
    samples: &[&[i64]],
) -> Profile {
    let mut strings = vec![String::new(), "f".to_owned()];
    let mut string = |text: &str| {
        strings.push(text.to_owned());
        strings.len() as i64 - 1
    };
    let mut value_type =
        |(name, unit): (&str, &str)| ValueType { r#type: string(name), unit: string(unit) };
    let sample_type = types.iter().map(|named| value_type(*named)).collect();
    let period_type = period.map(|(name, unit, _)| value_type((name, unit)));
    let line = vec![Line { function_id: 5, line: 3 }];
    Profile {
        sample_type,
        sample: samples
            .iter()
            .map(|value| Sample { location_id: vec![7], value: value.to_vec(), label: Vec::new() })
            .collect(),
        location: vec![At { id: 7, mapping_id: 0, address: 16, line }],
        function: vec![Function { id: 5, name: 1, system_name: 1, filename: 0 }],
        string_table: strings,
        period_type,
        period: period.map_or(0, |(.., period)| period),
        ..Profile::default()
    }
}

fn opened(profile: &Profile) -> Opened {
    read(&profile.encode_to_vec()).expect("a profile").expect("with time")
}

fn shown(opened: &Opened) -> Projection {
    project(&opened.snapshot, &opened.settings)
}

#[test]
fn types_in_units_of_time_are_wall_or_cpu_time() {
    let count = ("samples", "count");
    let ten_ms = Some(("cpu", "nanoseconds", 10_000_000));
    // (types, period, values) -> (wall, cpu, hits), ns
    for (types, period, values, expected) in [
        (&[count, ("cpu", "nanoseconds")][..], ten_ms, &[3, 30][..], (30, 30, 3)),
        (
            &[("wall", "microseconds"), ("cpu", "milliseconds")],
            None,
            &[7_000, 2],
            (7_000_000, 2_000_000, 1),
        ),
        (&[("contentions", "count"), ("delay", "nanoseconds")], None, &[4, 90], (90, 0, 4)),
        (&[("off-cpu", "seconds")], None, &[2], (2_000_000_000, 0, 1)),
        // Only a count of samples: the period gives each one's time.
        (&[count], ten_ms, &[3], (30_000_000, 30_000_000, 3)),
        (&[count], Some(("wall", "ms", 10)), &[3], (30_000_000, 0, 3)),
        (&[("cpu", "nanoseconds")], ten_ms, &[50_000_000], (50_000_000, 50_000_000, 5)),
    ] {
        let opened = opened(&profile(types, period, &[values]));
        let total = shown(&opened).total;
        assert_eq!((total.wall_ns, total.cpu_ns, total.hits), expected, "{types:?}");
        let notice = opened.snapshot.notice.as_deref().unwrap_or("");
        assert_eq!(
            notice.contains("each of the samples is shown as the 10 ms"),
            types == [count],
            "{types:?}"
        );
        assert_eq!(
            notice.contains("does not say whether threads ran or waited"),
            expected.1 == 0,
            "{types:?}"
        );
    }
}

#[test]
fn without_time_there_is_one_sentence() {
    for (types, period) in [
        (
            &[("inuse_objects", "count"), ("inuse_space", "bytes")][..],
            Some(("space", "bytes", 524_288)),
        ),
        (&[("samples", "count")], None),
        (&[("samples", "count")], Some(("cpu", "nanoseconds", 0))),
        (&[("samples", "count")], Some(("cpu", "nanoseconds", -5))),
    ] {
        let sentence = read(&profile(types, period, &[&[1, 1]]).encode_to_vec())
            .expect("a profile")
            .expect_err("no time");
        assert!(sentence.contains("holds no time") && sentence.contains(types[0].0), "{sentence}");
    }
}

#[test]
fn what_is_unsound_is_left_out_and_counted() {
    let types = [("cpu", "nanoseconds")];
    let mut profile = profile(&types, None, &[&[5], &[-5], &[], &[6]]);
    // One of its locations is missing.
    profile.sample[3].location_id = vec![7, 8, 9];
    let one = opened(&profile);
    assert_eq!(shown(&one).total.cpu_ns, 11);
    let lost = one.lost.expect("something is missing");
    assert_eq!(
        lost,
        "2 parts of the file are no valid samples, functions or locations; 2 frames are missing in it"
    );
    // Sums that overflow.
    profile.sample.iter_mut().for_each(|sample| sample.value = vec![i64::MAX]);
    let sentence = read(&profile.encode_to_vec()).expect("a profile").expect_err("too large");
    assert!(sentence.contains("too large"), "{sentence}");
}

#[test]
fn frames_are_named_as_well_as_can_be() {
    let mut profile = profile(&[("cpu", "nanoseconds")], None, &[&[5]]);
    let mut string = |text: &str| {
        profile.string_table.push(text.to_owned());
        profile.string_table.len() as i64 - 1
    };
    let mapping = |id, filename| Mapping {
        id,
        filename,
        memory_start: 0x1000,
        file_offset: 0x200,
        ..Mapping::default()
    };
    profile.mapping =
        vec![mapping(1, string("/lib/libx.so")), mapping(2, string("[kernel.kallsyms]"))];
    let (evil, java, source) =
        (string("e\u{1b}[2Jvil"), string("shop.Cart.add"), string("Cart.java"));
    profile.function.push(Function { id: 6, name: 0, system_name: evil, filename: 0 });
    profile.function.push(Function { id: 8, name: java, system_name: 0, filename: source });
    let place = |id, mapping_id, functions: &[u64]| At {
        id,
        mapping_id,
        address: 0x1234,
        line: functions
            .iter()
            .map(|function_id| Line { function_id: *function_id, line: 3 })
            .collect(),
    };
    profile.location =
        vec![place(1, 1, &[]), place(2, 2, &[6]), place(3, 0, &[8, 5]), place(4, 0, &[])];
    profile.sample[0].location_id = vec![1, 2, 3, 4];
    let opened = opened(&profile);
    let projection = shown(&opened);
    let mut next = projection.roots(&projection.groups[0]).next();
    let mut path = Vec::new();
    while let Some(at) = next {
        let location = projection.location(at, Metric::Cpu);
        let line = location.line.unwrap_or(0);
        path.push(format!(
            "{} {} {} {line}",
            location.function,
            location.module,
            location.kind.word()
        ));
        next = projection.children(at).next();
    }
    let expected = [
        "0x1234  native 0",
        "f  native 3",
        "shop.Cart.add shop.Cart java 3",
        "e[2Jvil [kernel.kallsyms] kernel 3",
        "libx.so!0x434 /lib/libx.so native 0",
    ];
    assert_eq!(path, expected);
    assert_eq!(&*opened.snapshot.session.wanted.title, "libx.so");
}

#[test]
fn kinds_of_code_are_told_by_its_mapping_and_source() {
    for (module, name, source, expected) in [
        ("vmlinux", "vfs_read", "", FrameKind::Kernel),
        ("[kernel.kallsyms]", "vfs_read", "", FrameKind::Kernel),
        ("[nf_tables]", "nft_do_chain", "", FrameKind::Kernel),
        ("[vdso]", "__vdso_clock_gettime", "", FrameKind::Native),
        ("[anon:x y]", "f", "", FrameKind::Native),
        ("/lib/libc.so.6", "[f]", "", FrameKind::Native),
        ("", "[torn]", "", FrameKind::Marker),
        ("", "[task fetch]", "", FrameKind::Marker),
        ("", "[f]", "", FrameKind::Native),
        ("[java]", "A.b", "", FrameKind::Java),
        ("", "A.b", "A.java", FrameKind::Java),
        ("python3", "f", "/x/f.py", FrameKind::Python),
        ("/x/app.js", "f", "/x/app.js", FrameKind::Jit),
        ("[perf map]", "f", "", FrameKind::Jit),
    ] {
        assert_eq!(kind(module, name, source), expected, "{module} {name} {source}");
    }
}

#[test]
fn threads_are_those_of_the_labels() {
    let mut profile = profile(&[("wall", "nanoseconds")], None, &[&[1], &[2], &[4], &[8], &[16]]);
    let mut labels = |pairs: &[(&str, &str, i64)]| -> Vec<Label> {
        let mut string = |text: &str| {
            profile.string_table.push(text.to_owned());
            profile.string_table.len() as i64 - 1
        };
        let label = |(key, text, num): &(&str, &str, i64)| Label {
            key: string(key),
            str: if text.is_empty() { 0 } else { string(text) },
            num: *num,
            num_unit: 0,
        };
        pairs.iter().map(label).collect()
    };
    let all = [
        labels(&[("thread", "work-1", 0), ("tid", "", 11), ("pid", "", 3), ("state", "io", 0)]),
        labels(&[
            ("comm", "work-1", 0),
            ("thread_id", "11", 0),
            ("pid", "", 3),
            ("state", "odd", 0),
        ]),
        labels(&[("thread_name", "work-2", 0)]),
        labels(&[("thread_name", "work-2", 0), ("tid", "", -4)]),
        labels(&[("tid", "", 1 << 40)]),
    ];
    profile.sample.iter_mut().zip(all).for_each(|(sample, label)| sample.label = label);
    let opened = opened(&profile);
    let projection = shown(&opened);
    let group =
        |name: &str| projection.groups.iter().find(|group| &*group.name == name).expect("a group");
    let work = group("work-");
    assert_eq!((work.total.wall_ns, work.threads.len()), (15, 2));
    assert_eq!(work.total.states_ns[State::Io as usize], 1);
    assert_eq!(work.threads.iter().filter(|thread| thread.thread.tid == 11).count(), 1);
    assert_eq!(group("(all)").total.wall_ns, 16);
}

#[test]
fn other_bytes_are_no_profile() {
    let profile = profile(&[("cpu", "nanoseconds")], None, &[&[5]]).encode_to_vec();
    assert!(read(&profile).is_some());
    for bytes in [
        &b""[..],
        b"\0",
        b"something else",
        &[0x0a],
        &[0x0a, 0x02, 0x08, 0x01],
        &profile[..profile.len() - 1],
    ] {
        assert!(read(bytes).is_none(), "{bytes:?}");
    }
    // A truncated gzip file opens, with a notice that data are missing.
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&profile).expect("memory takes it");
    let mut packed = packed.finish().expect("memory takes it");
    assert_eq!(crate::formats::import::read(&packed).expect("one").expect("with time").lost, None);
    packed.truncate(packed.len() - 4);
    let lost = crate::formats::import::read(&packed).expect("one").expect("with time").lost;
    assert!(lost.is_some_and(|lost| lost.contains("cut off")));
}
