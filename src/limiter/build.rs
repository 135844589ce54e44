//! The builder of limiters, the kinds of limiters that it builds, and the settings of classes.

pub(super) mod builder;
pub(super) mod class_builder;
pub(super) mod construction;
pub mod kind;
pub(super) mod method;
