//! The orderings of a link, defined once. The real link (`link`) and the one of the models
//! (`model`) use these, so a weaker one here is weaker in both.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

// ORDERING: acquire side of *link*.
pub(crate) const LOAD: Ordering = Acquire;

// ORDERING: release side of *link*.
pub(crate) const INSTALL: Ordering = Release;

// ORDERING: relaxed; the thread that was not first does not read the value it found.
pub(crate) const INSTALL_LOST: Ordering = Relaxed;

// ORDERING: release side of *link*.
pub(crate) const ADVANCE: Ordering = Release;

// ORDERING: relaxed; the value found is not read.
pub(crate) const ADVANCE_LOST: Ordering = Relaxed;
