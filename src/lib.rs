//! sampletop: `top` for call stacks.
//!
//! ```text
//! target --> capture --> unwinder, --> ring --> reducer --> Snapshot --> app --> tui
//!          registers,    runtimes    lock-free  names,      immutable,   keys ->   draws
//!          stack bytes,  (no names   words,     facts,      published    state ->
//!          run counters  yet)        never      buckets     <= 10 Hz     projection
//!                                    blocks                     '--> export (files)
//! ```
//!
//! Six rules everything here keeps:
//!
//! 1. Never stop a blocked thread.
//! 2. Only what ran is read again.
//! 3. Weigh by measured time, never by counting ticks.
//! 4. Facts below, projections above.
//! 5. Losses are data.
//! 6. The target is hostile input.
//!
//! Dependencies between modules point downward only; `tests/architecture.rs` checks them and
//! ARCHITECTURE.md draws them.

#![deny(unsafe_code)]

pub mod app;
pub mod capture;
pub mod cli;
#[expect(unsafe_code, reason = "reads clocks that rustix does not know")]
pub mod clock;
pub mod commands;
pub mod config;
pub mod config_file;
pub mod demo;
pub mod doctor;
pub mod elf;
pub mod exit_code;
pub mod formats;
pub mod model;
pub mod pclntab;
pub mod process;
#[cfg(feature = "push")]
pub mod push;
pub mod reducer;
pub mod runtimes;
pub mod session;
pub mod sinks;
#[cfg(test)]
#[path = "../tests/common/skip.rs"]
mod skip;
pub mod symbols;
pub mod tui;
pub mod unwinder;
