//! The limiters: a rule, a clock, and words for all keys or for one resource.

mod builder;
mod exact_keys;
mod fingerprints;
mod hash;
#[cfg(not(tollgate_loom))]
mod housekeeper;
mod keyed;
mod method;
mod pinned;
mod pinned_at;
mod quotas;
mod resets;
mod single;
mod store;
mod together;
mod tracked;
mod upkeep;

pub use builder::{Align, Builder, Full};
pub use exact_keys::ExactKeys;
pub use fingerprints::Fingerprints;
pub use hash::{FoldHash, KeyHash, SipHash};
#[cfg(not(tollgate_loom))]
pub use housekeeper::Housekeeper;
pub use keyed::Limiter;
pub use pinned::Pinned;
pub use pinned_at::PinnedAt;
pub use single::SingleLimiter;
pub use store::{Holds, Store, ToKey};
pub use together::{Gate, Keyed, Part, check_all};
pub use tracked::{Keys, Tracked};
pub use upkeep::Stats;
