//! A connection of a client: its place under the caps, and whether anything moves on it.
//!
//! [`Activity`] holds independent numbers that only decide when a connection is given up; nothing
//! is published through them, so all its operations are relaxed.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use scc::hash_map::Entry;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use crate::proxy::observe::metrics::Metrics;

/// The open connections of each address. It holds an entry for each address that has any.
pub(crate) struct Addresses {
    open: scc::HashMap<IpAddr, usize>,
    most: usize,
    ipv6_prefix: u8,
}

impl Addresses {
    /// Creates a count that admits `most` connections of an address, or of an IPv6 network with
    /// this prefix.
    pub(crate) fn new(most: usize, ipv6_prefix: u8) -> Arc<Self> {
        Arc::new(Self { open: scc::HashMap::new(), most, ipv6_prefix })
    }

    /// Counts a connection of this address until the place is dropped; `None` if it has too many.
    pub(crate) fn enter(self: &Arc<Self>, ip: IpAddr) -> Option<Place> {
        let network = network(ip, self.ipv6_prefix);
        match self.open.entry_sync(network) {
            Entry::Occupied(open) if *open.get() >= self.most => return None,
            Entry::Occupied(mut open) => *open.get_mut() += 1,
            Entry::Vacant(none) => drop(none.insert_entry(1)),
        }
        Some(Place { addresses: Arc::clone(self), network })
    }
}

/// One connection of an address, counted until this is dropped.
pub(crate) struct Place {
    addresses: Arc<Addresses>,
    network: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.addresses.open.remove_if_sync(&self.network, |open| {
            *open -= 1;
            *open == 0
        });
    }
}

/// Returns an IPv4 address as it is, and an IPv6 address without the bits behind the prefix.
fn network(ip: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => {
            let host_bits = 128_u32.saturating_sub(u32::from(ipv6_prefix));
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
        v4 => v4,
    }
}

/// What is spoken on a connection, and so what counts as movement.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Speaks {
    /// The first request has not come. Nothing counts.
    Nothing = 0,
    /// Bytes that the client takes count, and frames of bodies.
    Http1 = 1,
    /// Frames of bodies count. Bytes do not: a client that opens no window still gets answers to
    /// its pings.
    Http2 = 2,
    /// A WebSocket: bytes count in either direction.
    Tunnel = 3,
}

/// Whether a connection has requests in progress, and when something last moved on it.
pub(crate) struct Activity {
    begun: Instant,
    /// In milliseconds from the beginning.
    moved: AtomicU64,
    speaks: AtomicU8,
    /// Requests whose response has not begun.
    waiting: AtomicUsize,
    /// Responses that have begun and not ended.
    sending: AtomicUsize,
}

/// Whether a connection may go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may, and is to be looked at again after this time.
    For(Duration),
    /// It has no request, and none came in time.
    Idle,
    /// Nothing of its responses has moved in time.
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
        })
    }

    /// Begins a request. It is in progress until the guard is dropped, or the body of its response.
    pub(crate) fn begin(self: &Arc<Self>, is_http2: bool) -> InProgress {
        self.speak(if is_http2 { Speaks::Http2 } else { Speaks::Http1 });
        // ORDERING: relaxed, as the page says.
        self.waiting.fetch_add(1, Relaxed);
        self.touch();
        InProgress { activity: Arc::clone(self), is_sending: false }
    }

    /// Turns the connection into a tunnel.
    pub(crate) fn tunnel(&self) {
        self.speak(Speaks::Tunnel);
        self.touch();
    }

    /// Says whether the connection may go on. A request that waits for its response has a timeout
    /// of its own. A response that stalls may take twice `idle`, so that a body which waits for
    /// the upstream ends by itself, and other requests of the connection continue.
    pub(crate) fn standing(&self, head: Duration, idle: Duration) -> Standing {
        // ORDERING: relaxed here and below, as the page says.
        if self.waiting.load(Relaxed) > 0 {
            return Standing::For(idle);
        }
        // ORDERING: relaxed.
        let is_sending = self.sending.load(Relaxed) > 0;
        let (allowed, over) = if is_sending { (idle * 2, Standing::Stalled) } else { (head, Standing::Idle) };
        allowed.checked_sub(self.still()).filter(|left| !left.is_zero()).map_or(over, Standing::For)
    }

    /// Returns for how long nothing has moved.
    pub(crate) fn still(&self) -> Duration {
        // ORDERING: relaxed, as the page says.
        self.begun.elapsed().saturating_sub(Duration::from_millis(self.moved.load(Relaxed)))
    }

    fn speak(&self, speaks: Speaks) {
        // ORDERING: relaxed, as the page says.
        self.speaks.store(speaks as u8, Relaxed);
    }

    fn speaks(&self, one_of: &[Speaks]) -> bool {
        // ORDERING: relaxed, as the page says.
        let speaks = self.speaks.load(Relaxed);
        one_of.iter().any(|&it| it as u8 == speaks)
    }

    /// Something has moved.
    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // ORDERING: relaxed, as the page says.
        self.moved.store(now, Relaxed);
    }
}

/// A request in progress on a connection.
pub(crate) struct InProgress {
    activity: Arc<Activity>,
    is_sending: bool,
}

impl InProgress {
    /// The response has begun.
    pub(crate) fn answered<B>(mut self, body: B) -> Sending<B> {
        // ORDERING: relaxed, as the page says. The second is counted before the first is
        // discounted, so that the connection never seems idle.
        self.activity.sending.fetch_add(1, Relaxed);
        self.activity.waiting.fetch_sub(1, Relaxed);
        self.is_sending = true;
        self.activity.touch();
        Sending { body, progress: self }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.activity.touch();
        let counted = if self.is_sending { &self.activity.sending } else { &self.activity.waiting };
        // ORDERING: relaxed, as the page says.
        counted.fetch_sub(1, Relaxed);
    }
}

/// The body of a response, whose frames count as movement.
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
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A client's socket. It keeps its place until it is closed, also as a tunnel.
pub(crate) struct Connection {
    stream: TcpStream,
    activity: Arc<Activity>,
    _place: Option<Place>,
    _room: Option<OwnedSemaphorePermit>,
    _open: Open,
}

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        activity: Arc<Activity>,
        place: Option<Place>,
        room: Option<OwnedSemaphorePermit>,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.connections.inc();
        metrics.open_connections.inc();
        Self { stream, activity, _place: place, _room: room, _open: Open(metrics) }
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(1..))) && self.activity.speaks(&[Speaks::Http1, Speaks::Tunnel]) {
            self.activity.touch();
        }
        written
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if self.activity.speaks(&[Speaks::Tunnel]) {
            self.activity.touch();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Counts a connection in the metrics as long as it is open.
struct Open(Arc<Metrics>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open_connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_ipv6_network_has_as_many_places_as_stated() {
        let addresses = Addresses::new(2, 64);
        let enter = |ip: &str| addresses.enter(ip.parse().expect("an address"));
        let held = (enter("192.0.2.1"), enter("::ffff:192.0.2.1"));
        assert!(held.0.is_some() && held.1.is_some() && enter("192.0.2.1").is_none());
        assert!(enter("192.0.2.2").is_some());
        drop(held);
        assert!(enter("192.0.2.1").is_some());
        let held = (enter("2001:db8::1"), enter("2001:db8::ffff:0:0:2"));
        assert!(held.1.is_some() && enter("2001:db8::3").is_none() && enter("2001:db8:0:1::3").is_some());
        drop(held);
        assert!(addresses.open.is_empty(), "an address without connections takes no memory");
    }

    #[test]
    fn any_prefix_makes_a_network() {
        let ip: IpAddr = "2001:db8::1".parse().expect("an address");
        for (prefix, expected) in
            [(0, "::"), (1, "::"), (32, "2001:db8::"), (127, "2001:db8::"), (128, "2001:db8::1")]
        {
            assert_eq!(network(ip, prefix).to_string(), expected, "/{prefix}");
        }
    }

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
        drop(body);
        assert_eq!(activity.standing(none, long), Standing::Idle);
    }

    /// An activity in which nothing has moved for an hour.
    fn still(speaks: Speaks) -> Arc<Activity> {
        let begun = Instant::now().checked_sub(Duration::from_secs(3600)).expect("a time");
        let activity = Activity { begun, ..Arc::into_inner(Activity::new()).expect("one owner") };
        activity.speak(speaks);
        Arc::new(activity)
    }

    #[tokio::test]
    async fn bytes_count_as_movement_where_they_show_that_the_other_side_takes_them() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        for (speaks, written_counts, read_counts) in [
            (Speaks::Nothing, false, false),
            (Speaks::Http1, true, false),
            (Speaks::Http2, false, false),
            (Speaks::Tunnel, true, true),
        ] {
            let mut client =
                TcpStream::connect(listener.local_addr().expect("bound")).await.expect("it listens");
            let (stream, _) = listener.accept().await.expect("a client");
            let metrics = Arc::new(Metrics::new(std::iter::empty()));
            let mut connection = Connection::new(stream, still(speaks), None, None, metrics);
            let moved = |connection: &Connection| connection.activity.still() < Duration::from_secs(60);
            connection.write_all(b"x").await.expect("a socket");
            assert_eq!(moved(&connection), written_counts);
            connection.activity = still(speaks);
            client.write_all(b"x").await.expect("a socket");
            connection.read_u8().await.expect("a byte");
            assert_eq!(moved(&connection), read_counts);
        }
    }
}
