//! Logs: their lines, the records of each format, and the requests that the records describe.

pub(crate) mod address;
pub(crate) mod csv;
pub(crate) mod formats;
pub(crate) mod json;
pub(crate) mod key;
mod layout;
pub(crate) mod lines;
pub(crate) mod path;
pub(crate) mod record;
pub(crate) mod request;
pub(crate) mod request_line;
pub(crate) mod schema;
pub(crate) mod summary;
pub(crate) mod text;
pub(crate) mod timestamp;
pub(crate) mod wrapped;
