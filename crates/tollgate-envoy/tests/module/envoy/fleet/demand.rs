//! Clients of one listener that send requests at a steady rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::envoy::client::BlockingClient;

/// The number of connections to a listener, so that both workers have some.
pub(super) const CONNECTIONS: u32 = 4;

/// Clients that send requests until [`end`](Self::end).
pub(super) struct Demand {
    over: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Demand {
    /// Starts clients of these listeners. Each listener gets `per_second` requests.
    pub(super) fn start(ports: impl IntoIterator<Item = u16>, per_second: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let pause = Duration::from_secs(u64::from(CONNECTIONS)) / u32::try_from(per_second).unwrap();
        let mut clients = Vec::new();
        for port in ports {
            for number in 0..CONNECTIONS {
                let over = Arc::clone(&over);
                let first = Instant::now() + pause * number / CONNECTIONS;
                clients.push(thread::spawn(move || send(port, pause, first, &over)));
            }
        }
        Self { over, clients }
    }

    /// Waits for the last responses.
    pub(super) fn end(self) {
        // ORDERING: relaxed, because the clients only need to end soon.
        self.over.store(true, Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
    }
}

/// Sends a request at `first`, and then one after each pause. A client that is late sends at once,
/// but does not send more than one request for the time that it was late.
fn send(port: u16, pause: Duration, first: Instant, over: &AtomicBool) {
    let mut client = BlockingClient::connect(port);
    let mut next = first;
    // ORDERING: relaxed, as in `Demand::end`.
    while !over.load(Relaxed) {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        client.send("").unwrap();
        next = Instant::now().max(next + pause);
    }
}
