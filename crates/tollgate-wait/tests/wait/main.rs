//! Waiters in a time that stands still until a simulation moves it.

mod bounds;
mod deadlines;
mod forgotten;
mod order;
mod permits;
mod runtimes;
mod simulation;
