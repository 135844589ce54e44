//! The part of Envoy's interface for dynamic modules that this module uses. It matches `abi.h` in
//! Envoy 1.40 (interface v0.2.0). Envoy 1.38 and 1.39 provide the same functions.
//!
//! A buffer from Envoy is valid until the current hook ends or a header is set.

use std::ffi::c_char;
use std::marker::PhantomData;
use std::{ptr, slice};

/// The version of the interface, terminated by a zero.
pub const VERSION: &[u8] = b"v0.2.0\0";

/// A buffer in Envoy's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnvoyBuffer {
    /// The first byte, or null if there are no bytes.
    pub data: *const c_char,
    /// The number of bytes.
    pub length: usize,
}

impl EnvoyBuffer {
    /// A buffer without bytes.
    pub const NONE: Self = Self { data: ptr::null(), length: 0 };

    /// Returns the bytes, or an empty slice if the buffer is null.
    ///
    /// # Safety
    ///
    /// The bytes are valid and unchanged for as long as the returned slice is used.
    #[allow(unsafe_code)]
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: the caller guarantees this.
        unsafe { slice::from_raw_parts(self.data.cast(), self.length) }
    }
}

/// A buffer in this module's memory. It is valid during a call.
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

/// A header in this module's memory. It is valid during a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleHeader<'a> {
    /// The name, in lower case.
    pub name: ModuleBuffer<'a>,
    /// The value.
    pub value: ModuleBuffer<'a>,
}

impl<'a> ModuleHeader<'a> {
    /// Creates a header. The name must be in lower case.
    pub fn new(name: &'a str, value: &'a [u8]) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

/// Selects the headers of a stream.
pub type HeaderType = u32;
/// The headers of the request.
pub const REQUEST_HEADERS: HeaderType = 0;
/// The headers of the response.
pub const RESPONSE_HEADERS: HeaderType = 2;

/// A level of Envoy's log.
pub type LogLevel = u32;
/// Information.
pub const INFO: LogLevel = 2;
/// A setting that may be a mistake.
pub const WARN: LogLevel = 3;
/// A configuration that was refused.
pub const ERROR: LogLevel = 4;
/// A fault of this module.
pub const CRITICAL: LogLevel = 5;

/// An attribute of a stream.
pub type Attribute = u32;
/// The client's address and port, as determined by Envoy.
pub const SOURCE_ADDRESS: Attribute = 24;

/// The source of metadata.
pub type MetadataSource = u32;
/// The route that the request takes.
pub const ROUTE: MetadataSource = 1;

/// The number of an event, which the module chooses.
pub type EventId = u64;

/// The result of a call about a metric.
pub type MetricsResult = u32;
/// The call has succeeded.
pub const SUCCESS: MetricsResult = 0;

/// A hook's result, which determines how Envoy continues.
pub type Status = u32;
/// Envoy continues with the next filter.
pub const CONTINUE: Status = 0;
/// Envoy stops at this filter, because the module has answered the request.
pub const STOP: Status = 1;
/// Envoy stops at this filter and holds the headers, the body and the trailers back. If the buffer
/// of the stream is full, Envoy reads no more from the client, and the client's body is not lost.
pub const SUSPEND: Status = 4;

/// A filter's configuration, owned by Envoy.
#[repr(C)]
#[derive(Debug)]
pub struct EnvoyConfig([u8; 0]);

/// The filter of a stream, owned by Envoy.
#[repr(C)]
#[derive(Debug)]
pub struct EnvoyStream([u8; 0]);

/// Posts events of a stream to its worker, owned by the module.
#[repr(C)]
#[derive(Debug)]
pub struct EnvoyScheduler([u8; 0]);

#[allow(unsafe_code)]
#[allow(improper_ctypes)]
unsafe extern "C" {
    /// Writes a line to Envoy's log.
    pub fn envoy_dynamic_module_callback_log(level: LogLevel, message: ModuleBuffer<'_>);

    /// Returns whether Envoy logs lines at this level.
    pub fn envoy_dynamic_module_callback_log_enabled(level: LogLevel) -> bool;

    /// Returns whether Envoy only validates its configuration (`--mode validate`). May be called
    /// only on Envoy's main thread.
    pub fn envoy_dynamic_module_callback_is_validation_mode() -> bool;

    /// Reads one value of a header; `index` selects the value. Writes the number of values to
    /// `values`, unless `values` is null.
    pub fn envoy_dynamic_module_callback_http_get_header(
        stream: *mut EnvoyStream,
        of: HeaderType,
        name: ModuleBuffer<'_>,
        value: *mut EnvoyBuffer,
        index: usize,
        values: *mut usize,
    ) -> bool;

    /// Sets a header. The new value replaces all existing values.
    pub fn envoy_dynamic_module_callback_http_set_header(
        stream: *mut EnvoyStream,
        of: HeaderType,
        name: ModuleBuffer<'_>,
        value: ModuleBuffer<'_>,
    ) -> bool;

    /// Answers a request. The hooks for the response run before this function returns.
    pub fn envoy_dynamic_module_callback_http_send_response(
        stream: *mut EnvoyStream,
        status: u32,
        headers: *const ModuleHeader<'_>,
        length: usize,
        body: ModuleBuffer<'_>,
        details: ModuleBuffer<'_>,
    );

    /// Continues a request after [`SUSPEND`]. Hooks of the stream may run before this function
    /// returns, and the last of them may destroy the filter.
    pub fn envoy_dynamic_module_callback_http_filter_continue_decoding(stream: *mut EnvoyStream);

    /// Creates a scheduler for a stream. May be called only in a hook of the stream.
    pub fn envoy_dynamic_module_callback_http_filter_scheduler_new(
        stream: *mut EnvoyStream,
    ) -> *mut EnvoyScheduler;

    /// Posts an event to the worker of the stream, from any thread. If the stream still exists when
    /// its worker handles the event, the worker calls the hook for scheduled events. Must not be
    /// called after the filter of the stream was destroyed, because the worker may then have ended.
    pub fn envoy_dynamic_module_callback_http_filter_scheduler_commit(
        scheduler: *mut EnvoyScheduler,
        event: EventId,
    );

    /// Deletes a scheduler, on any thread.
    pub fn envoy_dynamic_module_callback_http_filter_scheduler_delete(scheduler: *mut EnvoyScheduler);

    /// Reads an attribute whose value is a string.
    pub fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        stream: *mut EnvoyStream,
        attribute: Attribute,
        value: *mut EnvoyBuffer,
    ) -> bool;

    /// Reads a string from the metadata.
    pub fn envoy_dynamic_module_callback_http_get_metadata_string(
        stream: *mut EnvoyStream,
        of: MetadataSource,
        namespace: ModuleBuffer<'_>,
        key: ModuleBuffer<'_>,
        value: *mut EnvoyBuffer,
    ) -> bool;

    /// Sets a string in the dynamic metadata of the stream.
    pub fn envoy_dynamic_module_callback_http_set_dynamic_metadata_string(
        stream: *mut EnvoyStream,
        namespace: ModuleBuffer<'_>,
        key: ModuleBuffer<'_>,
        value: ModuleBuffer<'_>,
    );

    /// Sets a number in the dynamic metadata of the stream.
    pub fn envoy_dynamic_module_callback_http_set_dynamic_metadata_number(
        stream: *mut EnvoyStream,
        namespace: ModuleBuffer<'_>,
        key: ModuleBuffer<'_>,
        value: f64,
    );

    /// Defines a counter. May be called only while the configuration is being created.
    pub fn envoy_dynamic_module_callback_http_filter_config_define_counter(
        config: *mut EnvoyConfig,
        name: ModuleBuffer<'_>,
        labels: *const ModuleBuffer<'_>,
        length: usize,
        id: *mut usize,
    ) -> MetricsResult;

    /// Defines a gauge. May be called only while the configuration is being created.
    pub fn envoy_dynamic_module_callback_http_filter_config_define_gauge(
        config: *mut EnvoyConfig,
        name: ModuleBuffer<'_>,
        labels: *const ModuleBuffer<'_>,
        length: usize,
        id: *mut usize,
    ) -> MetricsResult;

    /// Sets a gauge.
    pub fn envoy_dynamic_module_callback_http_filter_set_gauge(
        stream: *mut EnvoyStream,
        id: usize,
        labels: *const ModuleBuffer<'_>,
        length: usize,
        value: u64,
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
