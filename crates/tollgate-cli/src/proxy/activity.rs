//! Tracks the activity on a client's connection.
//!
//! The proxy uses the numbers in [`Activity`] only to decide when to close a connection. All
//! operations on these numbers are relaxed, except for one release/acquire pair. When a response
//! begins, its request is counted in `sending` before it is removed from `waiting`, so the
//! connection never seems idle in between.
//!
//! hyper takes the last frame of a response long before the client has accepted it. A response is
//! therefore counted once for its body and once for each frame that hyper has taken and not yet
//! written. A frame may wait for the socket, or for the client's flow-control window.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

/// A connection's protocol, which determines which events count as activity.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Speaks {
    /// No request has arrived yet. No event counts.
    Nothing = 0,
    /// Bytes accepted by the client count, and so do body frames.
    Http1 = 1,
    /// Only body frames count. Other bytes on the connection do not, because a client whose
    /// flow-control window is closed still receives answers to its pings.
    Http2 = 2,
    /// A WebSocket. Bytes count in either direction.
    Tunnel = 3,
}

/// The requests in progress on a connection, and the time of its last activity.
pub(crate) struct Activity {
    begun: Instant,
    /// The time of the last activity, in milliseconds after `begun`.
    moved: AtomicU64,
    speaks: AtomicU8,
    /// The number of requests whose response has not begun.
    waiting: AtomicUsize,
    /// The number of responses that have begun but not ended, and of their unwritten frames.
    sending: AtomicUsize,
    /// Whether the last write is waiting for the client's socket.
    is_blocked: AtomicBool,
    /// Whether the head of a request has begun and not ended.
    in_head: AtomicBool,
    /// Is notified when the client's address has used up its quota of bad requests.
    blocked: Notify,
}

/// Whether a connection may continue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The connection may continue, and must be rechecked after this time.
    For(Duration),
    /// The connection has no request in progress, and no new request arrived in time.
    Idle,
    /// All responses on the connection have stalled for too long, or the head of a request has not
    /// ended in time.
    Stalled,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            moved: AtomicU64::new(0),
            speaks: AtomicU8::new(Speaks::Nothing as u8),
            waiting: AtomicUsize::new(0),
            sending: AtomicUsize::new(0),
            is_blocked: AtomicBool::new(false),
            in_head: AtomicBool::new(false),
            blocked: Notify::new(),
        })
    }

    /// Begins a request, which is in progress until the returned guard is dropped. Once the
    /// response has begun, its body owns the guard.
    pub(crate) fn begin(self: &Arc<Self>, is_http2: bool) -> InProgress {
        self.speak(if is_http2 { Speaks::Http2 } else { Speaks::Http1 });
        // ORDERING: relaxed, as the module documentation explains.
        self.waiting.fetch_add(1, Relaxed);
        self.touch();
        InProgress { activity: Arc::clone(self), is_sending: false }
    }

    /// Turns the connection into a tunnel.
    pub(crate) fn tunnel(&self) {
        self.speak(Speaks::Tunnel);
        self.touch();
    }

    /// Returns whether the connection may continue. While a request waits for its response, the
    /// result is always true, because such a request has its own timeout. A response may stall for
    /// twice as long as `idle`. A body that waits for the upstream thus times out before the
    /// connection does, and other requests on the connection can continue.
    pub(crate) fn standing(&self, head: Duration, idle: Duration) -> Standing {
        // ORDERING: acquire; if a request has been removed from `waiting`, the load of `sending`
        // below sees its response.
        if self.waiting.load(Acquire) > 0 {
            return Standing::For(idle);
        }
        // ORDERING: relaxed, as the module documentation explains.
        let is_sending = self.sending.load(Relaxed) > 0 || self.is_blocked.load(Relaxed);
        let (allowed, over) = match is_sending {
            true => (idle * 2, Standing::Stalled),
            // ORDERING: relaxed, as the module documentation explains.
            false if self.in_head.load(Relaxed) => (head, Standing::Stalled),
            false => (head, Standing::Idle),
        };
        allowed.checked_sub(self.still()).filter(|left| !left.is_zero()).map_or(over, Standing::For)
    }

    /// Returns the time since the last activity.
    pub(crate) fn still(&self) -> Duration {
        // ORDERING: relaxed, as the module documentation explains.
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.moved.load(Relaxed)))
    }

    /// Records the result of a write to the client's socket.
    pub(crate) fn wrote(&self, written: &Poll<io::Result<usize>>) {
        // ORDERING: relaxed, as the module documentation explains.
        self.is_blocked.store(written.is_pending(), Relaxed);
        if matches!(written, Poll::Ready(Ok(1..))) && self.speaks(&[Speaks::Http1, Speaks::Tunnel]) {
            self.touch();
        }
    }

    /// Records that the client has sent bytes, and whether they end within the head of a request.
    /// The time for a head begins with the head.
    pub(crate) fn read(&self, in_head: bool) {
        // ORDERING: relaxed, as the module documentation explains.
        let was_in_head = self.in_head.swap(in_head, Relaxed);
        if in_head && !was_in_head || self.speaks(&[Speaks::Tunnel]) {
            self.touch();
        }
    }

    /// Ends the connection, because its client's address has used up its quota of bad requests.
    pub(crate) fn block(&self) {
        self.blocked.notify_one();
    }

    /// Waits until the connection must end because of its client's bad requests.
    pub(crate) async fn blocked(&self) {
        self.blocked.notified().await;
    }

    fn speak(&self, speaks: Speaks) {
        // ORDERING: relaxed, as the module documentation explains.
        self.speaks.store(speaks as u8, Relaxed);
    }

    pub(crate) fn speaks(&self, one_of: &[Speaks]) -> bool {
        // ORDERING: relaxed, as the module documentation explains.
        let speaks = self.speaks.load(Relaxed);
        one_of.iter().any(|&it| it as u8 == speaks)
    }

    /// Records the current time as the time of the last activity.
    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // ORDERING: relaxed, as the module documentation explains.
        self.moved.store(now, Relaxed);
    }
}

/// A request in progress on a connection.
pub(crate) struct InProgress {
    activity: Arc<Activity>,
    is_sending: bool,
}

impl InProgress {
    /// Records that the response has begun.
    pub(crate) fn answered<B>(mut self, body: B) -> Sending<B> {
        self.activity.touch();
        // ORDERING: relaxed; the release operation below publishes this count.
        self.activity.sending.fetch_add(1, Relaxed);
        // ORDERING: release; this operation publishes the count above and the time of the activity.
        self.activity.waiting.fetch_sub(1, Release);
        self.is_sending = true;
        Sending { body, progress: self }
    }

    /// Returns the bytes of a response that has begun. The response is in progress until the
    /// returned bytes are dropped.
    fn unwritten(&self, bytes: Bytes) -> Bytes {
        // ORDERING: relaxed, as the module documentation explains.
        self.activity.sending.fetch_add(1, Relaxed);
        let progress = Self { activity: Arc::clone(&self.activity), is_sending: true };
        Bytes::from_owner(Unwritten { bytes, _progress: progress })
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.activity.touch();
        let counted = if self.is_sending { &self.activity.sending } else { &self.activity.waiting };
        // ORDERING: relaxed, as the module documentation explains.
        counted.fetch_sub(1, Relaxed);
    }
}

/// A frame of a response that hyper has not written.
struct Unwritten {
    bytes: Bytes,
    _progress: InProgress,
}

impl AsRef<[u8]> for Unwritten {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of a response. Its frames count as activity when hyper takes them, and when hyper has
/// written them.
pub(crate) struct Sending<B> {
    body: B,
    progress: InProgress,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Sending<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.progress.activity.touch();
        let unwritten = |frame: Frame<Bytes>| frame.map_data(|bytes| self.progress.unwritten(bytes));
        Poll::Ready(frame.map(|frame| frame.map(unwritten)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
impl Activity {
    /// Returns the activity of a connection on which nothing has moved for an hour.
    pub(crate) fn still_for_an_hour(speaks: Speaks) -> Arc<Self> {
        let begun = Instant::now().checked_sub(Duration::from_secs(3600)).expect("a time");
        let activity = Self { begun, ..Arc::into_inner(Self::new()).expect("one owner") };
        activity.speak(speaks);
        Arc::new(activity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_or_stalled_by_what_is_in_progress() {
        let (none, long) = (Duration::ZERO, Duration::from_secs(3600));
        let activity = Activity::new();
        assert_eq!(activity.standing(none, long), Standing::Idle);
        assert!(matches!(activity.standing(long, none), Standing::For(_)));
        let request = activity.begin(true);
        assert_eq!(activity.standing(none, long), Standing::For(long));
        let body = request.answered(());
        assert_eq!(activity.standing(long, none), Standing::Stalled);
        assert!(matches!(activity.standing(none, long), Standing::For(_)));
        let bytes = body.progress.unwritten(Bytes::from_static(b"x"));
        drop(body);
        assert!(matches!(activity.standing(none, long), Standing::For(_)));
        drop(bytes);
        assert_eq!(activity.standing(none, long), Standing::Idle);
        activity.wrote(&Poll::Pending);
        assert!(matches!(activity.standing(none, long), Standing::For(_)));
        activity.wrote(&Poll::Ready(Ok(1)));
        assert_eq!(activity.standing(none, long), Standing::Idle);
        for (in_head, over) in [(true, Standing::Stalled), (true, Standing::Stalled), (false, Standing::Idle)]
        {
            activity.read(in_head);
            assert_eq!(activity.standing(none, long), over);
        }
    }

    #[test]
    fn the_time_of_a_head_begins_with_it_and_not_with_each_byte() {
        let activity = Activity::still_for_an_hour(Speaks::Nothing);
        activity.read(false);
        assert!(activity.still() > Duration::from_secs(3_000));
        activity.read(true);
        assert!(activity.still() < Duration::from_secs(3_000));
        let activity = Activity::still_for_an_hour(Speaks::Http2);
        // ORDERING: relaxed, as the module documentation explains.
        activity.in_head.store(true, Relaxed);
        activity.read(true);
        assert!(activity.still() > Duration::from_secs(3_000));
    }
}
