//! Limits, scopes and quotas as text: see the [form](crate::settings#form-of-a-limit).

pub(crate) mod allowance;
#[cfg(feature = "serde")]
mod by_text;
pub(crate) mod classes;
pub(crate) mod error;
#[cfg(feature = "unstable-program")]
pub(crate) mod fact;
pub(crate) mod limit;
#[cfg(feature = "serde")]
mod limit_table;
pub(crate) mod methods;
pub(crate) mod printable;
pub(crate) mod quota;
pub(crate) mod scope;
pub(crate) mod statuses;
#[cfg(feature = "unstable-program")]
pub(crate) mod time;
mod words;
