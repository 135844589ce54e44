//! Handles the items of `RateLimit` and `RateLimit-Policy` that are already in a response when this
//! layer adds its own.
//!
//! If a client cannot parse one item, it rejects the whole field. An older draft of the fields
//! defines items in a different form, such as `limit=100, remaining=50`. An existing item is
//! therefore kept only if it is a String with the parameter that the current draft requires. Each
//! item is parsed separately, so an invalid item does not affect the others.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use sfv::visitor::{ItemVisitor, ParameterVisitor};
use sfv::{BareItemFromInput, KeyRef, Parser};
use std::convert::Infallible;

/// Adds items to a List field, and writes the whole List on one line. Existing items must have the
/// parameter `required`, a non-negative Integer.
pub(super) fn add_items(headers: &mut HeaderMap, name: &HeaderName, required: &str, items: HeaderValue) {
    let mut list = Vec::new();
    for line in headers.get_all(name) {
        for item in between_commas(line.as_bytes()).filter(|item| has_parameter(item, required)) {
            list.extend_from_slice(item);
            list.extend_from_slice(b", ");
        }
    }
    // The value is valid, because it consists of parsed items and items of this layer.
    let whole = if list.is_empty() {
        Some(items)
    } else {
        list.extend_from_slice(items.as_bytes());
        HeaderValue::try_from(list).ok()
    };
    if let Some(whole) = whole {
        headers.insert(name, whole);
    }
}

/// Splits a List at the commas outside of Strings.
fn between_commas(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut in_string, mut is_escaped) = (false, false);
    let parts = list.split(move |&byte| {
        if byte == b'"' && !is_escaped {
            in_string = !in_string;
        }
        is_escaped = in_string && byte == b'\\' && !is_escaped;
        byte == b',' && !in_string
    });
    parts.map(<[u8]>::trim_ascii)
}

/// Returns whether this item is a String with the parameter.
fn has_parameter(item: &[u8], required: &str) -> bool {
    let parameter = Parameter { name: required, is_of_string: false, is_valid: false };
    Parser::new(item).parse_item_with_visitor(parameter).unwrap_or(false)
}

/// Looks for a parameter of a String. If the parameter occurs twice, the last value counts.
struct Parameter<'n> {
    name: &'n str,
    is_of_string: bool,
    is_valid: bool,
}

impl<'de> ItemVisitor<'de> for Parameter<'_> {
    type Out = bool;
    type Error = Infallible;

    fn bare_item(
        self,
        item: BareItemFromInput<'de>,
    ) -> Result<impl ParameterVisitor<'de, Out = bool>, Infallible> {
        Ok(Self { is_of_string: matches!(item, BareItemFromInput::String(_)), ..self })
    }
}

impl<'de> ParameterVisitor<'de> for Parameter<'_> {
    type Out = bool;
    type Error = Infallible;

    fn parameter(&mut self, key: &'de KeyRef, value: BareItemFromInput<'de>) -> Result<(), Infallible> {
        if key.as_str() == self.name {
            self.is_valid = matches!(value, BareItemFromInput::Integer(number) if i64::from(number) >= 0);
        }
        Ok(())
    }

    fn finish(self) -> Result<bool, Infallible> {
        Ok(self.is_of_string && self.is_valid)
    }
}
