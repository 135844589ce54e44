//! The orderings of a link. Both the real link (`link`) and the models' link (`model`) use these
//! constants. Weakening an ordering here therefore weakens it in both links.

use crate::sync::Ordering::{self, Acquire, Relaxed, Release};

// ORDERING: acquire side of *link*.
pub(crate) const LOAD: Ordering = Acquire;

// ORDERING: release side of *link*.
pub(crate) const INSTALL: Ordering = Release;

// ORDERING: relaxed, because a failed exchange does not read the value that it found.
pub(crate) const INSTALL_LOST: Ordering = Relaxed;

// ORDERING: release side of *link*.
pub(crate) const ADVANCE: Ordering = Release;

// ORDERING: relaxed, because a failed exchange does not read the value that it found.
pub(crate) const ADVANCE_LOST: Ordering = Relaxed;
