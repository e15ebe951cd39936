//! The built-in workload with known answers.
