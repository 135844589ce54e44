//! Defines [`Link`], a connection to the upstream. The connection may end at any time.
//!
//! The [`History`] of a connection determines whether a failed request may be sent again.
//!
//! If an upstream responds early and closes the connection before it has received the whole
//! request, a write fails even though the response can still be read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::{Extensions, Uri};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

/// The history of a connection to the upstream.
pub(crate) struct History {
    opened: Instant,
    /// Whether the upstream has sent any bytes since the proxy's last write, which may have failed.
    is_answered: AtomicBool,
}

impl History {
    fn begin() -> Arc<Self> {
        Arc::new(Self { opened: Instant::now(), is_answered: AtomicBool::new(false) })
    }

    /// Returns the history of the connection on which a request failed, or `None` if the request
    /// had no connection.
    pub(crate) fn of(error: &legacy::Error) -> Option<Arc<Self>> {
        let mut extensions = Extensions::new();
        error.connect_info()?.get_extras(&mut extensions);
        extensions.remove()
    }

    /// Returns whether the connection was already open when a request began. The upstream may have
    /// closed such a connection because it was idle.
    pub(crate) fn is_kept_from_before(&self, begun: Instant) -> bool {
        self.opened < begun
    }

    /// Returns whether the upstream has sent any bytes since the proxy's last write.
    pub(crate) fn is_answered(&self) -> bool {
        // ORDERING: relaxed; the connection's task reports the failure of a request through a
        // channel, and the channel orders this read after the task's stores.
        self.is_answered.load(Relaxed)
    }
}

/// Connects to the upstream.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) tcp: HttpConnector,
    /// Whether a failed write waits until all available bytes have been read. Must be `false` for
    /// HTTP/2, because an HTTP/2 connection does not read while it waits to answer a ping.
    pub(crate) reads_after_failed_writes: bool,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.tcp.call(uri);
        let reads_after_failed_writes = self.reads_after_failed_writes;
        Box::pin(async move {
            let stream = connecting.await?.into_inner();
            Ok(TokioIo::new(Link::new(stream, reads_after_failed_writes)))
        })
    }
}

/// A connection to the upstream.
pub(crate) struct Link {
    stream: TcpStream,
    history: Arc<History>,
    /// Whether a failed write may still wait until all available bytes have been read.
    may_wait: bool,
    /// The error of a failed write, stored until the upstream's last bytes have been read.
    failure: Option<io::Error>,
}

impl Link {
    fn new(stream: TcpStream, reads_after_failed_writes: bool) -> Self {
        Self { stream, history: History::begin(), may_wait: reads_after_failed_writes, failure: None }
    }

    /// Keeps a failed write pending, and stores its error, until the upstream's last bytes have
    /// been read. The pending write needs no waker, because a single task reads and writes, and
    /// polls both after a read.
    fn written(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Err(error)) if self.may_wait => {
                // As after a successful write, only later bytes can answer this request.
                // ORDERING: relaxed; see [`History::is_answered`].
                self.history.is_answered.store(false, Relaxed);
                self.failure = Some(error);
                Poll::Pending
            }
            written => {
                if matches!(written, Poll::Ready(Ok(1..))) {
                    // ORDERING: relaxed; see [`History::is_answered`].
                    self.history.is_answered.store(false, Relaxed);
                }
                written
            }
        }
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if buffer.filled().len() > before {
            // ORDERING: relaxed; see [`History::is_answered`].
            self.history.is_answered.store(true, Relaxed);
        } else if read.is_err() || buffer.remaining() > 0 {
            self.may_wait = false;
            // After a failed write, the end of the connection must not be mistaken for an orderly
            // end.
            if let Some(failure) = self.failure.take() {
                return Poll::Ready(Err(failure));
            }
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.failure.is_some() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.failure.is_some() {
            return Poll::Pending;
        }
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

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new().extra(Arc::clone(&self.history))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Returns a link whose other end has sent an answer and closed the connection with bytes left
    /// unread. Further writes to the link will therefore fail.
    async fn closed_early(reads_after_failed_writes: bool) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut link =
            Link::new(TcpStream::connect(address).await.expect("it listens"), reads_after_failed_writes);
        let (mut upstream, _) = listener.accept().await.expect("a client");
        link.write_all(b"request").await.expect("it is open");
        upstream.readable().await.expect("the request arrives");
        upstream.write_all(b"answer").await.expect("it is open");
        drop(upstream);
        link
    }

    /// Writes repeatedly until a write fails or is pending.
    async fn write(link: &mut Link) -> Option<io::Error> {
        let mut writes = 0;
        std::future::poll_fn(|context| {
            loop {
                writes += 1;
                assert!(writes < 1_000_000, "the other end is closed");
                match Pin::new(&mut *link).poll_write(context, b"body") {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(error)),
                    Poll::Pending => return Poll::Ready(None),
                }
            }
        })
        .await
    }

    #[tokio::test]
    async fn an_early_answer_is_read_before_the_failure_of_a_write() {
        let mut link = closed_early(true).await;
        assert!(write(&mut link).await.is_none());
        let mut answer = [0; 6];
        link.read_exact(&mut answer).await.expect("the answer is there");
        assert_eq!(&answer, b"answer");
        assert!(link.history.is_answered());
        assert!(link.read_u8().await.is_err());
        // No more bytes can be read, so the write does not wait.
        assert!(write(&mut link).await.is_some());
    }

    #[tokio::test]
    async fn a_request_whose_first_write_fails_is_not_answered() {
        let mut link = closed_early(true).await;
        link.read_exact(&mut [0; 6]).await.expect("the answer is there");
        assert!(link.history.is_answered());
        // The connection has been reset, so no write of the next request can succeed.
        let written = std::future::poll_fn(|context| {
            Poll::Ready(Pin::new(&mut link).poll_write(context, b"another request"))
        });
        assert!(written.await.is_pending());
        assert!(link.failure.is_some() && !link.history.is_answered());
    }

    #[tokio::test]
    async fn a_write_over_http2_fails_at_once() {
        let mut link = closed_early(false).await;
        assert!(write(&mut link).await.is_some());
    }

    #[tokio::test]
    async fn a_connection_is_answered_until_it_is_written_to_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let before = Instant::now();
        let mut link = Link::new(TcpStream::connect(address).await.expect("it listens"), true);
        let (mut upstream, _) = listener.accept().await.expect("a client");
        assert!(!link.history.is_kept_from_before(before));
        assert!(link.history.is_kept_from_before(Instant::now() + std::time::Duration::from_secs(1)));
        link.write_all(b"request").await.expect("it is open");
        assert!(!link.history.is_answered());
        upstream.write_all(b"a").await.expect("it is open");
        link.read_u8().await.expect("it is sent");
        assert!(link.history.is_answered());
        link.write_all(b"request").await.expect("it is open");
        assert!(!link.history.is_answered());
    }
}
