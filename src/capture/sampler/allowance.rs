//! The CPU time that may be spent on reading what threads wait for.

use crate::model::vocabulary::frame::Ns;

/// Inverse of the maximum share of time spent on reading: 0.3 %.
const SHARE: u64 = 333;
/// Maximum CPU time that is saved up, ns.
const MAX_SAVED: i64 = 3_000_000;
/// CPU time at the start, when nothing is known of the threads yet, ns.
const AT_START: i64 = 20_000_000;
/// Maximum CPU time spent in one tick, ns.
const IN_ONE_TICK: Ns = 3_000_000;
/// Saved time that is kept for waits whose blockers are not known yet, ns.
const FOR_FIRST_READS: i64 = MAX_SAVED / 2;
/// Saved time at which reading resumes after all was used up, ns.
const AT_ONCE: i64 = 500_000;

/// The CPU time that may be spent on reading.
pub(super) struct Allowance {
    /// ns; below 0 if the last reads took longer than what was saved.
    saved: i64,
    /// All was used up. Reading resumes at [`AT_ONCE`]: threads that wait for one lock are then
    /// read together, which is several times cheaper than one in each tick.
    used_up: bool,
    /// Spent since the last refill, and maximum of that, ns.
    spent: Ns,
    limit: Ns,
    at: Ns,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance { saved: AT_START, used_up: false, spent: 0, limit: IN_ONE_TICK, at: 0 }
    }
}

impl Allowance {
    pub const UNLIMITED: Allowance =
        Allowance { saved: i64::MAX, limit: Ns::MAX, used_up: false, spent: 0, at: 0 };

    /// Adds the share of the time since the last call.
    pub fn refill(&mut self, now: Ns) {
        let earned = now.saturating_sub(self.at) / SHARE;
        let most = self.saved.max(MAX_SAVED);
        self.saved = self.saved.saturating_add_unsigned(earned).min(most);
        self.used_up &= self.saved < AT_ONCE;
        (self.spent, self.at) = (0, now);
    }

    pub fn spend(&mut self, ns: Ns) {
        self.saved = self.saved.saturating_sub_unsigned(ns);
        self.spent += ns;
        self.used_up |= self.saved <= 0;
    }

    /// Takes the CPU time of all reads since the last refill, ns: by the clock they may have taken
    /// longer, while others ran on the core.
    pub fn correct(&mut self, cpu: Ns) {
        self.saved = self.saved.saturating_add_unsigned(self.spent.saturating_sub(cpu));
        self.spent = self.spent.min(cpu);
        self.used_up &= self.saved < AT_ONCE;
    }

    pub fn allows_reading(&self) -> bool {
        !self.used_up && self.spent < self.limit
    }

    pub fn allows_reading_again(&self) -> bool {
        self.allows_reading() && self.saved >= FOR_FIRST_READS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vocabulary::frame::SECOND;

    #[test]
    fn time_that_others_had_the_core_is_not_spent() {
        let mut allowance = Allowance { saved: MAX_SAVED, ..Allowance::default() };
        allowance.spend(2 * MAX_SAVED.unsigned_abs());
        assert!(!allowance.allows_reading());
        allowance.correct(1_000);
        assert_eq!((allowance.saved, allowance.used_up), (MAX_SAVED - 1_000, false));
        allowance.spend(MAX_SAVED.unsigned_abs());
        allowance.correct(Ns::MAX);
        assert!(allowance.used_up && allowance.saved < 0, "what was spent stays so");
    }

    #[test]
    fn reading_takes_a_small_share_of_the_time() {
        let mut allowance = Allowance::default();
        allowance.refill(SECOND);
        assert_eq!(allowance.saved, AT_START, "what there is in the beginning is not more later");
        allowance.spend(IN_ONE_TICK - 1);
        assert!(allowance.allows_reading());
        allowance.spend(1);
        assert!(!allowance.allows_reading(), "enough for one tick");
        allowance.saved = MAX_SAVED;
        allowance.refill(SECOND);
        assert!(allowance.allows_reading() && allowance.saved == MAX_SAVED);
        allowance.spend(MAX_SAVED.unsigned_abs() - FOR_FIRST_READS.unsigned_abs());
        assert!(allowance.allows_reading_again());
        allowance.spend(1);
        assert!(allowance.allows_reading() && !allowance.allows_reading_again());
        allowance.spend(2 * MAX_SAVED.unsigned_abs());
        assert!(allowance.used_up);
        let mut at = SECOND;
        while !allowance.allows_reading() {
            at += SECOND / 100;
            allowance.refill(at);
        }
        // What was taken too much is saved first.
        let took = 2 * MAX_SAVED - FOR_FIRST_READS + AT_ONCE;
        assert_eq!((at - SECOND) / SHARE / 100_000, took.unsigned_abs() / 100_000);
        allowance = Allowance::UNLIMITED;
        allowance.spend(100 * SECOND);
        assert!(allowance.allows_reading_again());
    }
}
