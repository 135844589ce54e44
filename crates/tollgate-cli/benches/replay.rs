//! Measures how many lines of Combined Log Format `tollgate replay` processes per second on one
//! thread. The first case is the parser alone. The second case is the whole replay: splitting
//! lines, parsing, the checks by the limiter and by the compliant client, all statistics, and the
//! report.
//!
//! The log is synthetic and in memory, so disk speed has no effect. Some clients are far more
//! active than others, paths and user agents vary, and timestamps sometimes step back. The goal is
//! a million lines per second.

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

use tollgate_cli::replay::progress::Progress;
use tollgate_cli::replay::{Cost, Line, Lines, Records, Replay, Settings, TimeUnit, Wanted};

const LINES: u64 = 200_000;
const CLIENTS: u64 = 20_000;

const PATHS: [&str; 6] = [
    "/",
    "/presentations/logstash-2013/images/kibana-search.png",
    "/articles/dynamic-dns-with-dhcp/?flav=rss20&page=12",
    "/favicon.ico",
    "/api/v1/users/1234/orders?limit=50&after=2015-05-17",
    "/static/css/style2.css",
];
const REFERERS: [&str; 3] = ["-", "https://example.org/", "https://example.org/search?q=rate+limit"];
const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 (KHTML, like Gecko) \
     Chrome/32.0.1700.77 Safari/537.36",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "curl/8.5.0",
    "UniversalFeedParser/4.2-pre-314-svn +http://feedparser.org/",
];

/// Generates pseudo-random numbers (SplitMix64). Every run generates the same numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn pick<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[usize::try_from(self.below(texts.len() as u64)).unwrap_or(0)]
    }
}

fn combined_log() -> Vec<u8> {
    let mut numbers = Numbers(1);
    let mut log = String::new();
    for line in 0..LINES {
        // As in real logs, a few clients send half of all requests.
        let client = if numbers.below(2) == 0 { numbers.below(50) } else { numbers.below(CLIENTS) };
        let second = (line / 20).saturating_sub(numbers.below(30)) % 86_400;
        let written = writeln!(
            log,
            "10.{}.{}.{} - - [17/May/2015:{:02}:{:02}:{:02} +0000] \"GET {} HTTP/1.1\" 200 {} \"{}\" \"{}\"",
            client >> 16,
            (client >> 8) & 255,
            client & 255,
            second / 3600,
            second / 60 % 60,
            second % 60,
            numbers.pick(&PATHS),
            numbers.below(200_000),
            numbers.pick(&REFERERS),
            numbers.pick(&AGENTS),
        );
        written.expect("a string can be written");
    }
    log.into_bytes()
}

fn settings(key: &[&str]) -> Settings {
    let wanted = Wanted {
        ipv6_prefix: 64,
        trust_hops: None,
        templates: None,
        key: key.iter().map(|&field| field.to_owned()).collect(),
        cost: Cost::One,
        names: Vec::new(),
        unit: TimeUnit::Seconds,
    };
    let quota = "30/min burst 10".parse().expect("a quota");
    let mut settings = Settings::of_quota(quota, 1_000_000, wanted).expect("a limit");
    settings.log.strict = true;
    settings
}

/// Cuts the log into lines, and parses all of them.
fn parse(log: &[u8], settings: &Settings) -> u64 {
    let mut lines = Lines::new(log);
    let mut records: Option<Records> = None;
    let mut key = Vec::new();
    let mut cost = 0;
    while let Some(Line::Text(line)) = lines.next_line().expect("memory can be read") {
        let records = records.get_or_insert_with(|| {
            let opened = Records::open(line, settings.log.format, &settings.log.wanted);
            opened.expect("the log is Combined").1
        });
        key.clear();
        cost += records.read(line, &mut key).expect("every line parses").map_or(0, |request| request.cost);
        black_box(&key);
    }
    assert_eq!(lines.number(), LINES);
    cost
}

fn combined(criterion: &mut Criterion) {
    let log = combined_log();
    let mut group = criterion.benchmark_group("combined");
    group.throughput(Throughput::Elements(LINES)).sample_size(20);
    for key in [&["ip"][..], &["ip", "path"]] {
        let settings = settings(key);
        let name = key.join("+");
        group.bench_with_input(BenchmarkId::new("parse", &name), &log, |bencher, log| {
            bencher.iter(|| parse(log, &settings));
        });
        group.bench_with_input(BenchmarkId::new("replay", &name), &log, |bencher, log| {
            bencher.iter(|| {
                let mut progress = Progress::new(None);
                let mut replay = Replay::new(&settings).expect("the quota is valid");
                replay.read(0, &log[..], &mut progress).expect("every line parses");
                replay.finish(&mut progress).expect("there are requests")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, combined);
criterion_main!(benches);
