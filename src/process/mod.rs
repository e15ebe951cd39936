//! The target process: identity, mappings, memory, threads. Everything read here comes from the
//! target and is untrusted: lengths are bounded, loops capped.

pub mod cgroup;
pub mod fatal;
pub mod filebytes;
pub mod files;
pub mod generations;
mod held;
pub mod ids;
pub mod launch;
pub mod list;
pub mod maps;
pub mod memory;
pub mod open;
pub mod privileges;
pub mod program;
pub mod select;
pub mod target;
pub mod threads;
pub mod waits;
