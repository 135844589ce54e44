//! Runs the algorithms of a replay, on the reading thread or on other threads.
//!
//! Each batch is sent to all algorithms, and each algorithm processes the batches in order. The
//! number of threads therefore never changes a decision.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::changes::Changes;
use super::decisions::Decisions;
use super::entry::Entry;
use super::simulation::{Batch, Simulation};
use crate::failure::Failure;
#[cfg(feature = "html")]
use crate::replay::html::watch::Watch;

/// The maximum number of batches that may wait for a thread.
const WAITING: usize = 64;

/// Algorithms, and the file for their decisions.
pub(crate) struct Judges {
    entries: Vec<Entry>,
    decisions: Option<Decisions>,
    witness: Witness,
}

/// The observers of the first algorithm's decisions.
#[derive(Default)]
pub(crate) struct Witness {
    pub(crate) against: Option<Against>,
    #[cfg(feature = "html")]
    pub(crate) watch: Option<Watch>,
}

/// The simulation of the quota given by `--against`, and the differences found so far.
pub(crate) struct Against {
    pub(crate) simulation: Box<Simulation>,
    pub(crate) changes: Changes,
}

impl Witness {
    fn is_there(&self) -> bool {
        #[cfg(feature = "html")]
        if self.watch.is_some() {
            return true;
        }
        self.against.is_some()
    }

    fn look(&mut self, main: &Simulation, batch: &Batch, keys: usize) -> Result<(), Failure> {
        if let Some(Against { simulation, changes }) = &mut self.against {
            simulation.judge(batch, keys, None)?;
            let [before, after] = [&**simulation, main].map(|simulation| simulation.decided(batch));
            for (before, after) in before.zip(after) {
                let passes = [&before, &after].map(|decided| decided.decision.is_allowed());
                changes.add(after.at, passes, || after.key.into(), None::<fn() -> &'static str>);
            }
        }
        #[cfg(feature = "html")]
        if let Some(watch) = &mut self.watch {
            watch.judge(batch, keys, main.decided(batch))?;
        }
        Ok(())
    }
}

/// Where the algorithms run: on this thread, or on other threads.
pub(crate) enum Court {
    Here(Box<Judges>),
    Threads(Vec<Bench>),
}

/// A thread that runs some of the algorithms.
pub(crate) struct Bench {
    /// The channel to the thread. Setting this to `None` ends the thread.
    batches: Option<SyncSender<Arc<Case>>>,
    thread: Option<JoinHandle<Result<Judges, Failure>>>,
}

/// A batch, and the number of keys seen in the log up to the end of the batch.
struct Case {
    batch: Batch,
    keys: usize,
}

impl Judges {
    fn judge(&mut self, batch: &Batch, keys: usize) -> Result<(), Failure> {
        for entry in &mut self.entries {
            if let Entry::Simulated(simulation) = entry {
                simulation.judge(batch, keys, self.decisions.as_mut())?;
            }
        }
        let main = self.entries.iter().find_map(|entry| match entry {
            Entry::Simulated(simulation) => Some(simulation),
            Entry::Refused { .. } => None,
        });
        match main.filter(|_| self.witness.is_there()) {
            Some(main) => self.witness.look(main, batch, keys),
            None => Ok(()),
        }
    }
}

impl Court {
    pub(crate) fn new(entries: Vec<Entry>, decisions: Option<Decisions>, witness: Witness) -> Self {
        Self::Here(Box::new(Judges { entries, decisions, witness }))
    }

    /// Moves the algorithms to at most this many threads. Does nothing if a witness must observe
    /// the first algorithm's decisions.
    pub(crate) fn spread(&mut self, threads: usize) {
        let Self::Here(judges) = self else { return };
        if judges.witness.is_there() {
            return;
        }
        let (entries, mut decisions) = (std::mem::take(&mut judges.entries), judges.decisions.take());
        let each = entries.len().div_ceil(threads).max(1);
        let mut entries = entries.into_iter().peekable();
        let mut benches = Vec::new();
        while entries.peek().is_some() {
            // A decisions file is written only if there is just one algorithm.
            let judges = Judges {
                entries: entries.by_ref().take(each).collect(),
                decisions: decisions.take(),
                witness: Witness::default(),
            };
            benches.push(Bench::new(judges));
        }
        *self = Self::Threads(benches);
    }

    /// Decides the batch's requests, then empties the batch. `keys` is the number of keys seen so
    /// far.
    pub(crate) fn judge(&mut self, batch: &mut Batch, keys: usize) -> Result<(), Failure> {
        match self {
            Self::Here(judges) => {
                judges.judge(batch, keys)?;
                batch.clear();
            }
            Self::Threads(benches) => {
                let case = Arc::new(Case { batch: std::mem::take(batch), keys });
                for bench in benches {
                    let sent = bench.batches.as_ref().map(|batches| batches.send(Arc::clone(&case)));
                    if !matches!(sent, Some(Ok(()))) {
                        bench.end()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits until all batches are decided. Returns the algorithms in their original order, the
    /// decisions file, and the witness.
    pub(crate) fn finish(self) -> Result<(Vec<Entry>, Option<Decisions>, Witness), Failure> {
        let benches = match self {
            Self::Here(judges) => return Ok((judges.entries, judges.decisions, judges.witness)),
            Self::Threads(benches) => benches,
        };
        let (mut all, mut file) = (Vec::new(), None);
        for mut bench in benches {
            if let Some(Judges { entries, decisions, .. }) = bench.end()? {
                all.extend(entries);
                file = file.or(decisions);
            }
        }
        Ok((all, file, Witness::default()))
    }
}

impl Bench {
    fn new(mut judges: Judges) -> Self {
        let (batches, to_judge) = sync_channel::<Arc<Case>>(WAITING);
        let thread = thread::spawn(move || {
            while let Ok(case) = to_judge.recv() {
                judges.judge(&case.batch, case.keys)?;
            }
            Ok(judges)
        });
        Self { batches: Some(batches), thread: Some(thread) }
    }

    /// Ends the thread and returns its algorithms. Returns `None` if the thread has already been
    /// ended.
    fn end(&mut self) -> Result<Option<Judges>, Failure> {
        self.batches = None;
        let Some(thread) = self.thread.take() else { return Ok(None) };
        let judges = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        judges.map(Some)
    }
}

/// Waits for the thread, because otherwise the program could end before the thread has removed its
/// temporary file.
impl Drop for Bench {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
