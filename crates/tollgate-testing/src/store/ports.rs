//! Fixed ports for servers, which must use the same port again after a restart.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// The first port. All ports lie below the ephemeral ports, so no outgoing connection can take a
/// server's port while the server is down.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// Returns a port that is currently free on 127.0.0.1. Within a process, no port is returned again
/// until all others have been tried.
pub fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run at the same time should start at different ports.
    let begin = process::id().wrapping_mul(7919) % u32::from(COUNT);
    for _ in 0..COUNT {
        // The ordering is relaxed, because nothing else depends on a caller's number.
        let number = (begin + u32::from(NEXT.fetch_add(1, Ordering::Relaxed))) % u32::from(COUNT);
        let port = FIRST + u16::try_from(number).expect("less than COUNT");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("none of {COUNT} ports from {FIRST} on is free");
}
