//! A module for Envoy that does nothing. `make bench-proxy` measures the cost of such a module.

use std::ffi::{c_char, c_void};
use std::ptr;

/// Returns the version of the interface.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
pub extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    c"v0.2.0".as_ptr()
}

/// Defines hooks that hand a pointer back to Envoy. The pointer may be any address except null.
macro_rules! making_hooks {
    ($($name:ident)*) => {
        $(
            /// Returns an address that is never dereferenced.
            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> *const c_void {
                ptr::without_provenance(1)
            }
        )*
    };
}

making_hooks! {
    envoy_dynamic_module_on_http_filter_config_new
    envoy_dynamic_module_on_http_filter_new
}

/// Defines hooks after which Envoy continues.
macro_rules! passing_hooks {
    ($($name:ident)*) => {
        $(
            /// Continues.
            #[allow(unsafe_code)]
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> u32 {
                0
            }
        )*
    };
}

passing_hooks! {
    envoy_dynamic_module_on_http_filter_config_destroy
    envoy_dynamic_module_on_http_filter_destroy
    envoy_dynamic_module_on_http_filter_request_headers
    envoy_dynamic_module_on_http_filter_request_body
    envoy_dynamic_module_on_http_filter_request_trailers
    envoy_dynamic_module_on_http_filter_response_headers
    envoy_dynamic_module_on_http_filter_response_body
    envoy_dynamic_module_on_http_filter_response_trailers
    envoy_dynamic_module_on_http_filter_stream_complete
    envoy_dynamic_module_on_http_filter_http_callout_done
    envoy_dynamic_module_on_http_filter_http_stream_headers
    envoy_dynamic_module_on_http_filter_http_stream_data
    envoy_dynamic_module_on_http_filter_http_stream_trailers
    envoy_dynamic_module_on_http_filter_http_stream_complete
    envoy_dynamic_module_on_http_filter_http_stream_reset
    envoy_dynamic_module_on_http_filter_scheduled
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark
}
