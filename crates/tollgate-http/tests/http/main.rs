//! The tower layer without sockets, with a manual clock.

mod answers;
mod build;
mod charges;
mod elsewhere;
#[cfg(feature = "tracing")]
mod events;
mod fields;
mod forwarded;
mod in_flight;
mod invented;
mod keys;
mod nested;
mod paths;
mod races;
mod settings;
mod shared;
mod site;
mod together;
mod waiting;
