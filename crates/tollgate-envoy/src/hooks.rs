//! The hooks that Envoy calls. Each hook catches panics. After a panic, the module writes a line to
//! Envoy's log, and the request continues as if there were no limits.
//!
//! Envoy creates configurations on its main thread. It calls all hooks of a stream on the same
//! worker. A configuration is destroyed after the last of its streams, usually on the main thread;
//! but the streams hold references to the configuration, so a worker may release the last one.

#![allow(unsafe_code)]

use crate::abi::{self, CRITICAL, EnvoyBuffer, EnvoyConfig, EnvoyStream, EventId, Status};
use crate::filter::{Filter, Next, answer};
use crate::limits::Limits;
use crate::log::log;
use crate::settings::Settings;
use crate::state::Request;
use std::ffi::{c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

/// Calls a hook. If the hook panics, logs the panic and returns `otherwise`.
pub fn guarded<T>(otherwise: T, hook: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(hook)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("of an unknown kind");
        log(CRITICAL, format_args!("a fault of the module, and the request goes on without limits: {text}"));
        otherwise
    })
}

/// Writes the counts of a filter to its file now, and waits for the write. Envoy never calls this
/// function, but tests would have to wait for the next write otherwise.
pub fn write_now(filter: &str) {
    Limits::write_now(filter, Request::Write);
}

/// Like [`write_now`], but first drops the counts that no configuration has continued, as if an
/// hour had passed.
pub fn write_without_rest(filter: &str) {
    Limits::write_now(filter, Request::DropRest);
}

/// Reads the figures of a filter's shared limits, which its next request writes to Envoy's stats.
/// Envoy never calls this function, but tests would have to wait for the next reading otherwise.
pub fn read_figures_now(filter: &str) {
    Limits::read_figures_now(filter);
}

/// Returns the version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    abi::VERSION.as_ptr().cast()
}

/// Creates a configuration. Returns null if the configuration is refused.
///
/// # Safety
///
/// The caller follows Envoy's rules: the buffers are valid until the function returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    config: *mut EnvoyConfig,
    name: EnvoyBuffer,
    text: EnvoyBuffer,
) -> *const c_void {
    // SAFETY: the caller guarantees this.
    let name = unsafe { name.bytes() };
    // SAFETY: the caller guarantees this.
    let text = unsafe { text.bytes() };
    guarded(ptr::null(), || {
        let filter = String::from_utf8_lossy(name);
        let loaded = Settings::read(text).and_then(|settings| Limits::load(&filter, &settings, config));
        match loaded {
            Ok(limits) => Arc::into_raw(limits).cast(),
            Err(why) => {
                log(abi::ERROR, format_args!("filter {filter}: the configuration is refused: {why}"));
                ptr::null()
            }
        }
    })
}

/// Destroys a configuration.
///
/// # Safety
///
/// The caller follows Envoy's rules: [`envoy_dynamic_module_on_http_filter_config_new`] returned
/// the pointer, and no filter uses the configuration any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: *const c_void) {
    guarded((), || {
        // SAFETY: `Arc::into_raw` returned the pointer, and Envoy destroys the configuration only
        // once.
        let limits = unsafe { Arc::from_raw(config.cast::<Limits>()) };
        Limits::unload(limits);
    });
}

/// Creates the filter of a stream.
///
/// # Safety
///
/// The caller follows Envoy's rules: the configuration outlives the filter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_new(
    config: *const c_void,
    _stream: *mut EnvoyStream,
) -> *const c_void {
    // SAFETY: the caller guarantees this.
    let limits: &Limits = unsafe { &*config.cast() };
    Box::into_raw(Box::new(Filter::new(limits))).cast_const().cast()
}

/// Destroys the filter of a stream.
///
/// # Safety
///
/// The caller follows Envoy's rules: [`envoy_dynamic_module_on_http_filter_new`] returned the
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_destroy(filter: *const c_void) {
    guarded((), || {
        // SAFETY: `Box::into_raw` returned the pointer, and Envoy destroys the filter only once.
        drop(unsafe { Box::from_raw(filter.cast_mut().cast::<Filter<'_>>()) });
    });
}

/// Returns the filter of a stream.
///
/// # Safety
///
/// The caller is a hook of the stream, and `filter` points to a filter that Envoy has not
/// destroyed. After a call that runs another hook of the same stream, the returned reference is not
/// used again.
unsafe fn filter<'f>(filter: *const c_void) -> &'f mut Filter<'f> {
    // SAFETY: the caller guarantees this.
    unsafe { &mut *filter.cast_mut().cast() }
}

/// Checks a request.
///
/// # Safety
///
/// The caller follows Envoy's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    stream: *mut EnvoyStream,
    module: *const c_void,
    _end_of_stream: bool,
) -> Status {
    guarded(abi::CONTINUE, || {
        // SAFETY: the caller guarantees this.
        let filter = unsafe { filter(module) };
        match filter.check(stream) {
            Next::Continue => abi::CONTINUE,
            Next::Answer(response) => {
                answer(stream, &response);
                abi::STOP
            }
            Next::Suspend => abi::SUSPEND,
        }
    })
}

/// Goes on with a request that waits for a store. Does nothing if the request no longer waits.
///
/// # Safety
///
/// The caller follows Envoy's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
    stream: *mut EnvoyStream,
    module: *const c_void,
    _event: EventId,
) {
    // A request whose check has panicked must not wait forever.
    let next = guarded(Some(Next::Continue), || {
        // SAFETY: the caller guarantees this. The functions below may run other hooks of the stream
        // and destroy the filter, and the reference is not used after this closure.
        let filter = unsafe { filter(module) };
        filter.resume(stream)
    });
    match next {
        // SAFETY: the stream belongs to this hook, and Envoy holds its request back.
        Some(Next::Continue) => unsafe {
            abi::envoy_dynamic_module_callback_http_filter_continue_decoding(stream);
        },
        Some(Next::Answer(response)) => guarded((), || answer(stream, &response)),
        Some(Next::Suspend) | None => {}
    }
}

/// Adds fields to a response, and settles the charges.
///
/// # Safety
///
/// The caller follows Envoy's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    stream: *mut EnvoyStream,
    module: *const c_void,
    _end_of_stream: bool,
) -> Status {
    guarded(abi::CONTINUE, || {
        // SAFETY: the caller guarantees this.
        let filter = unsafe { filter(module) };
        filter.response_headers(stream);
        abi::CONTINUE
    })
}

/// Frees the places that a stream holds.
///
/// # Safety
///
/// The caller follows Envoy's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    _stream: *mut EnvoyStream,
    module: *const c_void,
) {
    guarded((), || {
        // SAFETY: the caller guarantees this.
        let filter = unsafe { filter(module) };
        filter.complete();
    });
}

/// Defines hooks for events that the module ignores. Envoy continues after these hooks.
macro_rules! passing_hooks {
    ($($name:ident)*) => {
        $(
            /// Continues, because the module ignores this event.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> Status {
                abi::CONTINUE
            }
        )*
    };
}

// Envoy refuses a module that lacks any of these hooks. Envoy passes arguments to them, but a
// callee may ignore its arguments.
passing_hooks! {
    envoy_dynamic_module_on_http_filter_request_body
    envoy_dynamic_module_on_http_filter_request_trailers
    envoy_dynamic_module_on_http_filter_response_body
    envoy_dynamic_module_on_http_filter_response_trailers
    envoy_dynamic_module_on_http_filter_http_callout_done
    envoy_dynamic_module_on_http_filter_http_stream_headers
    envoy_dynamic_module_on_http_filter_http_stream_data
    envoy_dynamic_module_on_http_filter_http_stream_trailers
    envoy_dynamic_module_on_http_filter_http_stream_complete
    envoy_dynamic_module_on_http_filter_http_stream_reset
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark
}
