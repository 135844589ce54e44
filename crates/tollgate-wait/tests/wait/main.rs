//! Tests waiters in virtual time, which only a simulation advances.

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
