//! Tests the tower layer, both without sockets on a manual clock, and in real servers (`sockets`).

mod answers;
mod build;
mod charges;
mod classes;
mod cors;
mod elsewhere;
#[cfg(feature = "tracing")]
mod events;
mod fields;
mod forwarded;
mod fuzz;
mod gate;
mod handlers;
mod in_flight;
mod in_flight_shared;
mod invented;
mod keys;
#[cfg(feature = "serde")]
mod language;
mod lookups;
mod metrics;
mod nested;
mod paths;
mod races;
mod repeated;
mod saved;
mod settings;
mod settling;
mod settling_shared;
mod shared;
mod site;
mod sockets;
mod spellings;
mod standing;
mod texts;
mod together;
mod versions;
mod waiting;
