//! Costs that the response reveals: where they are found, how they are read, and how the charge is
//! settled.

pub(crate) mod charges;
pub(crate) mod estimator;
pub(crate) mod events;
pub(crate) mod figure;
pub(crate) mod reader;
pub(crate) mod response_cost;
pub(crate) mod running;
pub(crate) mod shared;
pub(crate) mod tally;
