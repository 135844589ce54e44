//! Keys, which identify clients, and how the layer finds them in a request.

pub(crate) mod by;
pub(crate) mod known;
pub(crate) mod parts;
#[cfg(feature = "serde")]
mod stored;
