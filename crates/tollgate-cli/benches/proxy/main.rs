//! Measures the cost of a proxy and its limits. `wrk` sends requests to `tollgate proxy`, nginx,
//! HAProxy and Envoy, each with and without limits. Everything runs on this machine.
//!
//! Each request to Envoy contains one of a million keys, because the module's limit needs a key.
//! The limits in a store, and those of a rate limit service, have one key for all requests. Their
//! cost includes the processor time of the store or the service.
//!
//! The load generator, the proxies and the server share the cores. Requests per second therefore
//! show only how much a proxy loses when limits are added. A proxy's cost is the processor time per
//! request of all its processes, in user space and in the kernel. In each round, all subjects run
//! in turn, and each ratio compares two runs of the same round.
//!
//! Run it with `make bench-proxy`, or with `cargo bench -p tollgate-cli --bench proxy -- --rounds 9
//! --seconds 5 --connections 32`.

mod peers;
mod process;
mod service;
mod subject;
mod wrk;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use subject::Subject;
use wrk::Run;

/// A limit that no client reaches. It checks every request, but refuses none.
const AMPLE: &str = "10000000/s";

/// The subject that all others are compared with.
const WITHOUT_LIMITS: &str = "tollgate";

/// Pairs of subjects that are also compared with each other.
const COMPARED: [[&str; 2]; 7] = [
    ["Envoy, empty module", "Envoy"],
    ["Envoy, tollgate", "Envoy, empty module"],
    ["Envoy, tollgate", "Envoy, local limit"],
    ["Envoy, leased", "Envoy, local limit"],
    ["Envoy, leased", "Envoy, limit service"],
    ["Envoy, shared", "Envoy, limit service"],
    ["HAProxy, tollgate", "HAProxy, stick table"],
];

struct Plan {
    rounds: usize,
    seconds: usize,
    connections: usize,
}

impl Plan {
    fn from_args() -> Result<Self, String> {
        let mut plan = Self { rounds: 7, seconds: 4, connections: 32 };
        let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
        while let Some(name) = args.next() {
            let place = match name.as_str() {
                "--rounds" => &mut plan.rounds,
                "--seconds" => &mut plan.seconds,
                "--connections" => &mut plan.connections,
                _ => {
                    return Err(format!(
                        "invalid option `{name}`: expected --rounds, --seconds or --connections, and a number"
                    ));
                }
            };
            let value = args.next().unwrap_or_default();
            *place = value
                .parse()
                .ok()
                .filter(|&value| value > 0)
                .ok_or_else(|| format!("invalid {name} `{value}`: expected a number of 1 or more"))?;
        }
        Ok(plan)
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let done = match &args[..] {
        [_, argument, address] if argument == service::ARGUMENT => service::serve(address),
        _ => measure(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("NOT DONE: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    let plan = Plan::from_args()?;
    if !wrk::is_here() {
        return Err("wrk is missing; it is a package of Debian and others: apt-get install wrk".to_owned());
    }
    let server = server()?;
    let url = format!("http://{server}");
    let per_ip = format!("per-ip={AMPLE} by ip");
    let all = format!("all={AMPLE} by nothing");
    let per_path = format!("per-path={AMPLE} by ip+path");
    let three = ["--limit", &per_ip, "--limit", &all, "--limit", &per_path];
    let mut subjects = vec![
        Subject::new("no proxy", url.clone(), None),
        Subject::tollgate(WITHOUT_LIMITS, &url, &[])?,
        Subject::tollgate("tollgate, one limit", &url, &["--limit", &per_ip])?,
        Subject::tollgate("tollgate, three limits", &url, &three)?,
        Subject::tollgate("tollgate, refusing", &url, &["--limit", "per-ip=1/d by ip"])?.refusing(),
    ];
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    subjects.extend(peers::start(server, &target.join("bench-proxy"))?);
    for subject in &subjects {
        wrk::run(subject, 1, plan.connections)?;
    }
    for round in 0..plan.rounds {
        // Each round starts with a different subject.
        let count = subjects.len();
        for turn in 0..count {
            let subject = &mut subjects[(round + turn) % count];
            let run = wrk::run(subject, plan.seconds, plan.connections)?;
            subject.runs.push(run);
        }
        eprintln!("round {} of {}", round + 1, plan.rounds);
    }
    report(&subjects, &plan);
    Ok(())
}

/// Starts a server that answers every request with a greeting, and returns its address. The server
/// runs until this process ends.
fn server() -> Result<SocketAddr, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no port: {error}"))?;
    let address = listener.local_addr().map_err(|error| format!("no address: {error}"))?;
    listener.set_nonblocking(true).map_err(|error| format!("no socket: {error}"))?;
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it is a socket");
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                // Errors are ignored, because the option affects only latency, and the figures
                // would reveal an error.
                let _ = stream.set_nodelay(true);
                let hello = service_fn(async |_| {
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello\n"))))
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), hello),
                );
            }
        });
    });
    Ok(address)
}

/// Returns the minimum, the median and the maximum.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values[middle]
    };
    [values[0], median, values[values.len() - 1]]
}

fn report(subjects: &[Subject], plan: &Plan) {
    let Plan { rounds, seconds, connections } = plan;
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("wrk, the proxies and the server share this machine ({cores} cores), so requests per second");
    println!(
        "say little of a proxy alone. {connections} connections, {rounds} rounds of {seconds} s in turn;"
    );
    println!("medians, and in brackets the least and the most. Times are in microseconds; processor time");
    println!(
        "is that of the proxy and of its store or service for a request. Ratios are to tollgate without"
    );
    println!("limits in the same round.");
    println!();
    let line = |name: &str, columns: [String; 6]| {
        let [a, b, c, d, e, f] = columns;
        println!("{name:<22} {a:>19} {b:>22} {c:>20} {d:>20} {e:>20} {f:>20}");
    };
    let heads = ["processor time", "ratio of it", "requests/s", "ratio of them", "median", "p99"];
    line("", heads.map(str::to_owned));
    let base = subjects.iter().find(|subject| subject.name == WITHOUT_LIMITS);
    let base = base.map_or(&[][..], |base| &base.runs);
    for subject in subjects {
        let figure = |of: fn(&Run) -> f64, digits: usize| {
            let [least, median, most] = spread(subject.runs.iter().map(of));
            format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
        };
        let ratio = |of: fn(&Run) -> f64| {
            let [least, median, most] =
                spread(subject.runs.iter().zip(base).map(|(run, base)| of(run) / of(base)));
            format!("{median:.2} ({least:.2}-{most:.2})")
        };
        let taken = |text: String| if subject.process.is_some() { text } else { String::new() };
        line(
            subject.name,
            [
                taken(figure(|run| run.processor, 1)),
                taken(ratio(|run| run.processor)),
                figure(|run| run.per_second, 0),
                ratio(|run| run.per_second),
                figure(|run| run.median, 0),
                figure(|run| run.p99, 0),
            ],
        );
    }
    println!();
    let runs = |name: &str| subjects.iter().find(|subject| subject.name == name).map(|it| &it.runs);
    for [name, other] in COMPARED {
        let Some((these, those)) = runs(name).zip(runs(other)) else { continue };
        let [least, median, most] =
            spread(these.iter().zip(those).map(|(run, other)| run.processor / other.processor));
        println!("processor time of {name}, to that of {other}: {median:.3} ({least:.3}-{most:.3})");
    }
}
