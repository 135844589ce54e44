//! Who is measured: one name and one way to build it for each.

mod gcra;
mod limiters;
mod maps;
mod ours;

use crate::keys::Key;

/// What a limiter is to grant.
#[derive(Clone, Copy, PartialEq)]
pub enum Quota {
    /// Ten a second, and a billion at once: nobody is ever denied, and no key is as good as new within a
    /// tenth of a second after its last check.
    Ample,
    /// Two, and the next after half an hour (or, for those who know no slower rate, a second).
    UsedUp,
}

impl Quota {
    pub const fn burst(self) -> u32 {
        match self {
            Self::Ample => 1_000_000_000,
            Self::UsedUp => 2,
        }
    }

    /// Nanoseconds from one token to the next.
    pub const fn interval(self) -> u64 {
        match self {
            Self::Ample => 100_000_000,
            Self::UsedUp => 1_800_000_000_000,
        }
    }
}

/// What a subject is built for.
#[derive(Clone, Copy)]
pub struct Setting {
    pub quota: Quota,
    /// How many keys there are in all.
    pub keys: usize,
}

/// A limiter, ready to decide.
pub trait Subject<K>: Send + Sync {
    /// Decides for each of `keys` in turn; how many were admitted.
    fn decide(&self, keys: &[K]) -> u64;

    /// Forgets the keys that are as good as new, where that is the caller's task.
    fn sweep(&self) {}
}

/// A subject that is asked for one key at a time: `Each(|key| admitted)`.
struct Each<F>(F);

impl<K, F: Fn(&K) -> bool + Send + Sync> Subject<K> for Each<F> {
    fn decide(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| u64::from((self.0)(key))).sum()
    }
}

fn each<K, F: Fn(&K) -> bool + Send + Sync + 'static>(check: F) -> Built<K> {
    Ok(Box::new(Each(check)))
}

/// A subject that its user has to sweep from time to time.
struct Swept<T, F, G> {
    limiter: T,
    check: F,
    sweep: G,
}

impl<K, T, F, G> Subject<K> for Swept<T, F, G>
where
    T: Send + Sync,
    F: Fn(&T, &K) -> bool + Send + Sync,
    G: Fn(&T) + Send + Sync,
{
    fn decide(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| u64::from((self.check)(&self.limiter, key))).sum()
    }

    fn sweep(&self) {
        (self.sweep)(&self.limiter);
    }
}

fn swept<K, T, F, G>(limiter: T, check: F, sweep: G) -> Built<K>
where
    T: Send + Sync + 'static,
    F: Fn(&T, &K) -> bool + Send + Sync + 'static,
    G: Fn(&T) + Send + Sync + 'static,
{
    Ok(Box::new(Swept { limiter, check, sweep }))
}

/// A subject, or why it does not fit.
pub type Built<K> = Result<Box<dyn Subject<K>>, &'static str>;

/// How to get a subject.
pub struct Contestant<K> {
    pub name: &'static str,
    pub build: fn(Setting) -> Built<K>,
}

/// The one that all others are compared with.
pub const BASE: &str = "governor";
/// Not a limiter: what it costs to walk through the keys.
pub const EMPTY_LOOP: &str = "(empty loop)";
/// Not a limiter either: the least that anything with a state per key can cost.
pub const FLOOR: &str = "(floor: clock + CAS)";

const ONE_RESOURCE: &str = "limits one resource, not keys";

/// All of them, in the order of the first round.
pub fn all<K: Key>() -> Vec<Contestant<K>> {
    let contestant = |(name, build)| Contestant { name, build };
    let lists = [ours::all(), limiters::all(), maps::all()];
    lists.into_iter().flatten().map(contestant).collect()
}

/// Rows of [`all`].
type Rows<K> = Vec<(&'static str, fn(Setting) -> Built<K>)>;
