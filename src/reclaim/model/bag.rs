//! The stand-in for a bag. It keeps retired values until it is dropped.

use std::fmt::Debug;
use std::sync::Mutex;

#[derive(Debug)]
pub(crate) struct Bag(Mutex<Vec<*mut dyn Retire>>);

/// A value that can be retired.
pub(crate) trait Retire: Debug + Send + 'static {
    // The models count no bytes.
    #[allow(dead_code)]
    fn bytes(&self) -> usize;
}

impl Bag {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// # Safety
    ///
    /// The value must come from a box and must be unlinked. It must not be retired twice.
    #[allow(unsafe_code)]
    pub(super) unsafe fn retire<T: Retire>(&self, value: *mut T) {
        self.0.lock().unwrap().push(value);
    }

    pub(crate) fn bytes(&self) -> usize {
        0
    }

    pub(crate) fn tidy(&self) {}

    pub(crate) fn collect(&self) {}
}

impl Drop for Bag {
    fn drop(&mut self) {
        for value in self.0.get_mut().unwrap().drain(..) {
            // SAFETY: the caller of `retire` guarantees that the value came from a box and is
            // retired once. The threads of the model have ended.
            #[allow(unsafe_code)]
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

// SAFETY: the values are `Send` and are behind a mutex.
#[allow(unsafe_code)]
unsafe impl Send for Bag {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Bag {}
