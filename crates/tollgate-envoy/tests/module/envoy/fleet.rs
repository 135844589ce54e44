//! Four Envoys, each with two workers, share limits through one Valkey. The tests compare Envoys'
//! access logs with the bounds of the algorithms, under full load and during faults.
//!
//! The clients send four times what each limit admits. A request is decided between its arrival at
//! Envoy and its departure to the upstream, and all logs are written by one machine's clock.
//! Therefore the requests whose times lie in an interval were certainly admitted in that interval.
//!
//! `make envoy` runs each test once. `make fleet` repeats the tests, with a longer load.

mod clock;
mod demand;
mod faults;
mod members;
mod steady;
mod traffic;
