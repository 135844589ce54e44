//! Costs revealed by responses: how they are found and read, and how charges are settled.

pub(crate) mod charges;
pub(crate) mod estimator;
pub(crate) mod events;
pub(crate) mod figure;
pub(crate) mod reader;
pub(crate) mod response_cost;
pub(crate) mod running;
pub(crate) mod shared;
pub(crate) mod tally;
