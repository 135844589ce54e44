//! Waiters in a time that stands still until a simulation moves it.

mod answers;
mod bounds;
mod clients;
mod deadlines;
mod forgotten;
mod order;
mod paced;
mod permits;
mod runtimes;
mod simulation;
