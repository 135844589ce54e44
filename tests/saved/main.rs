//! Limiters that were saved and loaded decide as if they had never stopped.

mod files;
mod loads;
mod twins;
