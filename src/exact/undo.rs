//! A step of several that is undone where the caller's code panics before the last.

/// Undoes a step when its scope ends, also by a panic of the caller's code, unless it is told that the step is done.
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
