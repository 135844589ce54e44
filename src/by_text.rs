//! Support for serde: quotas and settings are serialized as strings.

use crate::algorithm::Algorithm;
use crate::error::ParseError;
use crate::quota::Quota;
use crate::settings::{WhenFull, WindowAlign};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

struct Text<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err = ParseError>> Visitor<'_> for Text<T> {
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
                deserializer.deserialize_str(Text($expected, PhantomData))
            }
        }
    )*};
}

by_text! {
    Quota: "a quota such as \"100/s burst 20\"",
    Algorithm: "an algorithm such as \"token-bucket\"",
    WhenFull: "\"deny\", \"allow\" or \"share\"",
    WindowAlign: "\"unix-epoch\" or \"clock-start\"",
}
