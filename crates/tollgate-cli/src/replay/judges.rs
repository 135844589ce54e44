//! The algorithms of a replay at work: on the thread that reads, or each on threads of their own.
//!
//! A batch goes to all of them, and each takes its batches in order, so threads change no decision.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::decisions::Decisions;
use super::entry::Entry;
use super::simulation::Batch;
use crate::failure::Failure;

/// The batches that wait for a thread, at most.
const WAITING: usize = 64;

/// Algorithms with the file that their decisions go to.
pub(crate) struct Judges {
    entries: Vec<Entry>,
    decisions: Option<Decisions>,
}

/// Where the algorithms are.
pub(crate) enum Court {
    Here(Box<Judges>),
    Threads(Vec<Bench>),
}

/// Algorithms on a thread.
pub(crate) struct Bench {
    /// `None` ends the thread.
    batches: Option<SyncSender<Arc<Case>>>,
    thread: Option<JoinHandle<Result<Judges, Failure>>>,
}

/// A batch, and the number of keys that there are up to its end.
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
        Ok(())
    }
}

impl Court {
    pub(crate) fn new(entries: Vec<Entry>, decisions: Option<Decisions>) -> Self {
        Self::Here(Box::new(Judges { entries, decisions }))
    }

    /// Moves the algorithms to at most so many threads.
    pub(crate) fn spread(&mut self, threads: usize) {
        let Self::Here(judges) = self else { return };
        let (entries, mut decisions) = (std::mem::take(&mut judges.entries), judges.decisions.take());
        let each = entries.len().div_ceil(threads).max(1);
        let mut entries = entries.into_iter().peekable();
        let mut benches = Vec::new();
        while entries.peek().is_some() {
            // Decisions are those of one algorithm, which is the only one.
            let judges =
                Judges { entries: entries.by_ref().take(each).collect(), decisions: decisions.take() };
            benches.push(Bench::new(judges));
        }
        *self = Self::Threads(benches);
    }

    /// Decides the requests of the batch, which is empty afterwards. `keys` is the number of keys
    /// so far.
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

    /// Decides the requests of the batch on this thread, and returns the algorithms. They were not
    /// moved to others.
    pub(crate) fn judge_here(&mut self, batch: &Batch, keys: usize) -> Result<&[Entry], Failure> {
        let Self::Here(judges) = self else { unreachable!("the algorithms were moved to other threads") };
        judges.judge(batch, keys)?;
        Ok(&judges.entries)
    }

    /// Waits until all batches are decided, and returns the algorithms in their order and the file
    /// of decisions.
    pub(crate) fn finish(self) -> Result<(Vec<Entry>, Option<Decisions>), Failure> {
        let benches = match self {
            Self::Here(judges) => return Ok((judges.entries, judges.decisions)),
            Self::Threads(benches) => benches,
        };
        let (mut all, mut file) = (Vec::new(), None);
        for mut bench in benches {
            if let Some(Judges { entries, decisions }) = bench.end()? {
                all.extend(entries);
                file = file.or(decisions);
            }
        }
        Ok((all, file))
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

    /// Ends the thread, if it has not been ended, and returns what it had.
    fn end(&mut self) -> Result<Option<Judges>, Failure> {
        self.batches = None;
        let Some(thread) = self.thread.take() else { return Ok(None) };
        let judges = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        judges.map(Some)
    }
}

/// A thread that is left alone could be stopped by the end of the program before it has removed its
/// file.
impl Drop for Bench {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
