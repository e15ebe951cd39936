//! The list of processes to pick from.

use super::*;

#[test]
fn processes_to_pick_from() {
    let row =
        |pid, parent, user: &str, command: &str, threads, cpu, runtime, memory, place: &str| {
            ProcessRow {
                pid,
                start: 1,
                parent,
                user: user.into(),
                command: command.into(),
                threads,
                cpu_percent: cpu,
                memory,
                runtime,
                place: place.into(),
            }
        };
    let (shop, docker) = ("shopd.service", "docker:1a2b3c4d5e6f");
    let rows = vec![
        row(1, 0, "root", "/sbin/init", 1, Some(0.0), "native", 12 << 20, "init.scope"),
        row(
            4321,
            1,
            "shop",
            "/srv/shop/bin/shopd --port 8080",
            58,
            Some(372.4),
            "native",
            1_300 << 20,
            shop,
        ),
        row(
            4400,
            4321,
            "shop",
            "/srv/shop/bin/worker --queue mail",
            4,
            Some(3.1),
            "native",
            80 << 20,
            shop,
        ),
        row(
            977,
            1,
            "a-long-user-name",
            "java -jar warehouse.jar",
            214,
            Some(12.5),
            "jvm",
            9 << 30,
            docker,
        ),
        row(31, 1, "root", "python3 -m http.server", 2, None, "python", 900 << 10, ""),
    ];
    for (width, height) in [(40, 10), (120, 40), (200, 60)] {
        let mut live = Live::new(width, height, AppConfig { pick: true, ..AppConfig::default() });
        live.send(Input::Processes(rows.clone()));
        live.press("<down> <up><up><right>");
        golden(&format!("picker-{width}x{height}.txt"), &live.screen());
        live.press("<c-t>mail");
        golden(&format!("picker-tree-{width}x{height}.txt"), &live.screen());
    }
    let mut live = Live::new(80, 24, AppConfig { pick: true, ..AppConfig::default() });
    assert!(live.screen().contains("reading the list"));
    live.send(Input::Processes(rows));
    live.app.set_time(Duration::from_millis(299));
    assert!(
        live.press("<enter>").screen().contains("the list has just changed"),
        "{}",
        live.screen()
    );
    golden("picker-80x24.txt", &live.press("<down>").screen());
    assert!(live.selected().contains("warehouse"));
    golden("picker-filter-80x24.txt", &live.press("/Srv<enter>").screen());
    assert!(live.effects.is_empty(), "nothing matches: {:?}", live.effects);
    live.press("<bs><bs><bs>srv");
    assert!(live.selected().contains("/srv/shop"), "{}", live.screen());
    live.press("<esc>q?h<enter>");
    assert!(
        live.effects.is_empty() && live.screen().contains("no process matches"),
        "letters are text"
    );
    live.press("<esc><esc><down>");
    assert!(live.selected().contains("warehouse"), "Esc clears the filter, and quits nothing");
    live.press("<enter>");
    assert!(
        matches!(&live.effects[..], [Effect::Attach(pids)] if pids == &[977]),
        "{:?}",
        live.effects
    );
    assert!(live.screen().contains("attaching"));
    live.send(Input::AttachFailed("not permitted to profile process 977".into()));
    assert!(live.screen().contains("not permitted"), "{}", live.screen());
}

#[test]
fn escape_leads_back_to_the_list_of_processes_and_asks() {
    let row = |pid| ProcessRow { pid, command: "shop".into(), ..ProcessRow::default() };
    let mut live = Live::new(80, 24, AppConfig { pick: true, ..AppConfig::default() });
    live.send(Input::Processes(vec![row(7), row(8)]));
    live.press("<down><enter>");
    live.send(Input::Snapshot(shop()));
    live.press("m/receive<enter>,");
    live.effects.clear();
    // The time cursor, the search, then the session.
    live.press("<esc><esc>");
    assert!(!live.screen().contains("End this session"), "{}", live.screen());
    live.press("<esc>");
    assert!(
        live.screen().contains("End this session, and go back to the list of processes? (y/n)")
    );
    // What a split arrow key leaves does nothing.
    live.press("[A");
    assert!(live.screen().contains("End this session"), "{}", live.screen());
    live.press("<esc>");
    assert!(live.screen().contains("Handler::handle"), "{}", live.screen());
    live.press("<esc>y");
    assert!(matches!(live.effects.last(), Some(Effect::Detach)), "{:?}", live.effects);
    live.send(Input::Detached);
    live.send(Input::Processes(vec![row(8), row(9)]));
    assert!(live.screen().contains("pick a process"), "{}", live.screen());
    live.press("<down><enter>");
    assert!(live.screen().contains("attaching") && live.screen().contains("Tab view"));
    // A session with a target of its own has no list.
    let mut live = Live::shop(80, 24);
    assert!(live.press("<esc>").screen().contains("checkout"));
    assert!(!live.screen().contains("End this session"));
}
