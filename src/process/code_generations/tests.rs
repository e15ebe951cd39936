//! Compares with a model that records, page by page, what was mapped when.

use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;
const PAGES: u64 = 24;
const FILES: u64 = 4;

fn mapping(first: u64, pages: u64, file: u64) -> Mapping {
    let range = (first * PAGE, (first + pages) * PAGE);
    match file {
        0 => Mapping::reported(range, 0, (0, 0), 0, b"//anon"),
        _ => Mapping::reported(range, 0, (8, 1), file, format!("/lib/{file}.so").as_bytes()),
    }
}

fn reported(at: Ns, mapping: Mapping) -> CodeMapping {
    CodeMapping { pid: 1, at, mapping: Arc::new(mapping) }
}

/// The mapping of each page.
type World = Vec<Option<Mapping>>;

fn text_of(world: &World) -> Maps {
    let mut text = String::new();
    let mut page = 0;
    while page < world.len() {
        let Some(mapping) = &world[page] else {
            page += 1;
            continue;
        };
        // The part that was not replaced.
        let end = (page..world.len())
            .find(|at| world[*at].as_ref() != Some(mapping))
            .unwrap_or(world.len());
        let (start, offset) = (
            page as u64 * PAGE,
            if mapping.inode == 0 { 0 } else { page as u64 * PAGE - mapping.start },
        );
        text += &format!(
            "{start:x}-{:x} r-xp {offset:08x} 08:01 {} {}\n",
            end as u64 * PAGE,
            mapping.inode,
            mapping.path.display()
        );
        page = end;
    }
    Maps::parse(text.replace(" 08:01 0 ", " 00:00 0 ").as_bytes())
}

#[derive(Clone, Debug)]
enum Step {
    Map {
        first: u64,
        pages: u64,
        file: u64,
    },
    Unmap {
        first: u64,
        pages: u64,
    },
    /// The mappings are read while this many reports are still pending.
    Read {
        pending: usize,
    },
    /// All stacks since the last walk, and some older ones, are walked.
    Walk,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..PAGES, 1..8u64);
    let step = prop_oneof![
        6 => (range(), 0..FILES).prop_map(|((first, pages), file)| Step::Map { first, pages: pages.min(PAGES - first), file }),
        2 => range().prop_map(|(first, pages)| Step::Unmap { first, pages: pages.min(PAGES - first) }),
        2 => (0..3usize).prop_map(|pending| Step::Read { pending }),
        2 => Just(Step::Walk),
    ];
    proptest::collection::vec(step, 1..60)
}

/// Returns the identity of the code in a page: inode and file offset.
fn identity(mapping: &Mapping) -> (u64, u64) {
    if mapping.inode == 0 {
        (0, 0)
    } else {
        (mapping.inode, mapping.start.wrapping_sub(mapping.offset))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_address_is_given_to_code_that_was_not_there(steps in steps()) {
        let mut generations = CodeGenerations::default();
        let mut worlds: Vec<World> = vec![vec![None; PAGES as usize]];
        let mut waiting: Vec<CodeMapping> = Vec::new();
        generations.read(text_of(&worlds[0]), 1, 1, false);
        // The index is the time.
        worlds.push(worlds[0].clone());
        for step in steps {
            let mut world = worlds[worlds.len() - 1].clone();
            let now = worlds.len() as Ns;
            match step {
                Step::Map { first, pages, file } => {
                    let new = mapping(first, pages, file);
                    world[first as usize..(first + pages) as usize].fill(Some(new.clone()));
                    waiting.push(reported(now, new));
                }
                Step::Unmap { first, pages } => world[first as usize..(first + pages) as usize].fill(None),
                Step::Read { pending } => {
                    let come = waiting.len().saturating_sub(pending);
                    waiting.drain(..come).for_each(|new| { generations.report(&new); });
                    generations.read(text_of(&world), now, now, false);
                }
                Step::Walk => {
                    waiting.drain(..).for_each(|new| { generations.report(&new); });
                    for (time, then) in worlds.iter().enumerate().rev().take(12) {
                        for page in 0..PAGES {
                            let (address, time) = (page * PAGE + 7, time as Ns);
                            let code = generations.find_code(address).filter(|_| !generations.replaced(address, time));
                            if let (Some(code), Some(truth)) = (code, &then[page as usize]) {
                                prop_assert_eq!(identity(code), identity(truth), "page {} at {}: {:?}", page, time, generations);
                            }
                        }
                    }
                    // The present code is known, and so is that it is present.
                    for page in 0..PAGES {
                        let address = page * PAGE + 7;
                        if let Some(truth) = &world[page as usize] {
                            prop_assert!(!generations.replaced(address, now));
                            prop_assert_eq!(generations.find_code(address).map(identity), Some(identity(truth)));
                        }
                    }
                }
            }
            worlds.push(world);
        }
    }

    /// Without reports: code that the previous read did not show is not used for times between the
    /// two reads.
    #[test]
    fn without_reports_what_differs_between_two_readings_is_not_named(
        before in steps(), after in steps()
    ) {
        let apply = |world: &mut World, steps: &[Step]| {
            for step in steps {
                match *step {
                    Step::Map { first, pages, file } => {
                        world[first as usize..(first + pages) as usize].fill(Some(mapping(first, pages, file)));
                    }
                    Step::Unmap { first, pages } => world[first as usize..(first + pages) as usize].fill(None),
                    _ => {}
                }
            }
        };
        let mut world = vec![None; PAGES as usize];
        let mut generations = CodeGenerations::default();
        apply(&mut world, &before);
        generations.read(text_of(&world), 10, 11, false);
        let was = world.clone();
        apply(&mut world, &after);
        generations.read(text_of(&world), 20, 21, false);
        for page in 0..PAGES as usize {
            let address = page as u64 * PAGE;
            let (was, is) = (was[page].as_ref().map(identity), world[page].as_ref().map(identity));
            prop_assert_eq!(generations.replaced(address, 15), is.is_some() && was != is);
            prop_assert!(!generations.replaced(address, 21));
            prop_assert_eq!(generations.find_code(address).map(identity), is);
        }
    }
}

#[test]
fn the_same_file_at_the_same_place_replaces_nothing() {
    let mut generations = CodeGenerations::default();
    generations.read(Maps::default(), 1, 1, false);
    assert_eq!(generations.report(&reported(5, mapping(0, 4, 1))), []);
    assert_eq!(generations.report(&reported(9, mapping(0, 4, 1))), [], "unloaded and loaded again");
    assert!(!generations.replaced(PAGE, 6));
    assert_eq!(generations.report(&reported(12, mapping(1, 2, 2))), [(PAGE, 3 * PAGE)]);
    assert!(
        generations.replaced(PAGE, 11)
            && !generations.replaced(PAGE, 12)
            && !generations.replaced(3 * PAGE, 11)
    );
    // An upgrade: another inode under the same path.
    let mut upgraded = mapping(0, 1, 1);
    upgraded.inode = 77;
    assert_eq!(generations.report(&reported(13, upgraded)), [(0, PAGE)]);
}

#[test]
fn another_program_s_code_is_dated_by_reports() {
    let mut generations = CodeGenerations::default();
    generations.follows_exec();
    let maps = Maps::parse(
        b"0-4000 r-xp 00000000 08:01 1 /lib/1.so\n8000-9000 r-xp 00000000 00:00 0 [vdso]\n",
    );
    generations.read(maps, 20, 22, false);
    assert!(generations.replaced(0, 21) && generations.replaced(0x8000, 21));
    generations.report(&reported(15, mapping(0, 4, 1)));
    assert!(generations.replaced(0, 14) && !generations.replaced(0, 15), "since its exec");
    assert!(generations.replaced(0x8000, 21), "nothing was reported of that");
    assert!(!generations.replaced(0, 22) && !generations.replaced(0x8000, 22));
}

#[test]
fn after_lost_reports_recent_changes_are_untrusted() {
    let mut generations = CodeGenerations::default();
    let maps = Maps::parse(
        b"0-4000 r-xp 00000000 08:01 1 /lib/1.so\n8000-9000 r-xp 00000000 08:01 2 /lib/2.so\n",
    );
    generations.read(maps.clone(), 1, 1, false);
    generations.report(&reported(5, mapping(0, 4, 3)));
    generations.report(&reported(6, mapping(0, 4, 1)));
    generations.read(maps, 20, 20, true);
    assert!(generations.replaced(0, 19) && !generations.replaced(0, 20));
    assert!(!generations.replaced(0x8000, 19), "nothing else was ever there");
}

#[test]
fn a_flood_of_reports_is_bounded_and_names_nothing_until_the_next_reading() {
    let mut generations = CodeGenerations::default();
    generations.read(Maps::default(), 1, 1, false);
    for n in 0..5 * RANGES_MAX as u64 {
        // Reports that do not touch each other.
        generations.report(&reported(2 + n, mapping(2 * n, 1, 1 + n % 2)));
        assert!(generations.ranges.len() <= 2 * RANGES_MAX);
    }
    let now = 2 + 5 * RANGES_MAX as Ns;
    assert!(generations.replaced(0, now));
    generations.read(Maps::parse(b"0-4000 r-xp 00000000 08:01 1 /lib/1.so\n"), now, now, false);
    assert!(!generations.replaced(0, now) && generations.replaced(0, now - 1));
}
