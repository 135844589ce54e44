//! Limits, paths and quotas as text: see the [form](crate::settings#form-of-a-limit).

#[cfg(feature = "serde")]
mod by_text;
pub(crate) mod classes;
pub(crate) mod error;
pub(crate) mod limit;
pub(crate) mod path;
pub(crate) mod printable;
pub(crate) mod quota;
mod words;
