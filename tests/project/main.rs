//! Facts about the project that its source and its pages must agree on: the interface, the floors
//! of the source, the names in a page.

mod api;
mod architecture;
mod first_command;
mod promises;
