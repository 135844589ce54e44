//! The measurement.
//!
//! All subjects of a workload exist at the same time and take turns in short slices, in a different
//! order in each round, so that other work of the machine affects all of them. Threads are started
//! once. A barrier, followed by a short spin, lets them begin a slice together. A slice ends by the
//! clock, so that no thread ever runs alone. The result of a turn is the time that one check takes
//! as a thread sees it.
//!
//! On a busy machine, two threads may take turns on one core, and do not contend. Therefore every
//! table has the time that threads waited for a core.
//!
//! With a baseline, the subjects that are compared with each other are built again every few
//! rounds.
//!
//! With many keys, a slice begins with caches that other subjects have used in the meantime. This
//! is the same for each subject.
//!
//! A flood is not sliced: each turn fills a new subject from empty to full, including its growth.
//! The memory is new to the process, as in the first flood of a process, except for the memory that
//! a subject allocates when it is built: see `memory::give_back`.

use crate::keys::{self, CHUNK, Key};
use crate::memory;
use crate::subjects::{Contestant, OWN, Quota, STATELESS, Setting, Subject};
use crate::workload::Workload;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

/// The rounds after which this library and the baseline are built again. The position of a million
/// keys in memory changes the time of a check by a tenth, which is more than a change should cost.
/// The spread of rounds with the same table does not show this difference.
const ROUNDS_OF_A_TABLE: usize = 4;

#[derive(Clone, Copy)]
pub struct Pace {
    pub rounds: usize,
    pub slice: Duration,
}

/// The result of one subject.
pub struct Measured {
    pub name: &'static str,
    /// The nanoseconds per check, in each round.
    pub rounds: Vec<f64>,
    pub bytes_per_key: f64,
    pub resident_per_key: Option<f64>,
    /// The share of the time in which the threads were ready to run and had no core.
    pub waiting: f64,
}

/// A subject without a result, and the reason.
pub struct LeftOut {
    pub name: &'static str,
    pub why: &'static str,
}

/// The subjects of one workload, which take turns.
pub struct Field<K> {
    workload: Workload,
    stream: Vec<K>,
    ready: Vec<Ready<K>>,
    pub left_out: Vec<LeftOut>,
    /// The subjects whose decisions differ from those that the workload expects, and the
    /// difference.
    pub wrong: Vec<String>,
}

struct Ready<K> {
    contestant: Contestant<K>,
    /// Empty only between two turns, for a flood and for tables that are built again.
    subject: RwLock<Option<Box<dyn Subject<K>>>>,
    bytes_per_key: f64,
    resident_per_key: Option<f64>,
}

/// The slice of one thread.
#[derive(Clone, Copy, Default)]
struct Slice {
    checks: u64,
    admitted: u64,
    nanos: u64,
    /// The part of `nanos` in which the thread had no core to run on.
    waited: u64,
}

impl<K: Key> Field<K> {
    /// Builds the subjects and checks all keys once, in chunks as in the measurement, so that the
    /// keys of the measurement are known.
    pub fn prepare(workload: Workload, contestants: Vec<Contestant<K>>) -> Self {
        let (stream, ready, left_out, wrong) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut field = Self { workload, stream, ready, left_out, wrong };
        let distinct = keys::distinct::<K>(workload.keys);
        for contestant in contestants {
            field.fill(contestant, &distinct);
        }
        drop(distinct);
        let length = if workload.is_flood() { workload.keys } else { (2 * workload.keys).max(1 << 16) };
        field.stream = keys::stream(workload.order, workload.keys, length);
        field
    }

    fn fill(&mut self, contestant: Contestant<K>, distinct: &[K]) {
        let name = contestant.name;
        let (filled, grown) = memory::grown_by(|| {
            let subject = self.built(&contestant)?;
            let admitted = distinct.chunks(CHUNK).map(|chunk| subject.decide(chunk)).sum::<u64>();
            Ok((subject, admitted))
        });
        let (subject, admitted) = match filled {
            Ok(filled) => filled,
            Err(why) => return self.left_out.push(LeftOut { name, why }),
        };
        if admitted != distinct.len() as u64 {
            let (title, new) = (self.workload.title(), distinct.len());
            return self.wrong.push(format!("{title}: {name} admitted {admitted} of {new} new keys"));
        }
        self.use_up(subject.as_ref(), distinct);
        let bytes = grown.allocated.max(subject.bytes());
        let subject = RwLock::new((!self.workload.is_flood()).then_some(subject));
        let per_key = |bytes: u64| bytes as f64 / distinct.len() as f64;
        let (bytes_per_key, resident_per_key) = (per_key(bytes), grown.resident.map(per_key));
        self.ready.push(Ready { contestant, subject, bytes_per_key, resident_per_key });
    }

    fn use_up(&self, subject: &dyn Subject<K>, distinct: &[K]) {
        if self.workload.quota == Quota::UsedUp {
            // The first call uses up the rest of the burst, and the second one is denied.
            subject.decide(distinct);
            subject.decide(distinct);
        }
    }

    /// Builds this library and the baseline again, in a different order in each round.
    fn build_anew(&self, round: usize) {
        let is_own = |ready: &&Ready<K>| ready.contestant.name.starts_with(OWN);
        let own: Vec<&Ready<K>> = self.ready.iter().filter(is_own).collect();
        own.iter().for_each(|ready| *ready.subject.write().unwrap() = None);
        memory::give_back();
        let distinct = keys::distinct::<K>(self.workload.keys);
        for place in shuffled(own.len(), round) {
            let subject = self.built(&own[place].contestant).expect("it was built before");
            distinct.chunks(CHUNK).for_each(|chunk| _ = subject.decide(chunk));
            self.use_up(subject.as_ref(), &distinct);
            *own[place].subject.write().unwrap() = Some(subject);
        }
    }

    fn built(&self, contestant: &Contestant<K>) -> Result<Box<dyn Subject<K>>, &'static str> {
        // A stream is rounded up to whole chunks, and so is the number of keys of a flood.
        let keys = self.workload.keys.next_multiple_of(if self.workload.keys > 1 { CHUNK } else { 1 });
        (contestant.build)(Setting { quota: self.workload.quota, keys, sweeps: None })
    }

    /// Runs all rounds on this many threads. A subject has no result if its decisions are not those
    /// that the workload expects.
    pub fn measure(&mut self, threads: usize, pace: Pace) -> Vec<Measured> {
        let mut slices = vec![Vec::with_capacity(pace.rounds); self.ready.len()];
        let (field, stage) = (&*self, Stage::new(threads));
        thread::scope(|scope| {
            for thread in 0..threads {
                let stage = &stage;
                scope.spawn(move || field.work(thread, stage, pace));
            }
            for round in 0..pace.rounds {
                let is_worn = round > 0 && round.is_multiple_of(ROUNDS_OF_A_TABLE);
                if cfg!(feature = "baseline") && is_worn && !field.workload.is_flood() {
                    field.build_anew(round);
                }
                for subject in shuffled(field.ready.len(), round) {
                    if field.workload.is_flood() {
                        memory::give_back();
                        let built = field.built(&field.ready[subject].contestant);
                        *field.ready[subject].subject.write().unwrap() = built.ok();
                    }
                    slices[subject].push(stage.turn(Turn { subject, round }));
                    if field.workload.is_flood() {
                        *field.ready[subject].subject.write().unwrap() = None;
                    }
                }
            }
            stage.close();
        });
        let results = self.ready.iter().zip(slices).map(|(ready, slices)| self.judged(ready, &slices));
        let (measured, wrong): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
        self.wrong.extend(wrong.into_iter().filter_map(Result::err));
        measured.into_iter().filter_map(Result::ok).collect()
    }

    /// The loop of a thread until the stage closes.
    fn work(&self, thread: usize, stage: &Stage, pace: Pace) {
        while let Some(turn) = stage.next_turn() {
            let subject = self.ready[turn.subject].subject.read().unwrap();
            let slice = subject.as_ref().map_or_else(Slice::default, |subject| {
                if self.workload.is_flood() {
                    let share = self.stream.len() / CHUNK / stage.threads * CHUNK;
                    let before = waited();
                    stage.align();
                    let slice = whole(subject.as_ref(), &self.stream[thread * share..][..share]);
                    Slice { waited: waited() - before, ..slice }
                } else {
                    // Every round and thread begins at a different position, which is the same for
                    // all subjects.
                    let chunks = self.stream.len() / CHUNK;
                    let begin = chunks * turn.round / pace.rounds + chunks * thread / stage.threads;
                    // The first chunk only loads code and thread-locals into the caches.
                    subject.decide(&self.stream[begin % chunks * CHUNK..][..CHUNK]);
                    let before = waited();
                    stage.align();
                    let slice = timed(subject.as_ref(), &self.stream, begin % chunks, pace.slice);
                    Slice { waited: waited() - before, ..slice }
                }
            });
            drop(subject);
            stage.finish(thread, slice);
        }
    }

    fn judged(&self, ready: &Ready<K>, turns: &[Vec<Slice>]) -> Result<Measured, String> {
        let name = ready.contestant.name;
        let sum = |value: fn(&Slice) -> u64| turns.iter().flatten().map(value).sum::<u64>();
        let (checks, admitted) = (sum(|slice| slice.checks), sum(|slice| slice.admitted));
        let as_expected = match self.workload.quota {
            Quota::Ample | Quota::Lasting => admitted == checks,
            // Limiters without rates below one per second admit one request per second.
            Quota::UsedUp => admitted * 1000 <= checks || STATELESS.contains(&name),
        };
        if checks == 0 || !as_expected {
            let title = self.workload.title();
            return Err(format!("{title}: {name} admitted {admitted} of {checks} checks"));
        }
        let nanos = |turn: &Vec<Slice>| {
            let each = turn.iter().map(|slice| slice.nanos as f64 / slice.checks as f64);
            each.sum::<f64>() / turn.len() as f64
        };
        let rounds = turns.iter().map(nanos).collect();
        let waiting = sum(|slice| slice.waited) as f64 / sum(|slice| slice.nanos) as f64;
        let Ready { bytes_per_key, resident_per_key, .. } = *ready;
        Ok(Measured { name, rounds, bytes_per_key, resident_per_key, waiting })
    }
}

fn whole<K>(subject: &dyn Subject<K>, keys: &[K]) -> Slice {
    let start = Instant::now();
    let admitted = keys.chunks(CHUNK).map(|chunk| subject.decide(chunk)).sum();
    Slice { checks: keys.len() as u64, admitted, nanos: nanos_since(start), waited: 0 }
}

fn timed<K>(subject: &dyn Subject<K>, stream: &[K], begin: usize, slice: Duration) -> Slice {
    let start = Instant::now();
    let mut done = Slice::default();
    for chunk in stream.chunks(CHUNK).cycle().skip(begin) {
        done.admitted += subject.decide(chunk);
        done.checks += chunk.len() as u64;
        if start.elapsed() >= slice {
            break;
        }
    }
    done.nanos = nanos_since(start);
    done
}

/// Returns the nanoseconds for which this thread was ready and had no core, or 0 if the system does
/// not report them.
fn waited() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the numbers below `count` in an order that differs in each round and is the same in each
/// run.
fn shuffled(count: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&place| <u64 as Key>::numbered((round * count + place) as u64));
    order
}

#[derive(Clone, Copy)]
struct Turn {
    subject: usize,
    round: usize,
}

/// The meeting point of the director and the threads.
struct Stage {
    threads: usize,
    barrier: Barrier,
    /// `None` when the measurement is over.
    turn: Mutex<Option<Turn>>,
    /// The number of times that a thread was ready to begin.
    aligned: AtomicUsize,
    slices: Mutex<Vec<Slice>>,
}

impl Stage {
    fn new(threads: usize) -> Self {
        Self {
            threads,
            barrier: Barrier::new(threads + 1),
            turn: Mutex::new(None),
            aligned: AtomicUsize::new(0),
            slices: Mutex::new(vec![Slice::default(); threads]),
        }
    }

    /// Runs one turn on all threads. Only the director calls this method.
    fn turn(&self, turn: Turn) -> Vec<Slice> {
        *self.turn.lock().unwrap() = Some(turn);
        self.barrier.wait();
        self.barrier.wait();
        self.slices.lock().unwrap().clone()
    }

    fn close(&self) {
        *self.turn.lock().unwrap() = None;
        self.barrier.wait();
    }

    fn next_turn(&self) -> Option<Turn> {
        self.barrier.wait();
        *self.turn.lock().unwrap()
    }

    fn finish(&self, thread: usize, slice: Slice) {
        self.slices.lock().unwrap()[thread] = slice;
        self.barrier.wait();
    }

    /// Returns when all threads have arrived. A barrier does not suffice, because it wakes threads
    /// one after the other.
    fn align(&self) {
        let arrived = self.aligned.fetch_add(1, SeqCst) + 1;
        let all = arrived.next_multiple_of(self.threads);
        let mut spins = 0_u32;
        while self.aligned.load(SeqCst) < all {
            spins += 1;
            // The other threads may need this core to get here.
            if spins.is_multiple_of(1024) { thread::yield_now() } else { spin_loop() }
        }
    }
}
