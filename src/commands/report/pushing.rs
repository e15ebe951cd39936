//! Reports that go to a server.

use crate::config;
use crate::formats;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Settings;
use crate::push::{self, Origin, Outcome, Pusher};

pub struct Pushing {
    pusher: Pusher,
}

impl Pushing {
    /// Starts to push. `shown`: the snapshot with names that may be shown; `redacted`: they are
    /// replaced. Fails with one sentence if it cannot work.
    pub fn start(
        push: &config::Push,
        snapshot: &Snapshot,
        shown: &Snapshot,
        redacted: bool,
    ) -> Result<Pushing, String> {
        let origin = Origin {
            service: service(shown),
            host: shown.session.host.clone(),
            folder: service(snapshot),
            redacted,
        };
        let pusher = Pusher::start(push, &origin)?;
        Ok(Pushing { pusher })
    }

    /// Queues the profiles of a report. An error is printed and the report is not pushed.
    pub fn send(&mut self, snapshot: &Snapshot, settings: &Settings) {
        match formats::pprof::intervals(snapshot, settings) {
            Ok(intervals) => {
                for of in intervals {
                    self.pusher.send(of.bytes, of.from_unix_ns, of.till_unix_ns);
                }
            }
            Err(error) => eprintln!("sampletop: cannot build the profile to push: {error}"),
        }
    }

    /// Flushes. Returns whether every profile was pushed or is stored on disk for the next run.
    pub fn end(self) -> bool {
        let Outcome { sent, waiting, dropped, lost } = self.pusher.end();
        let waits =
            if waiting > 0 { format!(", {waiting} wait for the next run") } else { String::new() };
        let gone = if dropped > 0 { format!(", {dropped} were dropped") } else { String::new() };
        eprintln!("sampletop: {sent} profiles were pushed{waits}{gone}");
        !lost
    }
}

/// Returns the default service name for a server: the target as requested (a unit, a name, the end
/// of a path), else the program.
fn service(snapshot: &Snapshot) -> String {
    let name = match snapshot.session.wanted.title.trim_end_matches('/') {
        "" => snapshot.targets.first().map_or("", formats::program),
        title => title.rsplit('/').next().unwrap_or(title),
    };
    let name = [".service", ".scope", ".slice", ".pid"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    push::service(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::fake::named;

    #[test]
    fn a_service_has_the_name_that_was_asked_for() {
        let named = |title: &str, command: &str| service(&named(title, command));
        assert_eq!(named("nginx.service", "nginx: master process"), "nginx");
        assert_eq!(named("/sys/fs/cgroup/system.slice/shop-web.scope", ""), "shop-web");
        assert_eq!(named("/run/nginx.pid", ""), "nginx");
        assert_eq!(named("^java .*shop", ""), "java-.-shop");
        assert_eq!(named("", "/usr/bin/java -jar shop.jar"), "java");
        assert_eq!(named("", ""), "sampletop");
    }
}
