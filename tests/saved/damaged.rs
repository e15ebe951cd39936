//! Truncated, changed and forged files. What can be opened is sound: no name is changed, and no
//! time is greater than before.

use std::collections::BTreeMap;

use sampletop::formats::saved::{self, LOST, block};
use sampletop::model::facts::snapshot::Snapshot;
use sampletop::model::facts::tables::FrameId;
use sampletop::model::projection::settings::{Range, Settings};
use sampletop::model::vocabulary::frame::ThreadKey;

use super::sessions::{Random, session};
use super::{rendered, written};

/// Wall and CPU time by thread, its name, stack and state.
pub type Sums = BTreeMap<(ThreadKey, String, String, &'static str), (u64, u64)>;

/// Returns the sums of the buckets, and of everything since the start.
pub fn sums(snapshot: &Snapshot) -> [Sums; 2] {
    [Range::Rolling(u64::MAX), Range::Cumulative { since: None }].map(|range| {
        let mut sums = Sums::new();
        snapshot.history.read(range, snapshot.at, &mut |key, weights| {
            let tables = &snapshot.tables;
            let frames = tables
                .frames_innermost_first(key.stack)
                .flat_map(|id| tables.named(id).locations.iter());
            let stack: Vec<String> =
                frames.map(|l| format!("{} {:?} {:?}", l.function, l.line, l.kind)).collect();
            let state = key.state.resolve(tables.futex_kind(key.stack)).word();
            let key = (key.thread, tables.name(key.name).to_string(), stack.join(";"), state);
            let sum = sums.entry(key).or_default();
            (sum.0, sum.1) = (sum.0 + weights.wall_ns, sum.1 + weights.cpu_ns);
        });
        sums
    })
}

fn all(sums: &Sums) -> (u64, u64) {
    sums.values().fold((0, 0), |all, sum| (all.0 + sum.0, all.1 + sum.1))
}

/// Asserts that what can be opened is part of `whole`.
fn assert_part(file: &[u8], whole: &[Sums; 2], what: &str) {
    let Ok(opened) = saved::read(file) else { return };
    for (found, whole) in sums(&opened.snapshot).iter().zip(whole) {
        let is_part = |part: (u64, u64), of: (u64, u64)| part.0 <= of.0 && part.1 <= of.1;
        assert!(is_part(all(found), all(whole)), "{what}: {:?} of {:?}", all(found), all(whole));
        for (key, sum) in
            found.iter().filter(|((_, name, stack, _), _)| name != LOST && !stack.contains(LOST))
        {
            let of = whole.get(key).copied().unwrap_or_default();
            assert!(is_part(*sum, of), "{what}: {key:?} has {sum:?} of {of:?}");
        }
        if opened.lost.is_none() {
            assert!(found == whole, "{what}: nothing is said to be missing");
        }
    }
}

fn small() -> (Vec<u8>, [Sums; 2]) {
    let snapshot = session(13, 60, true);
    let whole = sums(&snapshot);
    assert!(all(&whole[0]).0 > 0 && all(&whole[1]).0 > 0 && !snapshot.history.sealed().is_empty());
    (written(&snapshot, &Settings::default()), whole)
}

#[test]
fn a_file_that_was_cut_off_opens_as_far_as_it_goes() {
    let (file, whole) = small();
    let mut before = (0, 0);
    let mut opened = 0;
    for end in 0..=file.len() {
        assert_part(&file[..end], &whole, &format!("cut at {end}"));
        if let Ok(read) = saved::read(&file[..end]) {
            let now = all(&sums(&read.snapshot)[0]);
            assert!(
                now.0 >= before.0 && now.1 >= before.1,
                "cut at {end}: less than with less of it"
            );
            before = now;
            opened += 1;
        }
    }
    assert_eq!(before, all(&whole[0]));
    assert!(opened > file.len() / 2, "{opened} of {} opened", file.len());
}

#[test]
fn changed_bits_cost_what_they_are_in() {
    let (file, whole) = small();
    for byte in 0..file.len() {
        let mut damaged = file.clone();
        damaged[byte] ^= 1 << (byte % 8);
        assert!(saved::read(&damaged).is_ok(), "byte {byte}: one block is lost, not all");
        assert_part(&damaged, &whole, &format!("byte {byte}"));
    }
}

#[test]
fn each_block_can_be_lost() {
    let (file, whole) = small();
    let blocks: Vec<_> =
        block::blocks(&file).map(|block| (block.kind, block.unpack().expect("sound"))).collect();
    let without = |lost: &dyn Fn(usize, u32) -> bool| {
        let mut file = block::HEAD.to_vec();
        for (_, (kind, bytes)) in
            blocks.iter().enumerate().filter(|(nth, (kind, _))| !lost(*nth, *kind))
        {
            block::write(&mut file, *kind, &[bytes]).expect("memory takes it");
        }
        file
    };
    let said = |kind: u32| {
        let file = without(&|_, k| k == kind);
        assert_part(&file, &whole, &format!("kind {kind}"));
        let opened = saved::read(&file).expect("the rest is there");
        let sums = sums(&opened.snapshot);
        let lost = opened.lost.expect("something is missing");
        (
            lost.replace("the file is damaged or was cut off; missing: ", ""),
            [all(&sums[0]), all(&sums[1])],
        )
    };
    let counts = saved::read(&file).expect("whole").snapshot;
    let (names, frames) = (counts.tables.name_count(), counts.tables.frame_count());
    let everything = [all(&whole[0]), all(&whole[1])];
    use saved::kind;
    assert_eq!(said(kind::SETTINGS), ("the settings".into(), everything));
    assert_eq!(said(kind::NAMES), (format!("all {names} names of threads"), everything));
    assert_eq!(said(kind::FRAMES), (format!("all {frames} names of frames"), everything));
    assert_eq!(
        said(kind::STACKS),
        (format!("all {} stacks", counts.tables.stack_count()), everything)
    );
    assert_eq!(
        said(kind::THREADS),
        (format!("all {} states of threads", counts.threads.len()), everything)
    );
    assert_eq!(
        said(kind::WAITS),
        (
            format!("all {} files, peers and children waited for", counts.observed_waits.len()),
            everything
        )
    );
    let pairs = counts.wakeups.expect("they were counted").pairs.len();
    assert_eq!(said(kind::WAKEUPS), (format!("all {pairs} pairs of who woke whom"), everything));
    let open = counts.history.open().len();
    assert_eq!(said(kind::OPEN).0, format!("all {open} of the newest seconds"));
    let (sums_of, left) = said(kind::CUMULATIVE);
    assert!(sums_of.ends_with("sums since the start") && left[0] == everything[0], "{sums_of}");
    let (pieces, left) = said(kind::SEALED);
    assert_eq!(pieces, format!("all {} older pieces of history", counts.history.sealed().len()));
    assert_eq!(left[1], everything[1]);
    let spans = counts.history.spans().count();
    assert_eq!(
        said(kind::SPANS),
        (format!("all {spans} spans of the last two minutes"), everything)
    );
    // One of the two is enough.
    let last = blocks.len() - 1;
    for lost in [0, last] {
        assert_eq!(
            saved::read(&without(&|nth, _| nth == lost)).expect("the other is there").lost,
            None
        );
    }
    assert!(saved::read(&without(&|_, kind| kind == kind::SESSION)).is_err());
}

/// With correct checksums: only a forged file has these.
#[test]
fn changed_contents_are_sound_or_refused() {
    let (file, _) = small();
    let blocks: Vec<_> =
        block::blocks(&file).map(|block| (block.kind, block.unpack().expect("sound"))).collect();
    let mut random = Random(3);
    let settings =
        Settings { range: Range::Cumulative { since: None }, idle: true, ..Settings::default() };
    let (mut opened, mut unharmed) = (0, 0);
    for _ in 0..1_500 {
        let changed = random.below(blocks.len() as u64) as usize;
        let mut hostile = block::HEAD.to_vec();
        for (nth, (kind, bytes)) in blocks.iter().enumerate() {
            let mut bytes = bytes.clone();
            // Changes both sessions, or the intact one would be used.
            if nth == changed || (*kind == blocks[changed].0 && nth > changed) {
                for _ in 0..1 + random.below(4) {
                    let at = random.below(bytes.len() as u64) as usize;
                    match random.below(4) {
                        0 => bytes[at] ^= 1 << random.below(8),
                        1 => bytes[at] = random.one(&[0, 1, 0x7f, 0x80, 0xff]),
                        2 => bytes.insert(at, random.one(&[0, 1, 0xff])),
                        _ if bytes.len() > 1 => drop(bytes.remove(at)),
                        _ => {}
                    }
                }
            }
            block::write(&mut hostile, *kind, &[&bytes]).expect("memory takes it");
        }
        if let Ok(read) = saved::read(&hostile) {
            opened += 1;
            unharmed += u32::from(read.lost.is_none());
            let (from, till) = read.snapshot.history.span();
            let part = Range::Between { from: from + 1, till: till.max(from + 2) };
            let part = Settings { range: part, ..settings.clone() };
            for settings in [&settings, &read.settings, &part] {
                rendered(&read.snapshot, settings);
            }
        }
    }
    assert!(
        opened > 500 && unharmed > 10,
        "{opened} opened, {unharmed} with nothing lost: there is something to see"
    );
}

/// Only a newer program writes these.
#[test]
fn a_wait_with_an_unknown_word_is_told_and_costs_nothing_else() {
    let (file, whole) = small();
    let all = saved::read(&file).expect("a profile").snapshot.observed_waits;
    let word = all.first().expect("there are some").waits_for.what;
    let mut changed = block::HEAD.to_vec();
    for block in block::blocks(&file) {
        let mut bytes = block.unpack().expect("sound");
        if block.kind == saved::kind::WAITS {
            let at = bytes.windows(word.len()).position(|bytes| bytes == word.as_bytes());
            let at = at.expect("it is the first string");
            bytes[at..at + word.len()].fill(b'x');
        }
        block::write(&mut changed, block.kind, &[&bytes]).expect("memory takes it");
    }
    let opened = saved::read(&changed).expect("a profile");
    let known: Vec<_> = all.iter().filter(|wait| wait.waits_for.what != word).cloned().collect();
    assert_eq!(*opened.snapshot.observed_waits, known);
    let (lost, of) = (all.len() - known.len(), all.len());
    let lost = format!("missing: {lost} of {of} files, peers and children waited for");
    assert!(opened.lost.expect("told").ends_with(&lost));
    assert!(sums(&opened.snapshot) == whole);
}

#[test]
fn lost_build_ids_are_told_and_cost_nothing_else() {
    let (file, whole) = small();
    let mut without = block::HEAD.to_vec();
    for block in block::blocks(&file).filter(|block| block.kind != saved::kind::BUILDS) {
        block::write(&mut without, block.kind, &[&block.unpack().expect("sound")])
            .expect("memory takes it");
    }
    assert!(without.len() < file.len(), "there were some");
    let opened = saved::read(&without).expect("a profile");
    let lost = opened.lost.expect("told");
    let all = saved::read(&file).expect("a profile").snapshot.tables;
    let known = (0..all.frame_count() as u32)
        .filter(|id| all.named(FrameId(*id)).build_id.is_some())
        .count();
    assert!(lost.ends_with(&format!("missing: all {known} build ids of frames")), "{lost}");
    assert!(sums(&opened.snapshot) == whole && opened.snapshot.tables.builds().is_empty());
    assert_eq!(all.builds()["shop"].len(), 2);
}
