//! The ticks that are made where each is expensive: with the default bound on the overhead, and
//! without one.

use std::path::Path;
use std::time::Duration;

use sampletop::clock;
use serde_json::Value;

use crate::common::arguments::Program;
use crate::common::watcher::{Recording, Usage};

/// From the start on; the bound takes effect in its first seconds.
const FIRST_HALF: Duration = Duration::from_secs(10);
const SECOND_HALF: Duration = Duration::from_secs(10);

pub fn print_head() {
    println!(
        "| target | watcher | ticks in s | ticks a second | late | own CPU, second half | with the start | interval at the end |"
    );
    println!("|---|---|---|---|---|---|---|---|");
}

/// Records for the two halves, twice, and prints what the profile says of its ticks.
pub fn print(title: &str, pid: u32, backend: &str, program: &Program, scratch: &Path) {
    // An interval that is asked for is kept, whatever it costs.
    for (bound, options) in [("bound 3 %", &[][..]), ("no bound", &["-i", "10ms"][..])] {
        let options = [&["--capture", backend], options].concat();
        let out = scratch.join("out.json");
        let recording = Recording::start(program, pid, &options, &out);
        std::thread::sleep(FIRST_HALF);
        let usage = Usage::of(recording.pid(), SECOND_HALF);
        let used = clock::cpu_of_process(recording.pid()).expect("it runs") as f64;
        recording.finish();
        let json = std::fs::read(&out).expect("the profile");
        let json: Value = serde_json::from_slice(&json).expect("json");
        let number = |value: &Value| value.as_f64().expect("a number");
        let (health, seconds) = (&json["health"], number(&json["elapsed_ms"]) / 1e3);
        let ticks = number(&health["ticks"]);
        println!(
            "| {title} | `{backend}`, {bound}{} | {ticks} in {seconds:.1} | {:.1} | {} | {:.2} % | {:.2} % | {:.1} ms |",
            program.label,
            ticks / seconds,
            health["late"],
            usage.of_all().percent,
            used / 1e9 / (FIRST_HALF + SECOND_HALF).as_secs_f64() * 100.0,
            number(&json["interval_achieved_ms"])
        );
    }
}
