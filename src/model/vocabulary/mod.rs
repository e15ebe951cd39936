//! Words that pass between capture, the model and the view.
//!
//! Knows nothing of facts, settings or profiles.
//!
//! ```text
//! frame              frames, threads and their names
//! event              what capture observes of threads
//! blocker            what a blocked thread waits for, and who holds it
//! waits_for          what its system call is for, in words
//! peer               who has the other end of a socket or pipe
//! state              what a thread is doing, by its system call
//! role               whose code a frame is
//! anonymous          names of functions of JavaScript that have none
//! go_functions       names of Go's functions
//! goroutine_states   what goroutines do, in words of Go's runtime
//! java_launch        what a Java program runs, by its command line
//! java_packages      well-known packages
//! host_load          how busy the host is
//! labels             labels that a program gives to its work
//! qualified          the parts of a demangled name
//! thread_name_rules  what names of threads that do the same have in common
//! wakeup             who woke threads
//! text               what makes strings of a target safe to show
//! ```

pub mod anonymous;
pub mod blocker;
pub mod event;
pub mod frame;
pub mod go_functions;
pub mod goroutine_states;
pub mod host_load;
pub mod java_launch;
pub mod java_packages;
pub mod labels;
pub mod peer;
pub mod qualified;
pub mod role;
pub mod state;
pub mod text;
pub mod thread_name_rules;
pub mod waits_for;
pub mod wakeup;
