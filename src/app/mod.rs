//! What the user did -> what is shown. Pure.
