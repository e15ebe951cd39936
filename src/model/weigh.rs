//! Looks -> booked time.
