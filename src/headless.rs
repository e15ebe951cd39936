//! Timed runs without a screen: record, dump.
