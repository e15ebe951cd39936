//! From events to facts: hand-computed examples of every sentence of "Weighing", then properties
//! over a small simulated machine with known truth.

mod facts {
    pub mod cpu;
    pub mod examples;
    pub mod history;
    pub mod on_core;
    pub mod properties;
    pub mod simulator;
    pub mod spans;
    pub mod support;
    pub mod tick_intervals;
    pub mod unsampled;
}
