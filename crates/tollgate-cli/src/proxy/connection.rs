//! Client connections: their sockets, and limits on their number.

mod frames;
pub(crate) mod target;

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use scc::hash_map::Entry;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tollgate_http::KeyPart;

use crate::proxy::activity::Activity;
use crate::proxy::telemetry::metrics::Metrics;
use frames::Frames;
use target::{BodyEnd, Targets};

/// Counts the open connections from each address. An address without open connections has no entry.
pub(crate) struct AddressCounts {
    open: scc::HashMap<KeyPart<'static>, usize>,
    most: usize,
    ipv6_prefix: u8,
}

impl AddressCounts {
    /// Creates a counter that allows `most` connections per IPv4 address, and `most` per IPv6
    /// network of the given prefix length.
    pub(crate) fn new(most: usize, ipv6_prefix: u8) -> Arc<Self> {
        Arc::new(Self { open: scc::HashMap::new(), most, ipv6_prefix })
    }

    /// Counts a connection from this address until the returned place is dropped. Returns `None` if
    /// the address already has the maximum number of connections.
    pub(crate) fn enter(self: &Arc<Self>, ip: IpAddr) -> Option<AddressPlace> {
        let network = KeyPart::address(ip, self.ipv6_prefix);
        match self.open.entry_sync(network.clone()) {
            Entry::Occupied(open) if *open.get() >= self.most => return None,
            Entry::Occupied(mut open) => *open.get_mut() += 1,
            Entry::Vacant(none) => drop(none.insert_entry(1)),
        }
        Some(AddressPlace { addresses: Arc::clone(self), network })
    }
}

/// A counted connection from an address. Dropping this value removes the connection from the count.
pub(crate) struct AddressPlace {
    addresses: Arc<AddressCounts>,
    network: KeyPart<'static>,
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        self.addresses.open.remove_if_sync(&self.network, |open| {
            *open -= 1;
            *open == 0
        });
    }
}

/// A client's socket. The socket occupies its place until it is closed, even after the connection
/// has become a tunnel.
pub(crate) struct Connection {
    stream: TcpStream,
    targets: Targets,
    frames: Frames,
    activity: Arc<Activity>,
    _place: Option<AddressPlace>,
    _permit: Option<OwnedSemaphorePermit>,
    _open: Open,
}

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        activity: Arc<Activity>,
        place: Option<AddressPlace>,
        permit: Option<OwnedSemaphorePermit>,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.connections.inc();
        metrics.open_connections.inc();
        let (targets, frames) = (Targets::new(), Frames::new());
        Self { stream, targets, frames, activity, _place: place, _permit: permit, _open: Open(metrics) }
    }

    /// Returns the [`BodyEnd`] of this connection. The service must set it for every request.
    pub(crate) fn body_end(&self) -> Arc<BodyEnd> {
        self.targets.body_end()
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.wrote(&written);
        written
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let filled = buffer.filled().len();
        ready!(this.targets.poll_read(&mut this.stream, context, buffer))?;
        this.frames.read(&buffer.filled()[filled..]);
        this.activity.read(this.frames.is_in_head().unwrap_or_else(|| this.targets.is_in_head()));
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

/// Counts a connection in the metrics for as long as the connection is open.
struct Open(Arc<Metrics>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open_connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::activity::Speaks;
    use std::time::Duration;

    #[test]
    fn an_address_or_ipv6_network_has_as_many_places_as_stated() {
        let addresses = AddressCounts::new(2, 64);
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
            let metrics = Arc::new(Metrics::new());
            let mut connection =
                Connection::new(stream, Activity::still_for_an_hour(speaks), None, None, metrics);
            let moved = |connection: &Connection| connection.activity.still() < Duration::from_secs(60);
            connection.write_all(b"x").await.expect("a socket");
            assert_eq!(moved(&connection), written_counts);
            connection.activity = Activity::still_for_an_hour(speaks);
            // An empty line begins no head.
            client.write_all(b"\n").await.expect("a socket");
            connection.read_u8().await.expect("a byte");
            assert_eq!(moved(&connection), read_counts);
            client.write_all(b"G").await.expect("a socket");
            connection.read_u8().await.expect("a byte");
            assert!(moved(&connection), "the time of a head begins with the head");
        }
    }
}
