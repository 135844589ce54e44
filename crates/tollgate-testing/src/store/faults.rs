//! A proxy between a client and a server. It delays, drops, freezes and breaks connections.
//!
//! # Invariants
//!
//! 1. After a connection has lost bytes in one direction, it delivers nothing more in that
//!    direction. Otherwise, a client would mistake one request's reply for another's. Such a
//!    connection never recovers. New connections follow the current mode.
//! 2. In every mode, no byte is forwarded twice or out of order.
//! 3. When the proxy is dropped, all its connections are closed.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// All bytes arrive this much later, in each direction. No byte is lost, and the throughput is
    /// unchanged.
    Delay(Duration),
    /// Nothing passes until the mode changes. Then everything passes, as in a stalled network that
    /// recovers.
    Hold,
    /// Connections are accepted and read, but nothing is forwarded or closed.
    BlackHole,
    /// Existing connections freeze forever, without notice, while new connections still work. On
    /// Linux, the frozen connections' packets are lost, so the peer's system also notices that they
    /// are not acknowledged.
    HalfOpen,
    /// Existing connections are reset immediately, and new connections as soon as they are opened.
    Reset,
    /// Clients see the end of the server's stream, but their own bytes are still forwarded.
    HalfClose,
    /// In each direction, one byte passes per interval of this length.
    SlowBytes(Duration),
    /// Requests reach the server, but the replies are dropped. The client therefore does not know
    /// whether its requests were executed.
    DropReplies,
}

/// The traffic since the proxy was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Client connections accepted.
    pub connections: u64,
    /// Bytes forwarded to the server.
    pub requests: u64,
    /// Bytes forwarded to clients.
    pub replies: u64,
}

#[derive(Default)]
struct Shared {
    /// Duplicates of the clients' sockets. They allow a mode change to act on the sockets before
    /// the call returns.
    clients: Mutex<HashMap<u64, OwnedFd>>,
    connections: AtomicU64,
    requests: AtomicU64,
    replies: AtomicU64,
}

// The ordering is relaxed, because nothing depends on these statistics.
const ORDER: Ordering = Ordering::Relaxed;

/// The current mode, and how often some modes have been set. The counts reveal whether a mode was
/// set while a connection existed, even if only briefly.
#[derive(Clone, Copy)]
struct State {
    mode: Mode,
    half_opens: u64,
    half_closes: u64,
    resets: u64,
}

type Seen = watch::Receiver<State>;

pub struct FaultProxy {
    address: SocketAddr,
    state: watch::Sender<State>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FaultProxy {
    /// Listens on a free port for connections to `upstream`.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let (state, seen) =
            watch::channel(State { mode: Mode::Pass, half_opens: 0, half_closes: 0, resets: 0 });
        let task = tokio::spawn(accept(listener, upstream, seen, Arc::clone(&shared)));
        Self { address, state, shared, task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the mode. Once this method has returned, the new mode applies to all bytes not yet
    /// delivered.
    pub fn set(&self, mode: Mode) {
        let clients = self.shared.clients.lock().unwrap();
        if mode == Mode::HalfOpen {
            clients.values().for_each(lose_packets);
        }
        self.state.send_modify(|state| {
            state.mode = mode;
            match mode {
                Mode::HalfOpen => state.half_opens += 1,
                Mode::HalfClose => state.half_closes += 1,
                Mode::Reset => state.resets += 1,
                _ => {}
            }
        });
    }

    pub fn passed(&self) -> Passed {
        Passed {
            connections: self.shared.connections.load(ORDER),
            requests: self.shared.requests.load(ORDER),
            replies: self.shared.replies.load(ORDER),
        }
    }
}

async fn accept(listener: TcpListener, upstream: SocketAddr, state: Seen, shared: Arc<Shared>) {
    // Dropping the task drops this set, which drops the connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let number = shared.connections.fetch_add(1, ORDER);
                let again = client.as_fd().try_clone_to_owned().expect("a descriptor more");
                let made = {
                    // The lock orders the opening of a connection before or after each mode change.
                    let mut clients = shared.clients.lock().unwrap();
                    clients.insert(number, again);
                    *state.borrow()
                };
                let (state, shared) = (state.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    connection(client, upstream, state, made, &shared).await;
                    shared.clients.lock().unwrap().remove(&number);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// How a connection ends. `Over` is the regular end.
enum End {
    Over,
    Frozen,
    Reset,
}

async fn connection(mut client: TcpStream, upstream: SocketAddr, state: Seen, made: State, shared: &Shared) {
    let server = TcpStream::connect(upstream).await;
    // If the server can't be reached, the client's connection is reset.
    let (Ok(mut server), true) = (server, made.mode != Mode::Reset) else {
        return drop(client.set_zero_linger());
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    let requests = Way { from: from_client, to: to_server, is_request: true };
    let replies = Way { from: from_server, to: to_client, is_request: false };
    let (mut freezing, mut resetting) = (state.clone(), state.clone());
    let end = tokio::select! {
        _ = async {
            tokio::join!(
                requests.carry(state.clone(), made, &shared.requests),
                replies.carry(state.clone(), made, &shared.replies),
            )
        } => End::Over,
        () = until(&mut freezing, |now| now.half_opens > made.half_opens) => End::Frozen,
        () = until(&mut resetting, |now| now.resets > made.resets) => End::Reset,
    };
    match end {
        End::Over => return,
        End::Reset => {}
        End::Frozen => until(&mut resetting, |now| now.resets > made.resets).await,
    }
    let _ = client.set_zero_linger();
}

/// Waits until a condition holds. Waits forever if the proxy is dropped, because this task then
/// ends as well.
async fn until(state: &mut Seen, is_so: impl Fn(&State) -> bool) {
    if state.wait_for(is_so).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The fate of the next bytes.
enum Fate {
    Forward,
    Wait,
    Lose,
}

impl State {
    fn is_half_closed(&self, made: &Self) -> bool {
        self.mode == Mode::HalfClose || self.half_closes > made.half_closes
    }

    /// Returns the current fate of a connection's bytes. `made` is the state in which the
    /// connection was opened.
    fn fate(&self, made: &Self, is_request: bool) -> Fate {
        if self.half_opens > made.half_opens || self.resets > made.resets {
            return Fate::Lose;
        }
        match self.mode {
            Mode::Hold => Fate::Wait,
            Mode::BlackHole => Fate::Lose,
            Mode::DropReplies if !is_request => Fate::Lose,
            _ if !is_request && self.is_half_closed(made) => Fate::Lose,
            _ => Fate::Forward,
        }
    }
}

/// The arrival time of some bytes, and the bytes.
type Arrived = (Instant, Vec<u8>);

/// One direction of a connection.
struct Way<'s> {
    from: ReadHalf<'s>,
    to: WriteHalf<'s>,
    is_request: bool,
}

impl Way<'_> {
    /// Forwards bytes until the sender ends its stream. Then ends the stream to the receiver.
    async fn carry(self, state: Seen, made: State, count: &AtomicU64) {
        let Self { mut from, mut to, is_request } = self;
        // Reading continues while earlier bytes are delayed.
        let (arrive, arrived) = mpsc::channel::<Arrived>(64);
        let read = async move {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(length @ 1..) = from.read(&mut buffer).await {
                if arrive.send((Instant::now(), buffer[..length].to_vec())).await.is_err() {
                    return;
                }
            }
        };
        let mut closing = state.clone();
        let write = async move {
            tokio::select! {
                () = forward_all(arrived, &mut to, is_request, state, made, count) => {}
                () = until(&mut closing, |now| !is_request && now.is_half_closed(&made)) => {}
            }
            let _ = to.shutdown().await;
        };
        tokio::join!(read, write);
    }
}

/// Forwards bytes as they arrive. Returns once the stream to the receiver may be ended.
async fn forward_all(
    mut arrived: mpsc::Receiver<Arrived>,
    to: &mut WriteHalf<'_>,
    is_request: bool,
    mut state: Seen,
    made: State,
    count: &AtomicU64,
) {
    while let Some((time, bytes)) = arrived.recv().await {
        match forward(&bytes, time, to, is_request, &mut state, made, count).await {
            Outcome::Whole => {}
            Outcome::Gone => return,
            Outcome::Hole => {
                // From now on, bytes are accepted but not forwarded, and neither side is notified.
                while arrived.recv().await.is_some() {}
                std::future::pending::<()>().await;
            }
        }
    }
    // The end of a stream is treated like its bytes.
    loop {
        let now = *state.borrow();
        match now.fate(&made, is_request) {
            Fate::Forward => return,
            Fate::Wait | Fate::Lose => until(&mut state, |next| next.mode != now.mode).await,
        }
    }
}

/// The state of one direction after some bytes.
enum Outcome {
    Whole,
    Hole,
    /// The receiver no longer accepts anything.
    Gone,
}

async fn forward(
    bytes: &[u8],
    arrived: Instant,
    to: &mut WriteHalf<'_>,
    is_request: bool,
    state: &mut Seen,
    made: State,
    count: &AtomicU64,
) -> Outcome {
    let mut rest = bytes;
    while !rest.is_empty() {
        let now = *state.borrow();
        let mode = now.mode;
        let changed = until(state, |next| next.mode != mode);
        match now.fate(&made, is_request) {
            Fate::Lose => return Outcome::Hole,
            Fate::Wait => {
                changed.await;
                continue;
            }
            Fate::Forward => {}
        }
        let pause = async {
            match mode {
                Mode::Delay(delay) => sleep_until(arrived + delay).await,
                Mode::SlowBytes(interval) => sleep(interval).await,
                _ => {}
            }
        };
        tokio::select! {
            biased;
            () = pause => {}
            // The mode has changed, so these bytes need a new decision.
            () = changed => continue,
        }
        let part = if matches!(mode, Mode::SlowBytes(_)) { 1 } else { rest.len() };
        if to.write_all(&rest[..part]).await.is_err() {
            return Outcome::Gone;
        }
        count.fetch_add(part as u64, ORDER);
        rest = &rest[part..];
    }
    Outcome::Whole
}

/// Makes a socket drop all incoming packets before they are acknowledged. This requires no
/// privileges.
#[cfg(target_os = "linux")]
fn lose_packets(socket: &OwnedFd) {
    // The filter is a single instruction that keeps zero bytes of each packet.
    const RETURN: u16 = 0x06;
    let filter = [socket2::SockFilter::new(RETURN, 0, 0, 0)];
    socket2::SockRef::from(socket).attach_filter(&filter).expect("a filter on an own socket");
}

/// On other systems, a frozen connection delivers nothing, but its packets are acknowledged.
#[cfg(not(target_os = "linux"))]
fn lose_packets(_: &OwnedFd) {}
