//! Waiters in a virtual time that only a simulation moves.

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
