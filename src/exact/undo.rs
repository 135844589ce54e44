//! A guard that undoes a step if the caller's code panics before the next step.

/// Calls `F` when dropped, unless [`done`](Self::done) was called. A panic in the caller's code
/// also drops this value.
pub(super) struct Undo<F: Fn()>(F);

impl<F: Fn()> Undo<F> {
    pub(super) fn unless_done(undo: F) -> Self {
        Self(undo)
    }

    pub(super) fn done(self) {
        std::mem::forget(self);
    }
}

impl<F: Fn()> Drop for Undo<F> {
    fn drop(&mut self) {
        self.0();
    }
}
