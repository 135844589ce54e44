//! A pinned handle that is held all the time does not keep memory from being freed. In a program of
//! its own, because guards of other tests in the process would delay collections.

#[path = "stores/pinned_epoch.rs"]
mod cases;
#[path = "stores/fingerprints.rs"]
mod store;
