//! The permits in flight of one request.

use smallvec::SmallVec;
use std::fmt;
use tollgate::Chargeable;

/// A permit from a process-local limit. It is charged together with the other limits.
pub(crate) type LocalPermit = Box<dyn Chargeable + Send + Sync>;

/// A permit from one limit, which is released when dropped.
pub(crate) type HeldPermit = Box<dyn Send + Sync>;

/// The permits of an admitted request, which are released when this value is dropped. The type is
/// only as large as a pointer, because most requests have no permits.
#[derive(Default)]
pub(crate) struct Permits(Option<Box<SmallVec<[HeldPermit; 1]>>>);

impl Permits {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Extend<HeldPermit> for Permits {
    fn extend<I: IntoIterator<Item = HeldPermit>>(&mut self, permits: I) {
        for permit in permits {
            self.0.get_or_insert_default().push(permit);
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permits").field(&self.0.as_ref().map_or(0, |it| it.len())).finish()
    }
}
