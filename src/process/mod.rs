//! The target process: identity, mappings, memory, threads. Everything read here comes from the
//! target and is untrusted: lengths are bounded, loops capped.

pub mod cgroup;
pub mod fatal_signals;
pub mod filebytes;
pub mod files;
mod forked_child;
pub mod generations;
pub mod launch;
pub mod maps;
pub mod memory;
pub mod open;
pub mod pid_namespaces;
pub mod privileges;
pub mod process_list;
pub mod program_name;
pub mod select;
pub mod target;
pub mod threads;
pub mod waits;
