//! Fixed ports for servers, which must get the same port when they are restarted.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// The ports are below the ephemeral ports, so that no outgoing connection takes a port while its
/// server is down.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// Returns a port of 127.0.0.1 that was free just now. This process does not get the port again
/// until it has had all ports.
pub fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run at the same time begin at different ports.
    let begin = process::id().wrapping_mul(7919) % u32::from(COUNT);
    for _ in 0..COUNT {
        // The ordering is relaxed: each caller gets a different number, and nothing else depends on
        // it.
        let number = (begin + u32::from(NEXT.fetch_add(1, Ordering::Relaxed))) % u32::from(COUNT);
        let port = FIRST + u16::try_from(number).expect("less than COUNT");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("none of {COUNT} ports from {FIRST} on is free");
}
