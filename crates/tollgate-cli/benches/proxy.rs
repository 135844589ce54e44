//! The cost of limits: `wrk` on `tollgate proxy` with and without them, all on this machine.
//!
//! Load generator, proxy and upstream share the cores, so the figures are only ratios: how much of
//! the requests per second is left when limits are added to the same proxy. Subjects take turns,
//! round by round, and a ratio is of two runs of the same round.
//!
//! `make bench-proxy`, or `cargo bench -p tollgate-cli --bench proxy -- --rounds 9 --seconds 5
//! --connections 32`.

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

/// A limit that no client reaches: it decides, and refuses nothing.
const AMPLE: &str = "10000000/s";

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

/// A subject of the measurement, at an address.
struct Subject {
    name: &'static str,
    url: String,
    /// Whether it refuses the requests.
    refuses: bool,
    runs: Vec<Run>,
    _process: Option<Process>,
}

/// The results of `wrk` for one run.
struct Run {
    per_second: f64,
    p50: f64,
    p99: f64,
}

/// A process that ends when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("NOT DONE: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    let plan = Plan::from_args()?;
    if Command::new("wrk").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return Err("wrk is missing; it is a package of Debian and others: apt-get install wrk".to_owned());
    }
    let upstream = upstream()?;
    let per_ip = format!("per-ip={AMPLE} by ip");
    let all = format!("all={AMPLE} by nothing");
    let per_path = format!("per-path={AMPLE} by ip+path");
    let mut subjects = vec![
        Subject { name: "no proxy", url: upstream.clone(), refuses: false, runs: Vec::new(), _process: None },
        proxy("proxy without limits", &upstream, &[], false)?,
        proxy("one limit, by ip", &upstream, &["--limit", &per_ip], false)?,
        proxy(
            "three limits",
            &upstream,
            &["--limit", &per_ip, "--limit", &all, "--limit", &per_path],
            false,
        )?,
        proxy("one limit, refusing", &upstream, &["--limit", "per-ip=1/d by ip"], true)?,
    ];
    for subject in &subjects {
        wrk(subject, 1, &plan)?;
    }
    for round in 0..plan.rounds {
        // Each round begins with another subject.
        let count = subjects.len();
        for turn in 0..count {
            let subject = &mut subjects[(round + turn) % count];
            let run = wrk(subject, plan.seconds, &plan)?;
            subject.runs.push(run);
        }
        eprintln!("round {} of {}", round + 1, plan.rounds);
    }
    report(&subjects, &plan);
    Ok(())
}

/// Starts a server that answers every request with a greeting, as long as this process lives, and
/// returns its URL.
fn upstream() -> Result<String, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no port: {error}"))?;
    let address = listener.local_addr().map_err(|error| format!("no address: {error}"))?;
    listener.set_nonblocking(true).map_err(|error| format!("no socket: {error}"))?;
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it is a socket");
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                // It matters for latency only, and a failure would show in the figures.
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
    Ok(format!("http://{address}"))
}

fn proxy(name: &'static str, upstream: &str, args: &[&str], refuses: bool) -> Result<Subject, String> {
    let child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["proxy", "--listen", "127.0.0.1:0", "--upstream", upstream])
        .args(args)
        .stderr(Stdio::piped())
        .spawn();
    let mut process = Process(child.map_err(|error| format!("the proxy does not start: {error}"))?);
    let said = BufReader::new(process.0.stderr.take().ok_or("no standard error")?);
    let mut heard = String::new();
    for line in said.lines().map_while(Result::ok) {
        heard.push_str(&line);
        if let Some((_, rest)) = line.split_once("listening on ") {
            let url = rest.split(' ').next().unwrap_or_default().to_owned();
            return Ok(Subject { name, url, refuses, runs: Vec::new(), _process: Some(process) });
        }
    }
    Err(format!("the proxy ended: {heard}"))
}

fn wrk(subject: &Subject, seconds: usize, plan: &Plan) -> Result<Run, String> {
    let output = Command::new("wrk")
        .args(["--latency", "--threads", "1"])
        .args(["--connections", &plan.connections.to_string(), "--duration", &format!("{seconds}s")])
        .arg(&subject.url)
        .output()
        .map_err(|error| format!("wrk does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed = |why: &str| format!("{}: {why}; wrk said:\n{text}", subject.name);
    let value = |label: &str| {
        let found = text.lines().find_map(|line| line.trim().strip_prefix(label));
        found.map(|value| value.trim().to_owned()).ok_or_else(|| failed(&format!("no line {label:?}")))
    };
    if text.contains("Socket errors") {
        return Err(failed("sockets failed"));
    }
    if text.contains("Non-2xx") != subject.refuses {
        return Err(failed("it did not answer as it should"));
    }
    let time = |label: &str| value(label).and_then(|text| micros(&text).ok_or_else(|| failed("no time")));
    Ok(Run {
        per_second: value("Requests/sec:")?.parse().map_err(|_| failed("no number of requests"))?,
        p50: time("50%")?,
        p99: time("99%")?,
    })
}

/// Parses a time of `wrk`, in microseconds.
fn micros(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| c.is_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let micros = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * micros)
}

/// Returns the least, the median and the most.
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
    println!(
        "wrk, the proxy and the upstream share this machine ({cores} cores): compare the lines, take no figure"
    );
    println!(
        "for what a proxy of its own can do. {connections} connections, {rounds} rounds of {seconds} s in turn;"
    );
    println!(
        "medians, and in brackets the least and the most. The ratio is to the proxy without limits in the"
    );
    println!("same round; what it lacks of 1 is what the limits take.\n");
    println!("{:<22} {:>26} {:>24} {:>26} {:>22}", "", "requests/s", "p50, us", "p99, us", "ratio");
    let base = &subjects[1].runs;
    for subject in subjects {
        let figure = |of: fn(&Run) -> f64| {
            let [least, median, most] = spread(subject.runs.iter().map(of));
            format!("{median:.0} ({least:.0}-{most:.0})")
        };
        let ratios = subject.runs.iter().zip(base).map(|(run, base)| run.per_second / base.per_second);
        let [least, median, most] = spread(ratios);
        println!(
            "{:<22} {:>26} {:>24} {:>26} {:>22}",
            subject.name,
            figure(|run| run.per_second),
            figure(|run| run.p50),
            figure(|run| run.p99),
            format!("{median:.3} ({least:.3}-{most:.3})")
        );
    }
}
