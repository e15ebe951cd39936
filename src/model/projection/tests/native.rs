//! Native frames of stacks with Python frames.

use super::*;
use crate::model::projection::settings::{Level, NativeFrames, Whose};
use crate::model::projection::{remove_hidden, role};
use crate::model::vocabulary::role::{Origin, Role};

const PY: &str = "libpython3.12.so.1.0";

/// Replaces `~` by the interpreter's file.
fn joined(text: &str) -> String {
    text.replace('~', &format!("{PY}!")).split_whitespace().collect::<Vec<_>>().join(";")
}

fn with(native: NativeFrames) -> Settings {
    Settings { filters: Filters { native, ..Filters::default() }, ..Settings::default() }
}

/// Stacks of a Python program: a thread that sorts, one that is in the interpreter, one in an
/// extension that calls back, one without Python frames, and an embedder.
fn world() -> World {
    let mut world = World::new();
    let thread = "libc.so.6!start_thread ~thread_run ~_PyEval_Vector";
    for (frames, state, ns) in [
        (
            format!(
                "{thread} @shop.work ~PyObject_Vectorcall ~list_sort ~list_sort_impl ~slot_tp_richcompare \
                 @shop.Item.__lt__ ~_PyFunction_Vectorcall libc.so.6!memmove"
            ),
            State::Run,
            5,
        ),
        (format!("{thread} @shop.work ~PyObject_GetAttr"), State::Run, 4),
        (
            format!("{thread} @shop.work ~PyObject_GetAttr ~slot_tp_getattr @shop.Item.price"),
            State::Run,
            3,
        ),
        (
            format!("{thread} @shop.work ~fn_77 ~PyThread_acquire_lock_timed libc.so.6!sem_wait"),
            State::Lock,
            2,
        ),
        (format!("{thread} ~gc_collect_main"), State::Run, 6),
        (
            "main serve ~PyObject_Call @shop.page ~_PyEval_Vector lib!render vmlinux!vfs_read"
                .into(),
            State::Run,
            7,
        ),
    ] {
        world.fact("main", &joined(&frames), state, ns);
    }
    world
}

#[test]
fn glue_of_the_interpreter_is_hidden_and_what_works_is_shown() {
    assert_shows(
        world().shows(&with(NativeFrames::Auto)),
        "
        main 27 0
          shop.work 14 0
            list_sort 5 0
              list_sort_impl 5 0
                shop.Item.__lt__ 5 0
                  memmove 5 5
            PyObject_GetAttr 4 4
            shop.Item.price 3 3
            PyThread_acquire_lock_timed 2 0
              sem_wait 2 2
          main 7 0
            serve 7 0
              shop.page 7 0
                render 7 0
                  vfs_read 7 7
          start_thread 6 0
            thread_run 6 0
              _PyEval_Vector 6 0
                gc_collect_main 6 6
        ",
    );
}

#[test]
fn without_native_frames_their_time_is_the_callers() {
    assert_shows(
        world().shows(&with(NativeFrames::None)),
        "
        main 27 0
          shop.work 14 6
            shop.Item.__lt__ 5 5
            shop.Item.price 3 3
          shop.page 7 7
          start_thread 6 0
            thread_run 6 0
              _PyEval_Vector 6 0
                gc_collect_main 6 6
        ",
    );
    // The state is that of the thread.
    let projection = world().project(&with(NativeFrames::None));
    assert_eq!(projection.total.states_ns[State::Lock as usize], 2);
}

#[test]
fn the_setting_changes_no_total_and_can_be_changed_back() {
    let (mut projector, mut world) = (Projector::default(), world());
    let snapshot = world.snapshot();
    let mut shown = Vec::new();
    for native in [NativeFrames::Auto, NativeFrames::Full, NativeFrames::None, NativeFrames::Auto] {
        let settings = with(native);
        let projection = world.project_with(&mut projector, &snapshot, &settings);
        assert_eq!(projection.total.wall_ns, 27);
        shown.push(drawn(&projection, &settings));
    }
    assert_eq!(shown[0], shown[3]);
    assert!(shown[1].contains("PyObject_Vectorcall") && !shown[0].contains("PyObject_Vectorcall"));
}

#[test]
fn the_users_own_functions_are_the_rows_at_their_level() {
    for native in NativeFrames::ALL {
        let settings = Settings { level: Level::Mine, ..with(native) };
        let shown = world().shows(&settings);
        for row in ["shop.work 14", "shop.Item.__lt__ 5", "shop.Item.price 3", "shop.page 7"] {
            assert!(shown.contains(row), "{}: {shown}", native.word());
        }
        assert!(!shown.contains("Vectorcall"), "{}: {shown}", native.word());
    }
}

#[test]
fn what_the_user_calls_own_code_is_shown() {
    let mine = |pattern: &str| Whose { pattern: regex::Regex::new(pattern).unwrap(), mine: true };
    let settings = Settings { whose: vec![mine("^_PyFunction_V")], ..with(NativeFrames::Auto) };
    assert!(world().shows(&settings).contains("_PyFunction_Vectorcall 5 0"));
    let settings = Settings { whose: vec![mine("^_PyFunction_V")], ..with(NativeFrames::None) };
    assert!(!world().shows(&settings).contains("_PyFunction_Vectorcall"));
}

#[test]
fn a_dump_has_the_same_frames() {
    // Innermost first.
    let stack = "libc.so.6!memmove ~PyObject_Call @shop.b ~PyObject_GetAttr ~_PyEval_Vector ~list_sort @shop.a ~run_mod";
    for (native, expected) in [
        (NativeFrames::Auto, "memmove shop.b list_sort shop.a"),
        (NativeFrames::None, "shop.b shop.a"),
        (
            NativeFrames::Full,
            "memmove PyObject_Call shop.b PyObject_GetAttr _PyEval_Vector list_sort shop.a run_mod",
        ),
    ] {
        let of = |text: &str| -> Vec<(Location, Role)> {
            let locations = text.split(';').map(|text| location(text, false));
            locations.map(|l| (l.clone(), role(&l, Origin::Unknown))).collect()
        };
        let shown = |mut frames: Vec<(Location, Role)>| {
            remove_hidden(&mut frames, native);
            frames.iter().map(|(frame, _)| &*frame.function).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(of(&joined(stack))), expected);
        let other = "~PyObject_GetAttr ~_PyEval_Vector ~run_mod";
        let all = "PyObject_GetAttr _PyEval_Vector run_mod";
        assert_eq!(shown(of(&joined(other))), all, "without Python frames");
    }
}
