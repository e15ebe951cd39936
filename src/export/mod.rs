//! One file per format; depends on the model only.
