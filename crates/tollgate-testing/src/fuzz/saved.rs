//! Runs a fuzz target's body on the saved inputs and on thousands of variations of them.

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

/// A linear congruential generator (Knuth, MMIX). Only its high bits are used.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }

    fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }
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
    let mut random = Random(1);
    for _ in 0..more {
        let data = match random.below(4) {
            0 => (0..random.below(400)).map(|_| random.byte()).collect(),
            _ => variation(&mut random, &saved),
        };
        let tried = Tried(target, &data);
        body(tried.1);
    }
}

/// Returns the start of one input followed by the end of another, with some bytes changed.
fn variation(random: &mut Random, saved: &[Vec<u8>]) -> Vec<u8> {
    let (one, other) = (&saved[random.below(saved.len())], &saved[random.below(saved.len())]);
    let (end, begin) = (random.below(one.len() + 1), random.below(other.len() + 1));
    let mut data = [&one[..end], &other[begin..]].concat();
    for _ in 0..random.below(6) {
        if !data.is_empty() {
            let at = random.below(data.len());
            data[at] = random.byte();
        }
    }
    data
}
