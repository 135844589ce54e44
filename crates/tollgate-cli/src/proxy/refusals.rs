//! Adds the operator's fields and body to refusals, according to `--refusal-field` and
//! `--refusal-body`.

use std::path::Path;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use tollgate_http::Refusal;

use crate::bounded_file;
use crate::failure::Failure;
use crate::printable::{printable, printable_path};

/// The maximum size of a refusal's body, in bytes. A larger body would not help a client, and
/// during a flood the proxy would send it with every refusal.
const MOST_BODY: u64 = 64 << 10;

/// Fields that frame a message, and fields that the limits write. Operators cannot set them.
pub(crate) const NOT_OURS: [HeaderName; 12] = [
    CONNECTION,
    CONTENT_LENGTH,
    HOST,
    RETRY_AFTER,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("ratelimit-policy"),
];

/// The operator's fields and body for refusals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    fields: HeaderMap,
    /// The body and its type, or `None` if a refusal's body is a JSON problem.
    body: Option<(Bytes, HeaderValue)>,
}

impl Refusals {
    /// Reads the values of the options.
    ///
    /// # Errors
    ///
    /// Returns an error if a field is not of the form `Name: value` or must not be set, or if the
    /// body cannot be read or is too large.
    pub(crate) fn read(fields: &[String], body: Option<&Path>) -> Result<Self, Failure> {
        let mut all = HeaderMap::new();
        for text in fields {
            let (name, value) = field(text)?;
            all.append(name, value);
        }
        Ok(Self { fields: all, body: body.map(read).transpose()? })
    }

    pub(crate) fn has_body(&self) -> bool {
        self.body.is_some()
    }

    /// Returns the response to a refused request. The response has an empty body, unless the
    /// operator has configured a body.
    pub(crate) fn response(&self, refusal: &Refusal<'_>) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = refusal.status;
        if let Some((body, kind)) = &self.body {
            *response.body_mut() = body.clone();
            response.headers_mut().insert(CONTENT_TYPE, kind.clone());
        }
        response
    }

    /// Adds the operator's fields to a refusal. They replace existing fields with the same names. A
    /// refusal of a gRPC request keeps its own type, without which no client reads its status.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        let is_grpc = headers.contains_key("grpc-status");
        let fits = |name: &HeaderName| !is_grpc || (name != CONTENT_TYPE && name != CONTENT_ENCODING);
        for name in self.fields.keys().filter(|name| fits(name)) {
            headers.remove(name);
        }
        let fields = self.fields.iter().filter(|(name, _)| fits(name));
        headers.extend(fields.map(|(name, value)| (name.clone(), value.clone())));
    }
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), Failure> {
    let refused = |why: &str| {
        Failure::refused(format!("invalid --refusal-field `{}`: {why}", printable(text.as_bytes())))
    };
    let expected = "expected 'Name: value', as in 'Access-Control-Allow-Origin: https://example.org'";
    let (name, value) = text.split_once(':').ok_or_else(|| refused(expected))?;
    let name: HeaderName = name.trim().parse().map_err(|_| refused(expected))?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| refused(expected))?;
    if NOT_OURS.contains(&name) {
        return Err(refused(&format!(
            "the proxy itself sets `{name}`; leave it out: any field may be set that neither frames a message \
             nor states a limit"
        )));
    }
    Ok((name, value))
}

/// Reads a body from a file. The file extension determines the body's type.
fn read(path: &Path) -> Result<(Bytes, HeaderValue), Failure> {
    let name = printable_path(path);
    let body = bounded_file::read(
        path,
        MOST_BODY,
        format_args!("--refusal-body '{name}'"),
        format_args!("the file of --refusal-body '{name}'"),
    )?;
    let kind = match path.extension().and_then(|it| it.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        _ => "text/plain; charset=utf-8",
    };
    Ok((body.into(), HeaderValue::from_static(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_a_name_and_a_value_and_frames_no_message() {
        let read = |text: &str| Refusals::read(&[text.to_owned()], None);
        let refusals = read(" X-Reason :  too fast ").expect("a field");
        assert_eq!(refusals.fields["x-reason"], "too fast");
        for (text, why) in [
            ("X-Reason", "expected 'Name: value'"),
            (": x", "expected 'Name: value'"),
            ("a b: x", "expected 'Name: value'"),
            ("a: x\r\nb: y", "expected 'Name: value'"),
            ("content-length: 5", "the proxy itself sets `content-length`"),
            ("Retry-After: 5", "the proxy itself sets `retry-after`"),
        ] {
            let refused = read(text).expect_err(text).to_string();
            assert!(refused.starts_with("invalid --refusal-field `") && refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_field_takes_the_place_of_one_and_may_be_there_twice() {
        let fields = ["Vary: Origin", "X-A: 1", "x-a: 2"].map(str::to_owned);
        let refusals = Refusals::read(&fields, None).expect("fields");
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("0"));
        headers.insert("x-b", HeaderValue::from_static("0"));
        refusals.add_to(&mut headers);
        let values: Vec<_> = headers.get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
        assert_eq!(
            (headers.len(), &headers["x-b"], &headers["vary"]),
            (4, &"0".parse().expect("a value"), &"Origin".parse().expect("a value"))
        );
    }
}
