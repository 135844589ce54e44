//! The limiters: each is a rule, a clock, and the state of many keys or of one resource.

mod at;
mod builder;
mod chargeable;
mod class_builder;
mod class_settings;
mod classes;
mod construction;
mod exact_keys;
mod fingerprints;
mod forced;
mod hash;
mod in_flight;
mod key_state;
mod keyed;
pub mod kind;
mod look;
mod method;
mod permit;
mod quotas;
mod refunds;
mod reservation;
mod reservation_set;
mod resets;
mod single;
mod store;
#[cfg(not(tollgate_loom))]
mod sweeper;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod time_of;
mod together;
mod upkeep;

pub use at::At;
pub use builder::Builder;
pub use chargeable::Chargeable;
pub use class_settings::ClassSettings;
pub use classes::ClassLimiter;
pub use exact_keys::ExactKeys;
pub use fingerprints::Fingerprints;
pub use hash::{FoldHash, SipHash};
pub use in_flight::InFlight;
pub use key_state::KeyState;
pub use keyed::Limiter;
pub use look::Look;
pub use permit::Permit;
pub use reservation::{Reservation, Settlement};
pub use reservation_set::{ReservationSet, reserve_all};
pub use single::SingleLimiter;
pub use store::{Accepts, Store, ToKey};
#[cfg(not(tollgate_loom))]
pub use sweeper::Sweeper;
pub use together::{Charge, check_all};
