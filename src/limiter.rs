//! The limiters: each is a rule, a clock, and the state of many keys or of one resource.

mod builder;
mod chargeable;
mod class_builder;
mod classes;
mod construction;
mod exact_keys;
mod fingerprints;
mod forced;
mod hash;
mod in_flight;
mod key_state;
mod keyed;
mod look;
mod method;
mod permit;
mod pinned;
mod pinned_at;
mod quotas;
mod refunds;
mod reservation;
mod reservations;
mod resets;
mod single;
mod store;
#[cfg(not(tollgate_loom))]
mod sweeper;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod together;
mod upkeep;

pub use builder::Builder;
pub use chargeable::{Chargeable, KeyLimiter};
pub use class_builder::{ClassBuilder, ClassSettings};
pub use classes::{Class, ClassLimiter};
pub use exact_keys::ExactKeys;
pub use fingerprints::Fingerprints;
pub use hash::{FoldHash, KeyHash, SipHash};
pub use in_flight::{BorrowedPermit, InFlight, InFlightBuilder, OwnedPermit};
pub use key_state::{KeyState, Keys};
pub use keyed::Limiter;
pub use look::Look;
pub use permit::Permit;
pub use pinned::Pinned;
pub use pinned_at::PinnedAt;
pub use reservation::{Reservation, Settlement};
pub use reservations::{Reservations, reserve_all};
pub use single::SingleLimiter;
pub use store::{Accepts, Store, ToKey};
#[cfg(not(tollgate_loom))]
pub use sweeper::{Sweepable, Sweeper};
pub use together::{Charge, DeniedBy, check_all};
