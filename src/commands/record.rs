//! `sampletop record`, and `demo --once`: one profile of a duration, or until the target exits.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use super::lost;
use super::output::Output;
use super::wakers::{count_wakeups, wakeups};
use crate::config::{Config, TargetSpec};
use crate::exit_code::{ExitCode, Failure};
use crate::model::facts::snapshot::Snapshot;
use crate::model::vocabulary::text::clean;
use crate::session::source::{Progress, Source, Waited, check_observed};
use crate::session::{last_session, timed};

/// Interval between two updates of the progress line.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// Keeps a profile that could not be written to its destination.
type Keep<'a> = &'a dyn Fn(&Snapshot) -> Result<(), String>;

pub fn run(
    config: &Config,
    output: &Output,
    duration: Option<Duration>,
) -> Result<ExitCode, Failure> {
    // Before sampling, so that a read-only directory is reported now and not after ten minutes.
    output.probe()?;
    let keep = |snapshot: &_| last_session::keep(snapshot, &config.settings);
    let keep: Option<Keep<'_>> = (!config.output.secure).then_some(&keep);
    timed::watch(config, |source| record(source, config, output, duration, keep))
}

/// Does the same for the built-in workload, of which nothing is kept.
pub fn demo(config: &Config, output: &Output, duration: Duration) -> Result<ExitCode, Failure> {
    output.probe()?;
    timed::watch(config, |source| record(source, config, output, Some(duration), None))
}

/// Records until `duration` has passed since the first observation (`None`: until the target
/// exits), and writes the profile.
fn record(
    source: &mut dyn Source,
    config: &Config,
    output: &Output,
    duration: Option<Duration>,
    keep: Option<Keep<'_>>,
) -> Result<ExitCode, Failure> {
    let to_person = output.path().is_some() && std::io::stderr().is_terminal();
    // A COMMAND uses the terminal itself.
    let show_progress = to_person && !matches!(config.target, Some(TargetSpec::Command(_)));
    if let Some(time) = config.sampling.wakers {
        count_wakeups(source, time)?;
    }
    loop {
        let left = duration.map(|d| d.saturating_sub(source.elapsed()));
        if left == Some(Duration::ZERO) {
            break;
        }
        match source.wait(left.unwrap_or(Duration::MAX).min(PROGRESS_EVERY)) {
            Waited::Timeout | Waited::Asked(_) => {}
            Waited::Ended | Waited::Interrupted => break,
        }
        if show_progress {
            progress_line(source.progress(), source.elapsed(), duration);
        }
    }
    if show_progress {
        eprint!("\r\x1b[K");
    }
    let elapsed = source.elapsed();
    let wakeups = wakeups(source)?;
    let snapshot = source.finish().ok_or_else(|| lost("recording"))?;
    check_observed(&snapshot)?;
    let snapshot = match wakeups {
        None => snapshot,
        wakeups => Arc::new(Snapshot { wakeups, ..Snapshot::clone(&snapshot) }),
    };
    if let Err(mut failure) = output.write_profile(&snapshot, &config.settings) {
        // A full or broken disk must not lose what took hours to record.
        let kept = match keep.map(|keep| keep(&output.redacted(&snapshot))) {
            Some(Ok(())) => {
                "; the profile is kept as the last session: `sampletop open -o FILE` writes it"
                    .into()
            }
            Some(Err(sentence)) => {
                format!("; and it could not be kept as the last session: {sentence}")
            }
            None => String::new(),
        };
        failure.sentence.push_str(&kept);
        return Err(failure);
    }
    if let (true, Some(path)) = (to_person, output.path()) {
        let (losses, elapsed) = (&snapshot.health.losses, elapsed.as_secs_f64());
        let path = path.to_string_lossy();
        let path = clean(&path, 200);
        eprintln!("{path}: {elapsed:.1} s, {} stacks, {} lost", losses.samples, losses.dropped);
    }
    Ok(ExitCode::Success)
}

fn progress_line(progress: Progress, elapsed: Duration, duration: Option<Duration>) {
    let mut err = std::io::stderr().lock();
    let seconds = elapsed.as_secs();
    let _ = match duration {
        Some(total) => {
            let share = (elapsed.as_secs_f64() / total.as_secs_f64()).min(1.0);
            let filled = (share * 20.0) as usize;
            write!(
                err,
                "\r\x1b[K[{}{}] {} s left  {} stacks  {} lost",
                "#".repeat(filled),
                ".".repeat(20 - filled),
                total.saturating_sub(elapsed).as_secs_f64().ceil(),
                progress.samples,
                progress.dropped
            )
        }
        None => {
            write!(
                err,
                "\r\x1b[K{seconds} s  {} stacks  {} lost  (Ctrl-C ends)",
                progress.samples, progress.dropped
            )
        }
    };
    let _ = err.flush();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::fake::{Fake, config};
    use crate::config::Mode;

    #[test]
    fn a_recording_lasts_as_requested_by_the_clock_of_the_target() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("p.json");
        let duration = Some(Duration::from_secs(90));
        let config = config(Mode::Record { duration }, &file);
        let output = Output::new(&config.output);
        // The test takes no real seconds.
        let code = record(&mut Fake::new([]), &config, &output, duration, None);
        assert_eq!(code, Ok(ExitCode::Success));
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).expect("readable")).expect("json");
        assert_eq!(json["elapsed_ms"], 90_000.0);
        assert_eq!(json["groups"][0]["wall_ms"], 90_000.0);
    }

    #[test]
    fn wakeups_are_counted_for_their_own_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("p.json");
        let duration = Some(Duration::from_secs(90));
        let mut config = config(Mode::Record { duration }, &file);
        config.sampling.wakers = Some(Duration::from_secs(10));
        let output = Output::new(&config.output);
        let code = record(&mut Fake::new([]), &config, &output, duration, None);
        assert_eq!(code, Ok(ExitCode::Success));
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).expect("readable")).expect("json");
        let wakers = &json["wakers"];
        assert_eq!((&wakers["duration_ms"], &wakers["counted"]), (&10_000.0.into(), &7.into()));
        let by = &wakers["threads"][0]["by"][0];
        assert_eq!(
            (&by["name"], &by["call"], &by["count"]),
            (&"redis".into(), &"send".into(), &7.into())
        );
    }

    #[test]
    fn a_profile_that_cannot_be_written_is_kept() {
        let config = config(Mode::Record { duration: None }, std::path::Path::new("/dev/full"));
        let output = Output::new(&config.output);
        let kept = std::cell::Cell::new(0);
        let keep = |_: &Snapshot| {
            kept.set(kept.get() + 1);
            Ok(())
        };
        let second = Some(Duration::from_secs(1));
        let failure = record(&mut Fake::new([]), &config, &output, second, Some(&keep))
            .expect_err("the disk is full");
        assert_eq!((failure.code, kept.get()), (ExitCode::Failed, 1));
        assert!(failure.sentence.contains("/dev/full"), "{}", failure.sentence);
        assert!(failure.sentence.ends_with("`sampletop open -o FILE` writes it"));
    }
}
