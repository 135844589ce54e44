//! Waiters in a time that stands still until a simulation moves it.

mod answers;
mod bounds;
mod deadlines;
mod forgotten;
mod order;
mod runtimes;
mod simulation;
