//! A host that plays the role of Envoy. It defines the callbacks that the module calls, and calls
//! the module's hooks in the same order as Envoy.

// All unsafe operations in a block are sound for the same reason: the module follows the rules in
// `abi.rs`.
#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)]

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{ptr, slice, thread};

use tollgate_envoy::abi::{
    self, Attribute, EnvoyBuffer, EnvoyConfig, EnvoyScheduler, EnvoyStream, EventId, HeaderType, LogLevel,
    MetadataSource, MetricsResult, ModuleBuffer, ModuleHeader,
};
use tollgate_envoy::hooks::*;

/// Names and values. The names are in lower case.
pub(crate) type Headers = Vec<(String, Vec<u8>)>;

/// A listener's filter, together with its configuration.
pub(crate) struct Module {
    config: *const c_void,
    envoy: Box<Config>,
}

// SAFETY: all worker threads may use the module's configuration.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// A configuration as Envoy stores it.
#[derive(Default)]
struct Config {
    counters: Mutex<Vec<(String, u64)>>,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: &'static str,
    pub(crate) path: Vec<u8>,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) host: String,
    pub(crate) client: &'static str,
    /// The tenant in the route's metadata.
    pub(crate) tenant: Option<&'static str>,
    /// The status that the upstream returns.
    pub(crate) upstream: u16,
}

/// Returns a GET request.
pub(crate) fn get(path: &str) -> Asked {
    Asked {
        method: "GET",
        path: path.into(),
        headers: Vec::new(),
        host: "example.com".to_owned(),
        client: "192.0.2.1:4711",
        tenant: None,
        upstream: 200,
    }
}

impl Asked {
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn to(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    pub(crate) fn from(self, client: &'static str) -> Self {
        Self { client, ..self }
    }

    pub(crate) fn answered(self, upstream: u16) -> Self {
        Self { upstream, ..self }
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(it, _)| it == name)?;
        std::str::from_utf8(value).ok()
    }
}

/// A stream. The module sees it as an `EnvoyStream`.
struct State {
    config: *const Config,
    module: *const c_void,
    request: Headers,
    response: Headers,
    client: &'static str,
    tenant: Option<&'static str>,
    /// The dynamic metadata: namespace, key and value.
    metadata: Vec<[String; 3]>,
    answer: Option<Answer>,
    /// Whether the host holds the request back.
    is_suspended: bool,
    events: Arc<Events>,
}

/// The events that were posted to a stream's worker.
#[derive(Default)]
struct Events {
    posted: Mutex<Posted>,
    changed: Condvar,
}

#[derive(Default)]
struct Posted {
    waiting: u32,
    /// Whether the stream's filter was destroyed. Its worker may have ended.
    is_destroyed: bool,
}

/// The number of schedulers that the module has not deleted.
static SCHEDULERS: AtomicI64 = AtomicI64::new(0);

/// How long it takes to post an event, in microseconds.
static POSTING: AtomicU64 = AtomicU64::new(0);

/// Runs a test in which it takes a while to post an event.
pub(crate) fn with_slow_events(test: impl FnOnce()) {
    // ORDERING: relaxed, because nothing depends on the delay.
    POSTING.store(200, Relaxed);
    test();
    // ORDERING: relaxed, as above.
    POSTING.store(0, Relaxed);
}

/// Returns the number of schedulers that the module has not deleted.
pub(crate) fn schedulers() -> i64 {
    // ORDERING: relaxed, because only the number matters.
    SCHEDULERS.load(Relaxed)
}

/// A stream in progress.
pub(crate) struct Stream<'m> {
    state: *mut State,
    _module: &'m Module,
}

impl Module {
    /// Creates a configuration.
    ///
    /// # Errors
    ///
    /// Returns the lines that the module has logged about this filter, if the module refuses the
    /// configuration.
    pub(crate) fn load(filter: &str, text: &str) -> Result<Self, String> {
        let envoy = Box::new(Config::default());
        let of_envoy = ptr::from_ref(&*envoy).cast_mut().cast::<EnvoyConfig>();
        // SAFETY: the buffers and the configuration outlive the call.
        let config = unsafe {
            envoy_dynamic_module_on_http_filter_config_new(
                of_envoy,
                buffer(filter.as_bytes()),
                buffer(text.as_bytes()),
            )
        };
        if config.is_null() { Err(logged(filter)) } else { Ok(Self { config, envoy }) }
    }

    /// Creates a configuration as `envoy --mode validate` does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load`](Self::load).
    pub(crate) fn validate(filter: &str, text: &str) -> Result<Self, String> {
        VALIDATES.set(true);
        let made = Self::load(filter, text);
        VALIDATES.set(false);
        made
    }

    /// Begins a stream with a request's head.
    pub(crate) fn begin(&self, asked: &Asked) -> Stream<'_> {
        let mut request: Headers = vec![
            (":method".into(), asked.method.into()),
            (":path".into(), asked.path.clone()),
            (":authority".into(), asked.host.clone().into()),
        ];
        request.extend(asked.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let state = Box::into_raw(Box::new(State {
            config: &raw const *self.envoy,
            module: ptr::null(),
            request,
            response: Vec::new(),
            client: asked.client,
            tenant: asked.tenant,
            metadata: Vec::new(),
            answer: None,
            is_suspended: false,
            events: Arc::default(),
        }));
        // SAFETY: the configuration lives as long as the module, and the stream lives until it is
        // freed.
        unsafe {
            let module = envoy_dynamic_module_on_http_filter_new(self.config, state.cast());
            (*state).module = module;
            let status = envoy_dynamic_module_on_http_filter_request_headers(state.cast(), module, true);
            assert_eq!(status == abi::STOP, (*state).answer.is_some(), "it stops where it has answered");
            assert!([abi::CONTINUE, abi::STOP, abi::SUSPEND].contains(&status), "{status}");
            (*state).is_suspended = status == abi::SUSPEND;
        }
        Stream { state, _module: self }
    }

    /// Serves a complete request.
    pub(crate) fn serve(&self, asked: &Asked) -> Answer {
        let mut stream = self.begin(asked);
        stream.wait();
        let answer = stream.respond(asked.upstream, &[]);
        stream.complete();
        answer
    }

    /// Returns the counter or gauge with this name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let counters = locked(&self.envoy.counters);
        let found = counters.iter().find(|(it, _)| it == name);
        found.unwrap_or_else(|| panic!("no counter {name}: {counters:?}")).1
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: every stream borrows the module, so no stream is left.
        unsafe { envoy_dynamic_module_on_http_filter_config_destroy(self.config) }
    }
}

impl Stream<'_> {
    /// Returns the module's answer if the module refused the request.
    pub(crate) fn refusal(&self) -> Option<Answer> {
        // SAFETY: the stream lives until this value is dropped.
        unsafe { (*self.state).answer.clone() }
    }

    /// Returns whether the host holds the request back.
    pub(crate) fn is_suspended(&self) -> bool {
        // SAFETY: the stream lives until this value is dropped.
        unsafe { (*self.state).is_suspended }
    }

    /// Handles the stream's events until the request passes or is answered.
    pub(crate) fn wait(&mut self) {
        while self.is_suspended() {
            self.next_event();
            self.deliver();
        }
    }

    /// Waits until an event is posted, and removes it.
    #[track_caller]
    pub(crate) fn next_event(&self) {
        // SAFETY: as above.
        let events = unsafe { Arc::clone(&(*self.state).events) };
        let posted = locked(&events.posted);
        let is_idle = |posted: &mut Posted| posted.waiting == 0;
        let waited = events.changed.wait_timeout_while(posted, Duration::from_secs(20), is_idle);
        let (mut posted, result) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!result.timed_out(), "no event resumes the request");
        posted.waiting -= 1;
    }

    /// Returns the number of events that the host has not handled.
    pub(crate) fn events(&self) -> u32 {
        // SAFETY: as above.
        unsafe {
            let events = &(*self.state).events;
            locked(&events.posted).waiting
        }
    }

    /// Calls the hook for an event.
    pub(crate) fn deliver(&mut self) {
        // SAFETY: as above.
        unsafe {
            envoy_dynamic_module_on_http_filter_scheduled(self.state.cast(), (*self.state).module, 0);
        }
    }

    /// Answers a request that the host holds back, as Envoy does after a timeout.
    pub(crate) fn answer_in_place(&mut self, status: u16) {
        // SAFETY: as above.
        unsafe {
            assert!((*self.state).is_suspended);
            (*self.state).response = vec![(":status".to_owned(), status.to_string().into())];
            let module = (*self.state).module;
            envoy_dynamic_module_on_http_filter_response_headers(self.state.cast(), module, false);
        }
    }

    /// Lets the upstream answer a request that passed the filter. Returns the response that the
    /// client receives.
    pub(crate) fn respond(&mut self, status: u16, headers: &[(&str, &str)]) -> Answer {
        if let Some(refusal) = self.refusal() {
            return refusal;
        }
        assert!(!self.is_suspended(), "the host holds the request back");
        // SAFETY: as above.
        unsafe {
            let module = (*self.state).module;
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
            (*self.state).response =
                std::iter::once((":status".to_owned(), status.to_string().into())).chain(headers).collect();
            let status =
                envoy_dynamic_module_on_http_filter_response_headers(self.state.cast(), module, true);
            assert_eq!(status, abi::CONTINUE);
            self.answer()
        }
    }

    /// Completes the stream. Envoy does the same before it destroys the stream's filter.
    pub(crate) fn complete(&mut self) {
        // SAFETY: as above.
        unsafe {
            envoy_dynamic_module_on_http_filter_stream_complete(self.state.cast(), (*self.state).module)
        }
    }

    /// # Safety
    ///
    /// The stream has a response.
    unsafe fn answer(&self) -> Answer {
        // SAFETY: as above.
        let all = unsafe { (*self.state).response.clone() };
        let (status, mut headers): (Headers, Headers) =
            all.into_iter().partition(|(name, _)| name == ":status");
        let status = std::str::from_utf8(&status[0].1).unwrap().parse().unwrap();
        headers.push((
            "x-limit-a".to_owned(),
            [self.metadata("a.outcome"), self.metadata("a.remaining")].join("/").into(),
        ));
        Answer { status, headers, body: Vec::new() }
    }

    /// Returns a value as Envoy writes it into a header with
    /// `%DYNAMIC_METADATA(tollgate.test:KEY)%`.
    fn metadata(&self, wanted: &str) -> String {
        // SAFETY: as above.
        let all = unsafe { &(*self.state).metadata };
        let found = all.iter().rfind(|[namespace, key, _]| namespace == "tollgate.test" && key == wanted);
        found.map_or("", |[_, _, value]| value).to_owned()
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // SAFETY: the stream is not used after this.
        unsafe {
            envoy_dynamic_module_on_http_filter_destroy((*self.state).module);
            let events = &(*self.state).events;
            locked(&events.posted).is_destroyed = true;
            drop(Box::from_raw(self.state));
        }
    }
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Whether this thread plays an Envoy that only validates its configuration.
    static VALIDATES: Cell<bool> = const { Cell::new(false) };
}

static LOG: Mutex<Vec<(LogLevel, String)>> = Mutex::new(Vec::new());

/// Returns the logged lines that contain `about`.
pub(crate) fn logged(about: &str) -> String {
    let log = locked(&LOG);
    log.iter()
        .filter(|(_, line)| line.contains(about))
        .map(|(_, line)| line.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

fn buffer(bytes: &[u8]) -> EnvoyBuffer {
    EnvoyBuffer { data: bytes.as_ptr().cast(), length: bytes.len() }
}

unsafe fn bytes<'a>(buffer: ModuleBuffer<'a>) -> &'a [u8] {
    // SAFETY: the module's bytes outlive the callback.
    unsafe { slice::from_raw_parts(buffer.data.cast(), buffer.length) }
}

unsafe fn text(buffer: ModuleBuffer<'_>) -> String {
    // SAFETY: as above.
    String::from_utf8(unsafe { bytes(buffer) }.to_vec()).unwrap()
}

/// Envoy's callbacks. `abi.rs` states when each callback may be called.
mod callbacks {
    use super::*;

    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_callback_log(level: LogLevel, message: ModuleBuffer<'_>) {
        // SAFETY: see the module.
        locked(&LOG).push((level, unsafe { text(message) }));
    }

    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_callback_log_enabled(level: LogLevel) -> bool {
        level >= abi::INFO
    }

    #[unsafe(no_mangle)]
    extern "C" fn envoy_dynamic_module_callback_is_validation_mode() -> bool {
        VALIDATES.get()
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_get_header(
        stream: *mut EnvoyStream,
        of: HeaderType,
        name: ModuleBuffer<'_>,
        value: *mut EnvoyBuffer,
        index: usize,
        values: *mut usize,
    ) -> bool {
        // SAFETY: see the module.
        unsafe {
            let state = stream.cast::<State>();
            let headers = if of == abi::REQUEST_HEADERS { &(*state).request } else { &(*state).response };
            let name = text(name);
            let mut found = headers.iter().filter(|(it, _)| *it == name);
            if !values.is_null() {
                *values = found.clone().count();
            }
            let found = found.nth(index);
            *value = found.map_or(EnvoyBuffer::NONE, |(_, value)| buffer(value));
            found.is_some()
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_set_header(
        stream: *mut EnvoyStream,
        of: HeaderType,
        name: ModuleBuffer<'_>,
        value: ModuleBuffer<'_>,
    ) -> bool {
        assert_eq!(of, abi::RESPONSE_HEADERS);
        // SAFETY: see the module.
        unsafe {
            let headers = &mut (*stream.cast::<State>()).response;
            let name = text(name);
            headers.retain(|(it, _)| *it != name);
            headers.push((name, bytes(value).to_vec()));
        }
        true
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_send_response(
        stream: *mut EnvoyStream,
        status: u32,
        headers: *const ModuleHeader<'_>,
        length: usize,
        body: ModuleBuffer<'_>,
        details: ModuleBuffer<'_>,
    ) {
        // SAFETY: see the module. Envoy runs the hook for the response immediately.
        unsafe {
            assert_eq!(text(details), "tollgate_refused");
            let state = stream.cast::<State>();
            let headers: Headers = slice::from_raw_parts(headers, length)
                .iter()
                .map(|header| (text(header.name), bytes(header.value).to_vec()))
                .collect();
            let status_header = (":status".to_owned(), status.to_string().into_bytes());
            (*state).response = std::iter::once(status_header).chain(headers.clone()).collect();
            let module = (*state).module;
            envoy_dynamic_module_on_http_filter_response_headers(stream, module, false);
            let after = &(&(*state).response)[1..];
            assert_eq!(after, headers.as_slice(), "a refusal gets no fields a second time");
            let status = u16::try_from(status).unwrap();
            (*state).answer = Some(Answer { status, headers, body: bytes(body).to_vec() });
            (*state).is_suspended = false;
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_filter_continue_decoding(
        stream: *mut EnvoyStream,
    ) {
        // SAFETY: see the module.
        unsafe {
            let state = stream.cast::<State>();
            assert!((*state).is_suspended, "it continues what it has suspended");
            (*state).is_suspended = false;
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_filter_scheduler_new(
        stream: *mut EnvoyStream,
    ) -> *mut EnvoyScheduler {
        SCHEDULERS.fetch_add(1, Relaxed);
        // SAFETY: see the module.
        let events = unsafe { Arc::clone(&(*stream.cast::<State>()).events) };
        Box::into_raw(Box::new(events)).cast()
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_filter_scheduler_commit(
        scheduler: *mut EnvoyScheduler,
        event: EventId,
    ) {
        assert_eq!(event, 0);
        // SAFETY: see the module.
        let events = unsafe { &*scheduler.cast::<Arc<Events>>() };
        // ORDERING: relaxed, because nothing depends on the delay.
        let delay = Duration::from_micros(POSTING.load(Relaxed));
        // The module must not destroy the filter in the meantime.
        thread::sleep(delay);
        let mut posted = locked(&events.posted);
        // A panic here ends the process.
        assert!(!posted.is_destroyed, "an event was posted to a worker that may have ended");
        posted.waiting += 1;
        events.changed.notify_all();
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_filter_scheduler_delete(
        scheduler: *mut EnvoyScheduler,
    ) {
        SCHEDULERS.fetch_sub(1, Relaxed);
        // SAFETY: see the module.
        drop(unsafe { Box::from_raw(scheduler.cast::<Arc<Events>>()) });
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        stream: *mut EnvoyStream,
        attribute: Attribute,
        value: *mut EnvoyBuffer,
    ) -> bool {
        assert_eq!(attribute, abi::SOURCE_ADDRESS);
        // SAFETY: see the module.
        unsafe {
            *value = buffer((*stream.cast::<State>()).client.as_bytes());
        }
        true
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_get_metadata_string(
        stream: *mut EnvoyStream,
        of: MetadataSource,
        namespace: ModuleBuffer<'_>,
        key: ModuleBuffer<'_>,
        value: *mut EnvoyBuffer,
    ) -> bool {
        assert_eq!(of, abi::ROUTE);
        // SAFETY: see the module.
        unsafe {
            let tenant = (*stream.cast::<State>()).tenant;
            let found =
                tenant.filter(|_| (text(namespace), text(key)) == ("com.example".into(), "tenant".into()));
            *value = found.map_or(EnvoyBuffer::NONE, |tenant| buffer(tenant.as_bytes()));
            found.is_some()
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_set_dynamic_metadata_string(
        stream: *mut EnvoyStream,
        namespace: ModuleBuffer<'_>,
        key: ModuleBuffer<'_>,
        value: ModuleBuffer<'_>,
    ) {
        // SAFETY: see the module.
        unsafe {
            (*stream.cast::<State>()).metadata.push([text(namespace), text(key), text(value)]);
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_set_dynamic_metadata_number(
        stream: *mut EnvoyStream,
        namespace: ModuleBuffer<'_>,
        key: ModuleBuffer<'_>,
        value: f64,
    ) {
        // SAFETY: see the module.
        unsafe {
            (*stream.cast::<State>()).metadata.push([text(namespace), text(key), value.to_string()]);
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_filter_config_define_counter(
        config: *mut EnvoyConfig,
        name: ModuleBuffer<'_>,
        _labels: *const ModuleBuffer<'_>,
        labels: usize,
        id: *mut usize,
    ) -> MetricsResult {
        assert_eq!(labels, 0);
        // SAFETY: see the module.
        unsafe {
            let mut counters = locked(&(*config.cast::<Config>()).counters);
            *id = counters.len();
            counters.push((text(name), 0));
        }
        abi::SUCCESS
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_filter_config_define_gauge(
        config: *mut EnvoyConfig,
        name: ModuleBuffer<'_>,
        labels_of: *const ModuleBuffer<'_>,
        labels: usize,
        id: *mut usize,
    ) -> MetricsResult {
        // SAFETY: see the module. The host keeps counters and gauges in one list.
        unsafe {
            envoy_dynamic_module_callback_http_filter_config_define_counter(
                config, name, labels_of, labels, id,
            )
        }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_filter_set_gauge(
        stream: *mut EnvoyStream,
        id: usize,
        _labels: *const ModuleBuffer<'_>,
        _length: usize,
        value: u64,
    ) -> MetricsResult {
        // SAFETY: see the module.
        unsafe {
            let config = (*stream.cast::<State>()).config;
            locked(&(*config).counters)[id].1 = value;
        }
        abi::SUCCESS
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn envoy_dynamic_module_callback_http_filter_increment_counter(
        stream: *mut EnvoyStream,
        id: usize,
        _labels: *const ModuleBuffer<'_>,
        _length: usize,
        by: u64,
    ) -> MetricsResult {
        // SAFETY: see the module.
        unsafe {
            let config = (*stream.cast::<State>()).config;
            locked(&(*config).counters)[id].1 += by;
        }
        abi::SUCCESS
    }
}
