//! Names of threads: made-up dictionaries and objects of each version.

use super::made_up_objects::{list, longer, thread_object};
use super::*;
use crate::model::vocabulary::frame::RawName;

fn names(python: &mut Cpython<&World>, moved: &[u32]) -> Vec<(u32, String)> {
    let moved = moved.iter().copied().collect();
    let name = |names: &Names, name: RawName| names.thread(name).expect("one of ours").to_string();
    let mut found: Vec<_> = python.thread_names(Some(&moved));
    found.sort_unstable();
    found.into_iter().map(|(id, raw)| (id, name(&python.names, raw))).collect()
}

#[test]
fn threads_have_the_names_that_the_program_gave_them() {
    for layout in layouts() {
        for own in [false, true] {
            let (program, first, _) = program(layout);
            let interpreter = program.world.get(first + layout.thread.interpreter);
            let pthreads: Vec<u64> = (0..4).map(|nth| PTHREAD + 0x1_0000 * nth).collect();
            for (pthread, id) in pthreads.iter().zip(71..).skip(1) {
                program.thread(interpreter, *pthread, id);
            }
            let texts = ["MainThread", "worker-1 of a long name", "Dummy-7", "größe"]
                .map(|text| program.text(text));
            let objects = texts.map(|text| thread_object(&program, text, own));
            let threads: Vec<_> = pthreads.iter().copied().zip(objects).collect();
            let mut python = reader(&program);
            assert_eq!(names(&mut python, &[]), [], "there is no list");
            let active = list(&program, interpreter, &threads);
            assert_eq!(names(&mut python, &[]), [], "it is not searched for at once");
            let mut python = reader(&program);
            let expected = [(72, "worker-1 of a long name".to_owned()), (74, "größe".to_owned())];
            assert_eq!(names(&mut python, &[]), expected, "{layout:?} {own}");
            // Another name, of a thread that ran.
            let place = python.thread_names.place(pthreads[1]);
            program.world.word(place, program.text("renamed"));
            assert_eq!(names(&mut python, &[72])[0].1, "renamed", "{layout:?} {own}");
            program.world.word(place, program.text("again"));
            let turns = (0..16).filter(|_| names(&mut python, &[])[0].1 == "again").count();
            assert!(turns >= 1, "its turn came");
            // The list is not a dictionary any more.
            program.world.word(active + 32 + longer(&layout), 0x9999_0000);
            assert_eq!(names(&mut python, &[]), []);
        }
    }
}
