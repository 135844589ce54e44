//! Facts about the project on which its source and its pages must agree: the interface, the floors
//! of the source, and the names in a page.

mod api;
mod architecture;
mod first_command;
mod promises;
