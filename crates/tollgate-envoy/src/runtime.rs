//! The thread that talks to the stores of shared limits.
//!
//! One thread with one tokio runtime belongs to the module. The first configuration with shared
//! limits starts the thread, and the thread ends with the last one. It sends requests to the
//! stores, receives answers and keeps deadlines. It never calls a hook, and no worker waits for it:
//! workers poll the checks of their own streams (`suspended.rs`).
//!
//! # End
//!
//! The last configuration drops its limits before the thread. What then still runs on the thread
//! reports counts to a store, or releases permits. The thread waits for these tasks for at most
//! [`LAST_MOMENT`], and only as long as a store that they use may answer. Envoy's main thread waits
//! for the end of the thread, because the process may end next. A worker that destroys a
//! configuration does not wait.

use crate::log::ThreadLog;
use crate::suspended::YIELDS;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tollgate_redis::program::StoreLink;

/// How long tasks may run after the last configuration has ended.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// How often the thread looks whether the last tasks have ended.
const LAST_LOOK: Duration = Duration::from_millis(2);

/// How long Envoy's main thread waits for the thread to end.
const PATIENCE: Duration = Duration::from_secs(3);

static RUNNING: Mutex<Weak<StoreRuntime>> = Mutex::new(Weak::new());

/// The thread, as long as a configuration uses it.
pub(crate) struct StoreRuntime {
    handle: Handle,
    /// Dropping the sender ends the thread.
    end: Option<oneshot::Sender<()>>,
    /// Is disconnected when the thread has ended. Only the destructor uses the receiver.
    ended: Mutex<Receiver<()>>,
    /// The stores that the thread talks to.
    links: Arc<Mutex<Vec<StoreLink>>>,
    log: ThreadLog,
    /// The thread that started this one, which is Envoy's main thread.
    main: ThreadId,
}

impl StoreRuntime {
    /// Returns the module's thread. Starts it if no configuration uses it.
    ///
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub(crate) fn get() -> Result<Arc<Self>, String> {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = running.upgrade() {
            return Ok(runtime);
        }
        let runtime = Arc::new(Self::start()?);
        *running = Arc::downgrade(&runtime);
        Ok(runtime)
    }

    fn start() -> Result<Self, String> {
        let refused = |error: std::io::Error| {
            format!(
                "redis: no thread for the store: {error}; raise the limit of threads or file descriptors of Envoy, or \
                 leave redis out"
            )
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("tollgate-store")
            .build()
            .map_err(refused)?;
        let handle = runtime.handle().clone();
        let of_thread: Arc<Mutex<Vec<StoreLink>>> = Arc::default();
        let links = Arc::clone(&of_thread);
        let (end, ending) = oneshot::channel::<()>();
        let (ends, ended) = sync_channel::<()>(0);
        let run = move || {
            runtime.block_on(async {
                let _ = ending.await;
                let last = Instant::now() + LAST_MOMENT;
                while may_be_told(&links) && Instant::now() < last {
                    sleep(LAST_LOOK).await;
                }
            });
            // A lookup of a host's name may block its thread for many seconds.
            runtime.shutdown_background();
            drop(ends);
        };
        thread::Builder::new().name("tollgate-store".to_owned()).spawn(run).map_err(refused)?;
        Ok(Self {
            handle,
            end: Some(end),
            ended: Mutex::new(ended),
            links: of_thread,
            log: ThreadLog::default(),
            main: thread::current().id(),
        })
    }

    /// Makes this the runtime of the current thread until the guard is dropped.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.handle.spawn(task).abort_handle()
    }

    /// Lets the tasks that use a store end before the thread, as long as the store may answer.
    pub(crate) fn wait_for(&self, store: StoreLink) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(StoreLink::is_used);
        links.push(store);
    }

    /// Returns the log for tasks of the thread.
    pub(crate) fn log(&self) -> ThreadLog {
        self.log.clone()
    }

    /// Runs a task to its end. The first part of the task, in which it sends its requests, runs
    /// before this method returns.
    pub(crate) fn run(&self, mut task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let _entered = self.enter();
        let mut poll = || task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if (0..=YIELDS).all(|_| poll() == Poll::Pending) {
            self.handle.spawn(task);
        }
    }
}

/// Returns whether a task has something to tell a store that may answer.
fn may_be_told(links: &Mutex<Vec<StoreLink>>) -> bool {
    let links = links.lock().unwrap_or_else(PoisonError::into_inner);
    Handle::current().metrics().num_alive_tasks() > 0 && links.iter().any(StoreLink::may_answer)
}

impl Drop for StoreRuntime {
    fn drop(&mut self) {
        drop(self.end.take());
        if thread::current().id() == self.main {
            let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
            // The sender is only dropped, so the result is an error in any case.
            let _ = ended.recv_timeout(PATIENCE);
            // Envoy may destroy its log next.
            self.log.close();
        }
    }
}
