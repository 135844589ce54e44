//! The part of Envoy's interface for dynamic modules that this module uses, as in `abi.h` of Envoy
//! 1.40 (interface v0.2.0). 1.38 and 1.39 have the same functions.
//!
//! A buffer of Envoy is valid until the end of the hook in which it was returned, or until a header
//! is set.

use std::ffi::c_char;
use std::marker::PhantomData;
use std::{ptr, slice};

/// The version of the interface, with a zero at its end.
pub const VERSION: &[u8] = b"v0.2.0\0";

/// Bytes in Envoy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnvoyBuffer {
    /// Null if there are none.
    pub data: *const c_char,
    /// The number of bytes.
    pub length: usize,
}

impl EnvoyBuffer {
    /// No bytes.
    pub const NONE: Self = Self { data: ptr::null(), length: 0 };

    /// Returns the bytes; none if the buffer is null.
    ///
    /// # Safety
    ///
    /// The bytes are there, and do not change, for as long as they are used.
    #[allow(unsafe_code)]
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: the caller.
        unsafe { slice::from_raw_parts(self.data.cast(), self.length) }
    }
}

/// Bytes of this module, for the time of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleBuffer<'a> {
    /// The first byte.
    pub data: *const c_char,
    /// The number of bytes.
    pub length: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> From<&'a [u8]> for ModuleBuffer<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { data: bytes.as_ptr().cast(), length: bytes.len(), bytes: PhantomData }
    }
}

impl<'a> From<&'a str> for ModuleBuffer<'a> {
    fn from(text: &'a str) -> Self {
        text.as_bytes().into()
    }
}

/// A header of this module, for the time of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleHeader<'a> {
    /// The name, in lower case.
    pub name: ModuleBuffer<'a>,
    /// The value.
    pub value: ModuleBuffer<'a>,
}

impl<'a> ModuleHeader<'a> {
    /// A header with this name, in lower case.
    pub fn new(name: &'a str, value: &'a [u8]) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

/// Which headers of a stream are meant.
pub type HeaderType = u32;
/// Those of the request.
pub const REQUEST_HEADERS: HeaderType = 0;
/// Those of the response.
pub const RESPONSE_HEADERS: HeaderType = 2;

/// A level of Envoy's log.
pub type LogLevel = u32;
/// What is worth knowing.
pub const INFO: LogLevel = 2;
/// What may not be meant.
pub const WARN: LogLevel = 3;
/// What was refused.
pub const ERROR: LogLevel = 4;
/// A fault of this module.
pub const CRITICAL: LogLevel = 5;

/// An attribute of a stream.
pub type Attribute = u32;
/// The address of the client, as Envoy has found it, with its port.
pub const SOURCE_ADDRESS: Attribute = 24;

/// Where metadata is from.
pub type MetadataSource = u32;
/// The route that the request takes.
pub const ROUTE: MetadataSource = 1;

/// The result of a call about a metric.
pub type MetricsResult = u32;
/// The call has done what was asked.
pub const SUCCESS: MetricsResult = 0;

/// What Envoy does after a hook.
pub type Status = u32;
/// It goes on with the next filter.
pub const CONTINUE: Status = 0;
/// It stops there: the module has answered.
pub const STOP: Status = 1;

/// The configuration of a filter, in Envoy.
#[repr(C)]
#[derive(Debug)]
pub struct EnvoyConfig([u8; 0]);

/// A stream's filter, in Envoy.
#[repr(C)]
#[derive(Debug)]
pub struct EnvoyStream([u8; 0]);

#[allow(unsafe_code)]
#[allow(improper_ctypes)]
unsafe extern "C" {
    /// Writes a line to Envoy's log.
    pub fn envoy_dynamic_module_callback_log(level: LogLevel, message: ModuleBuffer<'_>);

    /// Returns whether lines of this level are written.
    pub fn envoy_dynamic_module_callback_log_enabled(level: LogLevel) -> bool;

    /// Reads the value of a header with this index; `values` is the number of values, or null.
    pub fn envoy_dynamic_module_callback_http_get_header(
        stream: *mut EnvoyStream,
        of: HeaderType,
        name: ModuleBuffer<'_>,
        value: *mut EnvoyBuffer,
        index: usize,
        values: *mut usize,
    ) -> bool;

    /// Sets a header, in place of all its values.
    pub fn envoy_dynamic_module_callback_http_set_header(
        stream: *mut EnvoyStream,
        of: HeaderType,
        name: ModuleBuffer<'_>,
        value: ModuleBuffer<'_>,
    ) -> bool;

    /// Answers a request. The hooks of the response run before it returns.
    pub fn envoy_dynamic_module_callback_http_send_response(
        stream: *mut EnvoyStream,
        status: u32,
        headers: *const ModuleHeader<'_>,
        length: usize,
        body: ModuleBuffer<'_>,
        details: ModuleBuffer<'_>,
    );

    /// Reads an attribute that is a text.
    pub fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        stream: *mut EnvoyStream,
        attribute: Attribute,
        value: *mut EnvoyBuffer,
    ) -> bool;

    /// Reads a text of the metadata.
    pub fn envoy_dynamic_module_callback_http_get_metadata_string(
        stream: *mut EnvoyStream,
        of: MetadataSource,
        namespace: ModuleBuffer<'_>,
        key: ModuleBuffer<'_>,
        value: *mut EnvoyBuffer,
    ) -> bool;

    /// Makes a counter, while a configuration is made.
    pub fn envoy_dynamic_module_callback_http_filter_config_define_counter(
        config: *mut EnvoyConfig,
        name: ModuleBuffer<'_>,
        labels: *const ModuleBuffer<'_>,
        length: usize,
        id: *mut usize,
    ) -> MetricsResult;

    /// Adds to a counter.
    pub fn envoy_dynamic_module_callback_http_filter_increment_counter(
        stream: *mut EnvoyStream,
        id: usize,
        labels: *const ModuleBuffer<'_>,
        length: usize,
        by: u64,
    ) -> MetricsResult;
}
