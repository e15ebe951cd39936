//! The target process: identity, mappings, memory, threads. Everything read here comes from the
//! target and is untrusted: lengths are bounded, loops capped.

pub mod blockers;
mod busy_processes;
pub mod cgroup;
pub mod code_generations;
pub mod fatal_signals;
pub mod filebytes;
mod forked_child;
pub mod host_load;
pub mod launch;
pub mod mapped_files;
pub mod maps;
pub mod memory;
pub mod pid_namespaces;
pub mod privileges;
pub mod process_list;
pub mod program_name;
pub mod select;
pub mod target;
pub mod target_files;
pub mod threads;
pub mod waits;
pub mod wakeups;
