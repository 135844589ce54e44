//! Facts about the project that its source and its pages must agree with: the interface, the floors
//! of its house, what a page names.

mod api;
mod architecture;
mod first_command;
mod promises;
