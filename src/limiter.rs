//! The limiters. Each limiter consists of a rule, a clock, and a state for each key or for one
//! resource.
//!
//! | subject | module |
//! |---|---|
//! | the settings of a limiter | `build` |
//! | checks, quotas and upkeep for many keys; classes; times passed by the caller | `keyed` |
//! | the limiter for one resource | `single` |
//! | the key stores, and their interface | `store` |
//! | reservations and permits | `held` |
//! | limits of any kind, and `check_all` | `together` |
//! | charges voided by a reset | `resets` |
//! | key pauses | `pauses` |
//! | saved limiters | `save` |

mod build;
mod held;
mod keyed;
mod pauses;
mod resets;
mod save;
mod single;
mod store;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod time_of;
mod together;

pub use build::builder::{Builder, ClassSettings};
pub use build::kind;
pub use held::in_flight::InFlight;
pub use held::permit::Permit;
pub use held::reservation::{Reservation, Settlement};
pub use held::reservation_set::{ReservationSet, reserve_all};
pub use keyed::classes::ClassLimiter;
pub use keyed::keys::KeyState;
pub use keyed::limiter::Limiter;
#[cfg(not(tollgate_loom))]
pub use keyed::sweeper::Sweeper;
pub use save::LoadOptions;
pub use save::persist::Persist;
pub use single::SingleLimiter;
pub use store::exact_keys::ExactKeys;
pub use store::fingerprints::Fingerprints;
pub use store::hash::{FoldHash, SipHash};
pub use store::interface::{Accepts, KeyOf, Store, ToKey};
pub use time_of::At;
pub use together::chargeable::Chargeable;
pub use together::check_all::{Charge, check_all};
pub use together::look::Look;
