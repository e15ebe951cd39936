//! Threads of a target and their counters, through descriptors that stay open.
