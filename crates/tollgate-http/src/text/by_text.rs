//! Support for serde. Fields, scopes, statuses and templates are serialized in their text form.

use super::scope::Scope;
use super::statuses::Statuses;
use crate::client::forwarded::ForwardedField;
use crate::path::template::PathTemplate;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

struct TextVisitor<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! by_text {
    ($($type:ty: $expected:literal),* $(,)?) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextVisitor($expected, PhantomData))
            }
        }
    )*};
}

by_text! {
    ForwardedField: "the name of a header such as \"x-forwarded-for\" or \"x-real-ip\"",
    PathTemplate: "a template of paths such as \"/users/{id}\"",
    Scope: "requests such as \"POST /login\" or \"from 10.0.0.0/8\"",
    Statuses: "statuses of responses such as \"401, 403\" or \"5xx\"",
}
