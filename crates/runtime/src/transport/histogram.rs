//! Histograms and families of the text that Prometheus reads.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Upper ends of buckets for times, in seconds.
pub(super) const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
];
/// Upper ends of buckets for bytes.
pub(super) const BYTES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11];
/// Upper ends of buckets for lengths of the line.
pub(super) const LENGTHS: &[f64] = &[0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0];

/// Counts of values by size; shared by all sessions.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above all of them.
    counts: Vec<AtomicU64>,
    /// Bits of the sum, a double.
    sum: AtomicU64,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0.0_f64.to_bits()) }
    }

    pub(super) fn observe(&self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // The closure never gives up.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// The lines of one histogram; `labels` are `name="value"` with commas between.
    pub(super) fn write(&self, out: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut sum = 0;
        for (i, count) in self.counts.iter().enumerate() {
            sum += count.load(Ordering::Relaxed);
            let le = self.bounds.get(i).map_or_else(|| "+Inf".to_owned(), ToString::to_string);
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{le}\"}} {sum}");
        }
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let total = f64::from_bits(self.sum.load(Ordering::Relaxed));
        let _ = writeln!(out, "{name}_sum{braces} {total}\n{name}_count{braces} {sum}");
    }
}

/// The two lines that begin a family.
pub(super) fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// `name="value"`, with what stands out in a value escaped.
pub(super) fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_labels_escaped() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        for value in [0.25, 0.5, 0.75, 3.0] {
            histogram.observe(value);
        }
        let mut out = String::new();
        histogram.write(&mut out, "n", &label("stage", "a\"\\\nb"));
        let l = "stage=\"a\\\"\\\\\\nb\"";
        let wanted = format!(
            "n_bucket{{{l},le=\"0.5\"}} 2\nn_bucket{{{l},le=\"1\"}} 3\nn_bucket{{{l},le=\"+Inf\"}} 4\nn_sum{{{l}}} 4.5\nn_count{{{l}}} 4\n"
        );
        assert_eq!(out, wanted);
        out.clear();
        histogram.write(&mut out, "n", "");
        assert!(out.ends_with("n_sum 4.5\nn_count 4\n") && out.starts_with("n_bucket{le=\"0.5\"} 2\n"));
    }
}
