//! Stands in for `pushing` in a build without the feature `push`: nothing is ever pushed.

use crate::config;
use crate::model::facts::snapshot::Snapshot;
use crate::model::projection::settings::Settings;

pub enum Pushing {}

impl Pushing {
    /// Fails. The command line of this build has no option that leads here.
    pub fn start(_: &config::Push, _: &Snapshot, _: &Snapshot, _: bool) -> Result<Pushing, String> {
        Err("this sampletop was built without `--push`; build it with the feature `push`".into())
    }

    pub fn send(&mut self, _: &Snapshot, _: &Settings) {
        match *self {}
    }

    pub fn end(self) -> bool {
        match self {}
    }
}
