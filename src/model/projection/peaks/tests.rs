use super::*;
use crate::model::vocabulary::frame::SECOND;

/// Buckets of this width, seconds, with these busy threads, after those that there are.
fn add(places: &mut Vec<Place>, width: u64, busy: &[f64]) {
    for busy in busy {
        let from = places.last().map_or(0, |last| last.till);
        places.push(Place { from, till: from + width * SECOND, figures: [*busy, 0.0] });
    }
}

/// Returns all that stand out, and checks that both directions find the same.
fn all(places: &[Place]) -> Vec<usize> {
    let mut peaks = Peaks::new(places.to_vec());
    let mut found: Vec<usize> = Vec::new();
    while let Some(at) = peaks.next(found.last().map_or(0, |last| last + 1)) {
        found.push(at);
    }
    let mut peaks = Peaks::new(places.to_vec());
    let mut end = places.len();
    for at in found.iter().rev() {
        assert_eq!(peaks.previous(end), Some(*at));
        end = *at;
    }
    assert_eq!(peaks.previous(end), None);
    found
}

fn of(seconds: &[f64]) -> Vec<usize> {
    let mut places = Vec::new();
    add(&mut places, 1, seconds);
    all(&places)
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
    // Also from within the row.
    let mut places = Vec::new();
    add(&mut places, 1, &seconds);
    let mut peaks = Peaks::new(places);
    assert_eq!(
        (peaks.previous(23), peaks.previous(21), peaks.previous(20)),
        (Some(21), None, None)
    );
    assert_eq!((peaks.next(20), peaks.next(21), peaks.next(22)), (Some(21), Some(21), Some(25)));
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
fn a_second_may_stand_out_in_either_figure() {
    let mut places = Vec::new();
    add(&mut places, 1, &[2.0; 90]);
    places.iter_mut().for_each(|place| place.figures[1] = 10e6);
    places[10].figures = [5.0, 20e6];
    places[60].figures = [2.0, 300e6];
    assert_eq!(all(&places), [10, 60]);
}

/// An outlier of the noise is not gone to, and a hiccup beside a larger one is.
#[test]
fn a_weak_peak_near_one_that_is_twice_as_high_is_none() {
    let mut seconds = [0.0; 400];
    (seconds[250], seconds[369], seconds[371]) = (0.5, 0.24, 0.24);
    assert_eq!(of(&seconds), [250, 371], "two minutes away it counts");
    seconds[250] = 0.47;
    assert_eq!(of(&seconds), [250, 369, 371], "not twice as high");
    (seconds[250], seconds[369]) = (30.0, 0.3);
    assert_eq!(of(&seconds), [250, 369, 371], "not weak");
    seconds[300] = 0.29;
    assert_eq!(of(&seconds), [250, 369, 371]);
}

#[test]
fn buckets_are_compared_at_their_own_width() {
    // Seconds are between 0 and 2, but ten of them are 1 on average.
    let noisy = |n: usize| [0.0, 1.0, 2.0, 0.5, 1.5].repeat(n / 5);
    let mut places = Vec::new();
    add(&mut places, 60, &[1.0; 100]);
    add(&mut places, 10, &[1.0; 100]);
    add(&mut places, 1, &noisy(600));
    assert!(all(&places).is_empty());
    // A minute, ten seconds, and a second, also beside other widths.
    for high in [0, 50, 99, 100, 101, 198, 199] {
        let mut places = places.clone();
        places[high].figures[0] = 1.3;
        assert_eq!(all(&places), [high]);
        places[high].figures = [1.0, 200e6];
        assert_eq!(all(&places), [high]);
    }
    for second in [200, 500, 799] {
        let mut places = places.clone();
        places[second].figures[0] = 9.0;
        assert_eq!(all(&places), [second]);
    }
    // The only ten seconds that were merged so far are compared with the seconds after them.
    let mut young = Vec::new();
    add(&mut young, 10, &[1.3]);
    add(&mut young, 1, &noisy(600));
    assert_eq!(all(&young), [0]);
    young[0].figures[0] = 1.1;
    assert!(all(&young).is_empty());
    // Of waits, the longest of ten seconds counts.
    young[0].figures[1] = 60e6;
    assert_eq!(all(&young), [0]);
    young.iter_mut().skip(5).step_by(10).for_each(|second| second.figures[1] = 60e6);
    assert!(!all(&young).contains(&0));
}

#[test]
fn time_without_observations_does_not_stand_out_and_hides_nothing() {
    let mut places = Vec::new();
    add(&mut places, 1, &[1.0; 30]);
    add(&mut places, 5_000, &[40.0]);
    add(&mut places, 1, &[1.0; 30]);
    assert!(all(&places).is_empty());
    places[20].figures[0] = 3.0;
    places[40].figures[0] = 2.0;
    assert_eq!(all(&places), [20, 40]);
}
