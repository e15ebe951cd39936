//! Starts, connects and stops the threads; the only module that sees both the sampler and the
//! views.
//!
//! ```text
//! watch         what is watched: targets, sampler, reducer, symbols, our own child
//! choosing      which processes: those that exist, and those that appear
//! live          the live view's loop: keys, signals, snapshots -> app -> tui, and the effects back
//! timed         a run without a screen, behind the interface in `source`
//! waiting       finds out what threads wait for, on its own thread
//! process_lists reads the tasks of event loops, and goroutines, each on its own thread
//! looking_up    asks that in a timed run, and keeps the answers
//! waking        who wakes threads, counted on its own thread for some seconds
//! code_reader   reads source and instructions for the live view, each on its own thread
//! source_files  finds source files
//! projecting    figures of long histories, on their own thread
//! memory        returns freed memory to the kernel
//! last_session  keeps the profile of the last session
//! signals       SIGINT, SIGTERM, SIGHUP as messages
//! service       status messages to systemd
//! ```

mod choosing;
mod code_reader;
pub mod last_session;
pub mod live;
mod looking_up;
mod memory;
mod process_lists;
mod projecting;
mod service;
mod signals;
pub mod source;
mod source_files;
pub mod timed;
mod waiting;
mod waking;
mod watch;
