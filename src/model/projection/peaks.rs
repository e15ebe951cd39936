//! Which seconds stand out from those around them.

/// Seconds before and after a second that it is compared with.
const AROUND: usize = 60;
/// Minimum distance from the median, in median absolute deviations. Of normal noise, which has a
/// standard deviation of 1.48 of them, 1 second in 20,000 is that far above.
const DEVIATIONS: f64 = 6.0;

/// A figure of each second, and from which size on it may stand out.
pub(super) struct Series<'a> {
    pub of_seconds: &'a [f64],
    /// Minimum distance from the median.
    pub least: f64,
    /// The same, as a part of the median.
    pub least_part: f64,
}

impl Series<'_> {
    /// Returns by how much each second is above what is usual around it, as a multiple of what
    /// stands out: from 1 on it does.
    fn excess(&self) -> Vec<f64> {
        let all = self.of_seconds;
        let mut around = Vec::new();
        let excess = |at: usize| {
            around.clear();
            around.extend(&all[at.saturating_sub(AROUND)..(at + AROUND + 1).min(all.len())]);
            let usual = median(&mut around);
            around.iter_mut().for_each(|value| *value = (*value - usual).abs());
            let noise = median(&mut around);
            let least = self.least.max(self.least_part * usual).max(DEVIATIONS * noise);
            (all[at] - usual) / least
        };
        (0..all.len()).map(excess).collect()
    }
}

/// Returns the seconds that stand out in one of the series, as indexes in order. Of seconds in a
/// row that do, the one that does most.
pub(super) fn peaks(series: &[Series<'_>]) -> Vec<usize> {
    let mut highest: Vec<f64> = Vec::new();
    for excess in series.iter().map(Series::excess) {
        highest.resize(excess.len(), 0.0);
        for (highest, excess) in highest.iter_mut().zip(excess) {
            *highest = highest.max(excess);
        }
    }
    let mut peaks = Vec::new();
    let mut before = false;
    for (at, excess) in highest.iter().enumerate() {
        let stands_out = *excess >= 1.0;
        match peaks.last_mut() {
            Some(last) if stands_out && before && *excess > highest[*last] => *last = at,
            _ if stands_out && !before => peaks.push(at),
            _ => {}
        }
        before = stands_out;
    }
    peaks
}

/// Returns the median; the lower one of two. 0 without values. Changes their order.
fn median(values: &mut [f64]) -> f64 {
    let Some(middle) = values.len().checked_sub(1).map(|last| last / 2) else { return 0.0 };
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(of_seconds: &[f64]) -> Vec<usize> {
        peaks(&[Series { of_seconds, least: 0.15, least_part: 0.1 }])
    }

    #[test]
    fn a_second_above_the_others_is_a_peak() {
        let mut seconds = [0.0; 300];
        assert!(of(&seconds).is_empty());
        seconds[120] = 0.2;
        assert_eq!(of(&seconds), [120]);
        seconds[7] = 0.149;
        assert_eq!(of(&seconds), [120], "too small");
        seconds[299] = 0.15;
        assert_eq!(of(&seconds), [120, 299]);
        assert!(of(&[]).is_empty() && of(&[3.0]).is_empty());
    }

    #[test]
    fn of_seconds_in_a_row_the_highest_is_the_peak() {
        let mut seconds = [1.0; 100];
        seconds[20..24].copy_from_slice(&[2.0, 4.0, 4.0, 3.0]);
        seconds[25] = 9.0;
        assert_eq!(of(&seconds), [21, 25]);
    }

    #[test]
    fn usual_noise_has_no_peaks() {
        // Between 4.7 and 5.3, with a median deviation of 0.1 to 0.2.
        let mut seconds: Vec<f64> =
            (0..200).map(|n| 5.0 + f64::from((n * 37) % 13 - 6) / 20.0).collect();
        assert!(of(&seconds).is_empty());
        seconds[150] = 6.5;
        assert_eq!(of(&seconds), [150]);
        // Far above a small part of the median, but not above the noise.
        seconds[150] = 5.6;
        assert!(of(&seconds).is_empty());
    }

    #[test]
    fn a_new_level_is_one_peak_at_most_and_peaks_of_it_are_found() {
        let mut seconds = [vec![1.0; 300], vec![20.0; 300]].concat();
        assert!(of(&seconds).len() <= 1, "{:?}", of(&seconds));
        (seconds[100], seconds[500]) = (2.0, 26.0);
        let found = of(&seconds);
        assert!(found.contains(&100) && found.contains(&500), "{found:?}");
    }

    #[test]
    fn a_second_may_stand_out_in_either_series() {
        let (mut busy, mut waits) = ([2.0; 90], [0.01; 90]);
        (busy[10], waits[10], waits[60]) = (5.0, 0.2, 0.3);
        let series = |of_seconds| Series { of_seconds, least: 0.15, least_part: 0.1 };
        assert_eq!(peaks(&[series(&busy), series(&waits)]), [10, 60]);
    }
}
