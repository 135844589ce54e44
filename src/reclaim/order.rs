//! The orderings of a link, said once: the real one (`link`) and the one of the models (`model`) use these,
//! so a weaker one here is weaker in both.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

// ORDERING: acquire side of *link*.
pub(crate) const LOAD: Ordering = Acquire;

// ORDERING: release side of *link*.
pub(crate) const INSTALL: Ordering = Release;

// ORDERING: relaxed; whoever was not first does not look at what is there.
pub(crate) const INSTALL_LOST: Ordering = Relaxed;

// ORDERING: release side of *link*.
pub(crate) const ADVANCE: Ordering = Release;

// ORDERING: relaxed; a failure is not looked at.
pub(crate) const ADVANCE_LOST: Ordering = Relaxed;
