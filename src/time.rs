//! A point in time, stored as a number of nanoseconds that cannot overflow.

use std::fmt;
use std::time::Duration;

/// A point in time, counted in nanoseconds (*ticks*) since an origin.
///
/// The code that reads the clock chooses the origin. For example, a limiter's own clock counts from
/// the creation of the clock, and a log replay may count from the Unix epoch. Only differences
/// matter, except for windows, whose boundaries count from tick 0 or from the Unix epoch, as
/// [`WindowAlign`](crate::WindowAlign) specifies.
///
/// Ticks range from 0 to [`Tick::MAX`], which is 2^61 ns or about 73 years. All arithmetic
/// saturates, so any later time is treated as [`Tick::MAX`]. Time stops there, which can delay a
/// request but never admit one too early.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Tick;
///
/// let start = Tick::from_nanos(500);
/// assert_eq!((start + Duration::from_micros(1)).as_nanos(), 1_500);
/// assert_eq!(Tick::from_nanos(u64::MAX), Tick::MAX);
/// assert_eq!(Tick::MAX + Duration::MAX, Tick::MAX);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

impl Tick {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// The last point in time: 2^61 ns, about 73 years after the origin.
    pub const MAX: Self = Self(1 << 61);

    /// Returns the time `nanos` nanoseconds after the origin, or [`Tick::MAX`], whichever is
    /// earlier.
    ///
    /// ```
    /// assert_eq!(tollgate::Tick::from_nanos(7).as_nanos(), 7);
    /// ```
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        if nanos > Self::MAX.0 { Self::MAX } else { Self(nanos) }
    }

    /// Returns the nanoseconds since the origin.
    ///
    /// ```
    /// assert_eq!(tollgate::Tick::MAX.as_nanos(), 1 << 61);
    /// ```
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns this time minus `by`, or the origin if the result would be before the origin.
    #[inline]
    pub(crate) fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns true if the two times are at least `by` apart, in either order. (A clock reading
    /// from another thread may be ahead.)
    #[inline]
    pub(crate) const fn is_apart(self, other: Self, by: Duration) -> bool {
        self.0.abs_diff(other.0) as u128 >= by.as_nanos()
    }

    /// Returns the duration from `earlier` to this time, or zero if this time is not after
    /// `earlier`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Tick;
    ///
    /// let (a, b) = (Tick::from_nanos(10), Tick::from_nanos(30));
    /// assert_eq!(b.since(a), Duration::from_nanos(20));
    /// assert_eq!(a.since(b), Duration::ZERO);
    /// ```
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for Tick {
    /// Returns the time that lies `after_origin` after the origin, or [`Tick::MAX`], whichever is
    /// earlier.
    #[inline]
    fn from(after_origin: Duration) -> Self {
        Self::from_nanos(u64::try_from(after_origin.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl std::ops::Add<Duration> for Tick {
    type Output = Self;

    /// Returns this time plus `later`, or [`Tick::MAX`], whichever is earlier.
    #[inline]
    fn add(self, later: Duration) -> Self {
        let nanos = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(self.0.saturating_add(nanos))
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tick({:?})", Duration::from_nanos(self.0))
    }
}
