//! Charges that are settled later: reservations, and permits in flight.

pub(super) mod in_flight;
pub(super) mod permit;
pub(super) mod reservation;
pub(super) mod reservation_set;
