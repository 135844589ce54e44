//! An asynchronous limiter that answers when the test allows it, and services that use this
//! limiter.

use super::gate::Gate;
use super::site::{Answer, Handler, Site};
use http::Request;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tollgate::{Decision, Limiter, Quota};
use tollgate_http::{AsyncLimiter, Key, RateLimitLayer, RateLimitService};
use tower::{Layer, ServiceExt};

/// A limiter on another machine. It receives calls immediately, but holds back its answers while it
/// is closed.
pub(crate) struct Elsewhere {
    limiter: Limiter<Key>,
    gate: Gate,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: Vec<String>,
    tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Elsewhere {
    pub(crate) fn new(limiter: Limiter<Key>) -> Arc<Self> {
        Arc::new(Self { limiter, gate: Gate::default(), state: Mutex::default() })
    }

    pub(crate) fn close(&self) {
        self.gate.close();
    }

    pub(crate) fn open(&self) {
        self.gate.open();
    }

    /// Polls each task of the limiter once. Returns the number of unfinished tasks.
    pub(crate) fn run_tasks(&self) -> usize {
        let mut tasks = std::mem::take(&mut self.state.lock().unwrap().tasks);
        tasks.retain_mut(|task| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let left = tasks.len();
        self.state.lock().unwrap().tasks.append(&mut tasks);
        left
    }

    /// Drops the tasks, as a runtime does when it ends.
    pub(crate) fn drop_tasks(&self) {
        self.state.lock().unwrap().tasks.clear();
    }

    /// Returns the calls made since this method was last called: `check 1`, `refund 1`, `force 1`.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    pub(crate) fn left(&self, key: &Key) -> u64 {
        self.limiter.peek(key).remaining()
    }

    /// Returns the number of charged tokens, including the debt. The quota must be per hour.
    pub(crate) fn charged(&self, key: &Key) -> u64 {
        let answer = self.limiter.peek(key);
        let wait = answer.retry_after().map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap());
        answer.capacity() - answer.remaining() + (wait * answer.capacity() / 3_600_000).saturating_sub(1)
    }

    pub(crate) fn reset(&self, key: &Key) {
        self.limiter.reset(key);
    }

    async fn answer<T>(&self, call: String, act: impl FnOnce() -> T) -> T {
        self.state.lock().unwrap().calls.push(call);
        let answer = act();
        self.gate.pass().await;
        answer
    }
}

impl AsyncLimiter for Elsewhere {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        Box::pin(self.answer(format!("check {cost}"), move || self.limiter.check_n(key, cost)))
    }

    fn refund_n<'a>(
        &'a self,
        key: &'a Key,
        decision: &'a Decision,
        tokens: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let call = format!("refund {}", decision.charged().min(tokens));
        Box::pin(self.answer(call, move || self.limiter.refund_n(key, decision, tokens)))
    }

    fn force<'a>(&'a self, key: &'a Key, tokens: u64) -> Pin<Box<dyn Future<Output = u64> + Send + 'a>> {
        Box::pin(self.answer(format!("force {tokens}"), move || self.limiter.force(key, tokens)))
    }

    fn quota(&self) -> Quota {
        self.limiter.quota()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.state.lock().unwrap().tasks.push(task);
    }
}

/// A limiter on another machine with two classes of callers.
#[derive(Clone)]
pub(crate) struct WithClass {
    default: Arc<Elsewhere>,
    name: &'static str,
    named: Arc<Elsewhere>,
}

impl Elsewhere {
    pub(crate) fn with_class(self: &Arc<Self>, name: &'static str, named: &Arc<Self>) -> WithClass {
        WithClass { default: Arc::clone(self), name, named: Arc::clone(named) }
    }
}

impl AsyncLimiter for WithClass {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        self.default.check_n(key, cost)
    }

    fn refund_n<'a>(
        &'a self,
        key: &'a Key,
        decision: &'a Decision,
        tokens: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.default.refund_n(key, decision, tokens)
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.default.spawn(task);
    }

    fn quota(&self) -> Quota {
        self.default.quota()
    }

    fn classes(self: Arc<Self>) -> Vec<(String, Arc<dyn AsyncLimiter>)> {
        let class = |name: &str, limiter: &Arc<Elsewhere>| -> (String, Arc<dyn AsyncLimiter>) {
            (name.to_owned(), Arc::new(Arc::clone(limiter)))
        };
        vec![class("default", &self.default), class(self.name, &self.named)]
    }
}

impl Site {
    pub(crate) fn elsewhere(&self, quota: Quota) -> Arc<Elsewhere> {
        Elsewhere::new(self.limiter(quota))
    }

    pub(crate) fn run_shared(self) -> Waits {
        Waits { layer: self.builder.build().unwrap() }
    }
}

pub(crate) struct Waits {
    pub(crate) layer: RateLimitLayer,
}

impl Waits {
    pub(crate) fn service(&self) -> RateLimitService<Handler> {
        self.layer.layer(Handler)
    }

    pub(crate) fn under_way(&self, request: Request<()>) -> UnderWay {
        let service = self.service();
        UnderWay(Box::pin(async { service.oneshot(request).await.map(Answer::of) }))
    }

    /// Sends a request and returns its result. All of the request's limiters must be open.
    pub(crate) fn call(&self, request: Request<()>) -> Result<Answer, String> {
        self.under_way(request).result().expect("nobody was to be waited for")
    }

    pub(crate) fn send(&self, request: Request<()>) -> Answer {
        self.call(request).unwrap()
    }

    pub(crate) fn statuses<const N: usize>(&self, requests: [Request<()>; N]) -> [u16; N] {
        requests.map(|request| self.send(request).status.as_u16())
    }
}

/// A request in progress.
pub(crate) struct UnderWay(Pin<Box<dyn Future<Output = Result<Answer, String>> + Send>>);

impl Future for UnderWay {
    type Output = Result<Answer, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl UnderWay {
    /// Polls the request once, and returns its result if the request has ended.
    pub(crate) fn result(&mut self) -> Option<Result<Answer, String>> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    pub(crate) fn answer(&mut self) -> Option<Answer> {
        self.result().map(Result::unwrap)
    }

    pub(crate) fn status(&mut self) -> Option<u16> {
        self.answer().map(|answer| answer.status.as_u16())
    }
}
