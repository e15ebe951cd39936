//! One file per way of taking a stack; the schedule; the ring.

pub mod ring;
