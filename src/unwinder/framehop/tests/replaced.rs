//! Stacks that were copied before or after another library was mapped at the same address.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::clock::monotonic;
use crate::process::code_generations::CodeMapping;
use crate::process::maps::Mapping;

/// A report of the code of `name` where [`MAPS`] has that of `/made/up`.
pub(super) fn reported(at: u64, inode: u64, name: &str) -> CodeMapping {
    let mapping = Mapping::reported((0x40_1000, 0x41_1000), 0x1000, (8, 1), inode, name.as_bytes());
    CodeMapping { pid: 1, at, mapping: Arc::new(mapping) }
}

struct Scene {
    world: World,
    readings: Arc<AtomicUsize>,
    /// Nothing was replaced before this time.
    begin: u64,
}

impl Scene {
    /// Function 4 called by 1 called by 0 in `/made/up`; new code is reported.
    fn new() -> Scene {
        let mut world = world();
        let (in_1, in_0) = (call(&world.memory, 1, 4), call(&world.memory, 0, 1));
        world.memory.put_words(SP, &[7, in_1, 7, in_0]);
        let readings = Arc::new(AtomicUsize::new(0));
        let (count, text) = (readings.clone(), world.maps.clone());
        let source = Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Maps::parse(text.lock().unwrap().as_bytes()))
        });
        world.unwinder =
            FramehopUnwinder::with_maps(world.memory.clone(), world.files.clone(), 1, source);
        world.unwinder.revalidate(true, false);
        Scene { world, readings, begin: monotonic() }
    }

    /// Maps the other library there: function 4 is the outermost of its functions.
    fn replace(&mut self, inode: u64, name: &str, image: &[u8]) {
        *self.world.maps.lock().unwrap() = MAPS.replace("11 /made/up", &format!("{inode} {name}"));
        self.world.memory.put(IMAGE, image);
        // The code itself has the same bytes.
        call(&self.world.memory, 1, 4);
        call(&self.world.memory, 0, 1);
    }

    /// Walks a stack that was copied at `at`; returns the paths of its frames' files, and how it
    /// ends.
    fn walk(&mut self, at: u64) -> (Vec<String>, Option<Marker>) {
        self.world.unwinder.set_instant(at);
        let registers =
            Registers { rip: super::at(4) + 8, rsp: SP, rbp: Some(0), ..Registers::default() };
        let mut bytes = [0; 64];
        ReadMemory::read(&self.world.memory, SP, &mut bytes);
        let mut out = Vec::new();
        let walk =
            self.world.unwinder.walk(&registers, StackBytes { base: SP, bytes: &bytes }, &mut out);
        check(&out, walk);
        let path = |frame: &RawFrame| match frame.decode() {
            FrameCode::Code { file, .. } => {
                Some(self.world.files.get(file)?.path.to_str()?.to_owned())
            }
            _ => None,
        };
        (out.iter().filter_map(path).collect(), walk.end)
    }
}

fn up(frames: usize) -> Vec<String> {
    vec!["/made/up".to_string(); frames]
}

fn other_image() -> Vec<u8> {
    let mut image = elf(&[Function { number: 4, program: root() }]);
    // A difference like that of a build id.
    image[0x3f0] = 1;
    image
}

#[test]
fn a_stack_is_named_by_the_code_of_its_instant() {
    let mut scene = Scene::new();
    let begin = scene.begin;
    assert_eq!(scene.walk(begin + 1), (up(3), None));
    scene.replace(12, "/made/anew", &other_image());
    assert_eq!(scene.walk(begin + 9), (up(3), None), "copied before");
    scene.world.unwinder.report(&reported(begin + 10, 12, "/made/anew"));
    assert_eq!(scene.walk(begin + 9), (vec![], Some(Marker::CodeReplaced)), "too late to be named");
    assert_eq!(scene.walk(begin + 10), (vec!["/made/anew".into()], None), "by its own tables");
}

#[test]
fn tables_are_not_read_from_replacing_code() {
    let mut scene = Scene::new();
    let begin = scene.begin;
    // Nothing of the first library was seen while it was mapped, and its file does not exist.
    scene.replace(12, "/made/anew", &other_image());
    assert_eq!(scene.walk(begin + 9), (up(1), Some(Marker::NoUnwindInfo)));
}

#[test]
fn remapped_images_are_reused_if_unchanged() {
    let mut scene = Scene::new();
    let begin = scene.begin;
    assert_eq!(scene.walk(begin + 1), (up(3), None));
    let first: Vec<u8> = {
        let mut bytes = vec![0; 0x1_1000];
        ReadMemory::read(&scene.world.memory, IMAGE, &mut bytes);
        bytes
    };
    scene.replace(12, "/made/anew", &other_image());
    scene.world.unwinder.report(&reported(begin + 10, 12, "/made/anew"));
    assert_eq!(scene.walk(begin + 11), (vec!["/made/anew".into()], None));
    // Mapped again several times: only the beginning is read.
    let before = scene.readings.load(Ordering::Relaxed);
    for turn in 2..20 {
        let (inode, name) = if turn % 2 == 0 { (11, "/made/up") } else { (12, "/made/anew") };
        let image = if turn % 2 == 0 { first.clone() } else { other_image() };
        scene.replace(inode, name, &image);
        scene.world.unwinder.report(&reported(begin + 10 * turn, inode, name));
        let expected = if turn % 2 == 0 { up(3) } else { vec!["/made/anew".into()] };
        assert_eq!(scene.walk(begin + 10 * turn), (expected, None), "{turn}");
    }
    assert_eq!(scene.readings.load(Ordering::Relaxed), before);
    // Rewritten in place: the same inode has other contents.
    scene.replace(11, "/made/up", &other_image());
    scene.world.unwinder.report(&reported(begin + 500, 11, "/made/up"));
    assert_eq!(scene.walk(begin + 500), (up(1), None), "by the tables that are there");
}

#[test]
fn without_reports_what_has_changed_in_between_is_not_named() {
    let mut scene = Scene::new();
    scene.world.unwinder.revalidate(false, false);
    let before = monotonic();
    assert_eq!(scene.walk(before), (up(3), None));
    scene.replace(12, "/made/anew", &other_image());
    scene.world.unwinder.code.forget_age();
    scene.world.unwinder.revalidate(false, false);
    assert_eq!(scene.walk(before), (vec![], Some(Marker::CodeReplaced)));
    assert_eq!(scene.walk(monotonic()), (vec!["/made/anew".into()], None));
}

#[test]
fn stacks_of_the_program_before_an_exec_are_not_named_by_the_one_after() {
    let mut scene = Scene::new();
    let source = scene.world.maps.clone();
    let source = Box::new(move || Ok(Maps::parse(source.lock().unwrap().as_bytes())));
    scene.world.unwinder = FramehopUnwinder::with_maps(
        scene.world.memory.clone(),
        scene.world.files.clone(),
        1,
        source,
    );
    scene.world.unwinder.follows_exec();
    scene.world.unwinder.revalidate(true, false);
    let begin = scene.begin;
    assert_eq!(scene.walk(begin), (vec![], Some(Marker::CodeReplaced)));
    scene.world.unwinder.report(&reported(begin - 5, 11, "/made/up"));
    assert_eq!(scene.walk(begin - 6), (vec![], Some(Marker::CodeReplaced)));
    assert_eq!(scene.walk(begin - 5), (up(3), None), "its mapping was reported with its time");
}
