//! Starts, connects and stops the threads; the only module that sees both sides.
