//! Medians, ratios and where they go: a table for people, rows for programs.

use crate::measure::{LeftOut, Measured};
use crate::subjects::{BASE, EMPTY_LOOP};
use crate::workload::Workload;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::Path;

/// One line of `peers.json`.
#[derive(Serialize)]
pub struct Row {
    workload: &'static str,
    keys: usize,
    threads: usize,
    subject: &'static str,
    ns_per_op: f64,
    ratio_to_governor: f64,
    /// Only where there are so many keys that fixed costs don't show.
    bytes_per_key: Option<f64>,
}

/// Below that many keys bytes per key say nothing.
const MANY: usize = 100_000;

/// The rows of one table, printed as they are made.
pub fn table(workload: Workload, threads: usize, measured: &[Measured]) -> Vec<Row> {
    let title = workload.title();
    let plural = if threads == 1 { "" } else { "s" };
    let rounds = measured.first().map_or(0, |measured| measured.rounds.len());
    println!("\n{title}, {threads} thread{plural} ({rounds} rounds)");
    let waiting = measured.iter().map(|measured| measured.waiting).sum::<f64>() / measured.len() as f64;
    if waiting > 0.02 {
        println!("  a busy machine: threads waited for a core {:.0} % of the time", waiting * 100.0);
    }
    println!("  {:<28}{:>10}{:>9}{:>12}{:>12}", "", "ns/check", "spread", "x governor", "bytes/key");

    let base = measured.iter().find(|measured| measured.name == BASE);
    let mut lines: Vec<(Row, f64)> = measured
        .iter()
        .map(|measured| {
            let ratios = base.map_or_else(Vec::new, |base| {
                measured.rounds.iter().zip(&base.rounds).map(|(own, base)| own / base).collect()
            });
            let ns_per_op = quantile(&measured.rounds, 0.5);
            let between = quantile(&measured.rounds, 0.75) - quantile(&measured.rounds, 0.25);
            let holds_keys = workload.keys >= MANY && measured.name != EMPTY_LOOP;
            let row = Row {
                workload: workload.name,
                keys: workload.keys,
                threads,
                subject: measured.name,
                ns_per_op: rounded(ns_per_op),
                ratio_to_governor: rounded(quantile(&ratios, 0.5)),
                bytes_per_key: holds_keys.then_some(rounded(measured.bytes_per_key)),
            };
            (row, between / ns_per_op)
        })
        .collect();
    lines.sort_by(|(a, _), (b, _)| a.ns_per_op.total_cmp(&b.ns_per_op));
    for (row, spread) in &lines {
        let bytes = row.bytes_per_key.map_or_else(String::new, |bytes| format!("{bytes:.1}"));
        println!(
            "  {:<28}{:>10.1}{:>8.0}%{:>12.2}{:>12}",
            row.subject,
            row.ns_per_op,
            spread * 100.0,
            row.ratio_to_governor,
            bytes
        );
    }
    lines.into_iter().map(|(row, _)| row).collect()
}

/// Who has no result, one line for each reason.
pub fn left_out(all: &[LeftOut]) {
    let mut reasons: Vec<&str> = all.iter().map(|left_out| left_out.why).collect();
    reasons.sort_unstable();
    reasons.dedup();
    for reason in reasons {
        let names: Vec<_> = all.iter().filter(|out| out.why == reason).map(|out| out.name).collect();
        println!("  left out: {}: {reason}", names.join("; "));
    }
}

pub fn write(path: &Path, rows: &[impl Serialize]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, serde_json::to_string_pretty(rows)? + "\n")
}

/// By linear interpolation between the two nearest; NaN of nothing.
pub fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = at * last as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
