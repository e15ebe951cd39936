//! Medians and their spread, as tables show them.

/// Returns the median, of an even number of values the mean of the middle two.
pub fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

/// Returns `median (lowest .. highest)`.
pub fn median(values: &[f64], digits: usize) -> String {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.digits$} ({lowest:.digits$} .. {highest:.digits$})", middle(values))
}

/// Returns `median, standard error of the mean (lowest .. highest)`.
pub fn with_error(values: &[f64], digits: usize) -> String {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (n - 1.0) / n).sqrt();
    median(values, digits).replacen(" (", &format!(" +- {error:.digits$} ("), 1)
}
