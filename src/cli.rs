//! The command line -> [`crate::config::Config`].
