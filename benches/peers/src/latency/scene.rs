//! The work of another thread while one thread checks known keys and times each check.

use crate::keys::{CHUNK, Key};
use crate::subjects::{Quota, Setting, Subject};
use hdrhistogram::Histogram;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub struct Plan {
    pub known: usize,
    pub rounds: usize,
    /// The time for which a scene is played for one subject in one round.
    pub scene: Duration,
    /// The number of fresh keys per second, in the flood.
    pub pace: u32,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Scene {
    /// The other thread does nothing.
    Steady,
    /// The other thread sweeps. No key is idle, so each sweep visits all keys and keeps them.
    Turnover,
    /// The other thread inserts fresh keys, so that tables must grow, and sweeps the subjects that
    /// their users must sweep.
    Flood,
    /// The other thread clears all keys, so that each key is new at its next check.
    Clear,
}

impl Scene {
    /// All scenes in order. The turnover is compared with the scene before it.
    pub const ALL: [Self; 4] = [Self::Steady, Self::Turnover, Self::Flood, Self::Clear];

    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Turnover => "turnover",
            Self::Flood => "flood",
            Self::Clear => "clear",
        }
    }

    /// Returns the interval of the other thread's task, which is a sweep or `clear`.
    pub fn every(self, plan: Plan) -> Duration {
        plan.scene.mul_f64(self.part())
    }

    /// Returns the interval of the other thread's task, as a part of the scene.
    pub fn part(self) -> f64 {
        if self == Self::Flood { 0.5 } else { 0.25 }
    }

    /// Returns the setting of subjects. It is the same in all scenes except the flood, in which
    /// keys must become idle.
    pub fn setting(self, plan: Plan) -> Setting {
        let keys = 2 * plan.known;
        if self == Self::Flood {
            Setting { quota: Quota::Ample, keys, sweeps: None }
        } else {
            Setting { quota: Quota::Lasting, keys, sweeps: Some(Self::Turnover.every(plan)) }
        }
    }

    /// Makes all keys known to `subject`, and completes the turnover that this began. Otherwise,
    /// the turnover would continue in a scene without sweeps: a table of this library turns over
    /// when it grows, and checks of known keys advance a turnover only slowly.
    pub fn prepare(self, subject: &dyn Subject<u64>, known: &[u64]) {
        known.chunks(CHUNK).for_each(|chunk| _ = subject.decide(chunk));
        if self != Self::Flood {
            subject.sweep();
        }
    }

    /// Returns whether an empty `subject` supports the other thread's task.
    pub fn fits(self, subject: &dyn Subject<u64>) -> bool {
        match self {
            Self::Steady | Self::Flood => true,
            Self::Turnover => subject.sweep(),
            Self::Clear => subject.clear(),
        }
    }

    /// Times every check of the `stream` until the scene ends.
    pub fn play(
        self,
        subject: &dyn Subject<u64>,
        stream: &[u64],
        plan: Plan,
        times: &mut Times,
    ) -> Result<(), String> {
        let (task, every) = (Task::default(), self.every(plan));
        let turnovers = subject.turnovers();
        thread::scope(|scope| {
            match self {
                Self::Steady => (),
                Self::Turnover => _ = scope.spawn(|| task.repeat(every, || _ = subject.sweep())),
                Self::Clear => _ = scope.spawn(|| task.repeat(every, || _ = subject.clear())),
                Self::Flood => _ = scope.spawn(|| flood(subject, plan, every, &task)),
            }
            let checked = check(subject, stream, plan, &task, times);
            task.is_over.store(true, SeqCst);
            checked
        })?;
        if self != Self::Turnover {
            return Ok(());
        }
        let (done, turned) = (task.state.load(SeqCst) / 2, subject.turnovers());
        let turned = turned.zip(turnovers).map(|(after, before)| after - before);
        match turned {
            _ if done == 0 => Err(format!("no sweep within {:?}", plan.scene)),
            Some(turned) if turned < done => Err(format!("{done} sweeps made {turned} turnovers")),
            _ => Ok(()),
        }
    }
}

/// The times of checks, in nanoseconds.
pub struct Times {
    pub all: Histogram<u64>,
    /// The times of checks during which the other thread's task was under way.
    pub met: Histogram<u64>,
}

impl Times {
    pub fn none() -> Result<Self, String> {
        let none = || Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|why| why.to_string());
        Ok(Self { all: none()?, met: none()? })
    }
}

/// The other thread's task.
#[derive(Default)]
#[repr(align(128))]
struct Task {
    /// The number of beginnings and ends of the task. It is odd while the task is under way.
    state: AtomicU64,
    is_over: AtomicBool,
}

impl Task {
    /// Runs the task at this interval. After a late run, the next run is a whole interval later.
    fn repeat(&self, every: Duration, task: impl Fn()) {
        let mut due = Instant::now() + every / 2;
        while !self.is_over.load(SeqCst) {
            let now = Instant::now();
            if now < due {
                thread::sleep((due - now).min(Duration::from_millis(1)));
                continue;
            }
            due = now + every;
            self.once(&task);
        }
    }

    fn once(&self, task: impl Fn()) {
        self.state.fetch_add(1, SeqCst);
        task();
        self.state.fetch_add(1, SeqCst);
    }
}

fn check(
    subject: &dyn Subject<u64>,
    stream: &[u64],
    plan: Plan,
    task: &Task,
    times: &mut Times,
) -> Result<(), String> {
    let (clock, start) = (quanta::Clock::new(), Instant::now());
    for chunk in stream.chunks(CHUNK).cycle() {
        let mut admitted = 0;
        for key in chunk {
            let state = task.state.load(SeqCst);
            let before = clock.raw();
            admitted += subject.decide(slice::from_ref(key));
            let after = clock.raw();
            let nanos = clock.delta_as_nanos(before, after).max(1);
            times.all.saturating_record(nanos);
            if state % 2 == 1 || state != task.state.load(SeqCst) {
                times.met.saturating_record(nanos);
            }
        }
        if admitted != chunk.len() as u64 {
            return Err(format!("admitted {admitted} of {} checks", chunk.len()));
        }
        if start.elapsed() >= plan.scene {
            break;
        }
    }
    Ok(())
}

/// Inserts fresh keys at the pace of the plan. If a sweep blocks other threads, it also blocks this
/// one.
fn flood(subject: &dyn Subject<u64>, plan: Plan, every: Duration, task: &Task) {
    let start = Instant::now();
    let (mut brought, mut swept) = (0_u32, every / 2);
    let mut batch = Vec::new();
    while !task.is_over.load(SeqCst) {
        let due = start.elapsed().as_secs_f64() * f64::from(plan.pace);
        if f64::from(brought) >= due {
            // With sleeps, the keys would be inserted in bursts.
            thread::yield_now();
            continue;
        }
        let number = |nth: u32| plan.known as u64 + u64::from(brought + nth);
        batch.clear();
        batch.extend((0..16).map(number).map(<u64 as Key>::numbered));
        subject.decide(&batch);
        brought += 16;
        if start.elapsed() >= swept {
            if subject.needs_sweeps() {
                subject.sweep();
            }
            swept += every;
        }
    }
}
