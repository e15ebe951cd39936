//! The tasks of event loops, as the dump has them.

use crate::formats::dump::tasks::{DumpTask, DumpTasks};
use crate::model::facts::tables::Location;
use crate::model::facts::tasks::{Awaited, Task, TaskName, Tasks};
use crate::model::projection::role_of;
use crate::model::projection::settings::Settings;
use crate::model::transform::redact::Redactor;
use crate::model::vocabulary::role::{Origin, Role};

/// Returns the tasks with whose code their frames are, without the program's names if there is a
/// redactor.
pub fn of_processes(
    found: Vec<Tasks>,
    settings: &Settings,
    mut redactor: Option<Redactor>,
) -> Vec<DumpTasks> {
    let mut all: Vec<DumpTasks> = found
        .into_iter()
        .filter(|of_process| of_process.found > 0 || of_process.is_incomplete)
        .map(|Tasks { pid, tasks, found, unreadable, is_incomplete }| {
            let tasks = tasks.into_iter().map(|task| {
                let task = match &mut redactor {
                    Some(redactor) => redacted(redactor, task),
                    None => task,
                };
                let role = |frame: &Location| -> Role { role_of(settings, frame, Origin::Unknown) };
                let roles = task.frames.iter().map(role).collect();
                DumpTask { task, roles }
            });
            DumpTasks { pid, tasks: tasks.collect(), found, unreadable, is_incomplete }
        })
        .collect();
    all.sort_by_key(|of_process| of_process.pid);
    all
}

fn redacted(redactor: &mut Redactor, task: Task) -> Task {
    let frames =
        task.frames.iter().map(|frame| redactor.location(frame, Origin::Unknown)).collect();
    let name = |TaskName { id, name }: TaskName| TaskName { id, name: redactor.task(&name).into() };
    Task {
        name: redactor.task(&task.name).into(),
        frames,
        awaits: task.awaits.map(|awaits| match awaits {
            Awaited::Task(task) => Awaited::Task(name(task)),
            Awaited::Object(class) => Awaited::Object(redactor.awaited(&class).into()),
        }),
        awaited_by: task.awaited_by.into_iter().map(name).collect(),
        ..task
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::tables::FrameKind;
    use crate::model::transform::redact::Key;

    #[test]
    fn no_name_of_the_program_is_left() {
        let name = |name: &str| TaskName { id: 7, name: name.into() };
        let task = |awaits| Task {
            id: 9,
            tid: Some(3),
            name: "acme".into(),
            runs: false,
            frames: vec![Location::named("acme.pay", FrameKind::Python)],
            awaits: Some(awaits),
            awaited_by: vec![name("acme-2"), name("Task-4")],
            has_more_waiters: false,
        };
        let tasks = vec![
            task(Awaited::Task(name("acme-3"))),
            task(Awaited::Object("AcmeFuture".into())),
            task(Awaited::Object("_asyncio.Future".into())),
        ];
        let found = |pid| Tasks { pid, tasks: tasks.clone(), found: 3, ..Tasks::default() };
        let redactor = Redactor::new(Key([1, 2]));
        let settings = Settings::default();
        let all = of_processes(vec![found(5), found(2)], &settings, Some(redactor));
        assert_eq!([all[0].pid, all[1].pid], [2, 5]);
        let text = format!("{all:?}").to_lowercase();
        assert!(!text.contains("acme") && text.contains("task-4"), "{text}");
        assert!(text.contains("_asyncio.future"), "{text}");
        assert!(of_processes(vec![Tasks::default()], &settings, None).is_empty());
        let plain = of_processes(vec![found(5)], &settings, None);
        assert_eq!(plain[0].tasks[0].task, tasks[0]);
        assert_eq!(plain[0].tasks[0].roles.len(), 1);
    }
}
