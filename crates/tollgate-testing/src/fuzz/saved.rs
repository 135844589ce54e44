//! Runs a fuzz target's body on the saved inputs and on thousands of variations of them.

use crate::race::Random;
use std::fs;
use std::path::Path;
use std::thread;

/// Prints the bytes for which a body failed.
struct Tried<'d>(&'d str, &'d [u8]);

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{} has failed on {:?}", self.0, self.1);
        }
    }
}

fn below(random: &mut Random, limit: usize) -> usize {
    usize::try_from(random.below(limit as u64)).unwrap_or(0)
}

fn byte(random: &mut Random) -> u8 {
    below(random, 256).to_le_bytes()[0]
}

/// Runs `body` on each saved input for `target`, and then on `more` inputs that are random or
/// derived from the saved ones. All test runs use the same inputs.
pub fn try_all(target: &str, body: impl Fn(&[u8]), more: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let saved: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(saved.len() >= 5, "{} holds next to nothing", folder.display());
    for data in &saved {
        let tried = Tried(target, data);
        body(tried.1);
    }
    let random = &mut Random(1);
    for _ in 0..more {
        let data = match below(random, 4) {
            0 => (0..below(random, 400)).map(|_| byte(random)).collect(),
            _ => variation(random, &saved),
        };
        let tried = Tried(target, &data);
        body(tried.1);
    }
}

/// Returns the start of one input followed by the end of another, with some bytes changed.
fn variation(random: &mut Random, saved: &[Vec<u8>]) -> Vec<u8> {
    let (one, other) = (&saved[below(random, saved.len())], &saved[below(random, saved.len())]);
    let (end, begin) = (below(random, one.len() + 1), below(random, other.len() + 1));
    let mut data = [&one[..end], &other[begin..]].concat();
    for _ in 0..below(random, 6) {
        if !data.is_empty() {
            let at = below(random, data.len());
            data[at] = byte(random);
        }
    }
    data
}
