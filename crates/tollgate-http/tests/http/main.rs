//! The tower layer as services see it: driven without sockets, by a clock that is set.

mod answers;
mod build;
mod charges;
mod elsewhere;
#[cfg(feature = "tracing")]
mod events;
mod fields;
mod forwarded;
mod keys;
mod races;
mod shared;
mod site;
mod together;
mod waiting;
