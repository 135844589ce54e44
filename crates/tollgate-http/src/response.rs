//! The parts of a response that concern limits: fields, refusals, and bodies.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod cut;
pub(crate) mod fields;
pub(crate) mod grpc;
pub(crate) mod handler_limit;
pub(crate) mod policy;
pub(crate) mod refusal;
pub(crate) mod seconds;
mod standing;
