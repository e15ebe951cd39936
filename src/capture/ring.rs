//! Events as words in a lock-free ring.
