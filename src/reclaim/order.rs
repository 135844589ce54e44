//! The orderings of a link. The real link (`link`) and the link of the models (`model`) both use
//! these, so an ordering that is weakened here is weaker in both.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

// ORDERING: acquire side of *link*.
pub(crate) const LOAD: Ordering = Acquire;

// ORDERING: release side of *link*.
pub(crate) const INSTALL: Ordering = Release;

// ORDERING: relaxed; a thread that was not first does not read the value that it found.
pub(crate) const INSTALL_LOST: Ordering = Relaxed;

// ORDERING: release side of *link*.
pub(crate) const ADVANCE: Ordering = Release;

// ORDERING: relaxed; the value that was found is not read.
pub(crate) const ADVANCE_LOST: Ordering = Relaxed;
