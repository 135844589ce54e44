//! The text of a duration for a person.

use std::fmt;
use std::time::Duration;

/// A duration that is displayed in at most two units, rounded up.
pub(super) struct Rounded(pub(super) Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MILLISECOND: u128 = 1_000_000;
        /// Two units and their lengths in seconds.
        const UNITS: [(u128, &str, u128, &str); 3] =
            [(86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")];
        let nanos = self.0.as_nanos();
        let seconds = nanos.div_ceil(1_000 * MILLISECOND);
        let Some((large, name, small, rest)) = UNITS.into_iter().find(|units| seconds >= units.0) else {
            return match nanos.div_ceil(MILLISECOND) {
                millis @ ..1_000 => write!(f, "{millis} ms"),
                _ => match nanos.div_ceil(100 * MILLISECOND) {
                    tenths if tenths.is_multiple_of(10) => write!(f, "{} s", tenths / 10),
                    tenths => write!(f, "{}.{} s", tenths / 10, tenths % 10),
                },
            };
        };
        let count = seconds.div_ceil(small);
        write!(f, "{} {name}", count * small / large)?;
        match count * small % large / small {
            0 => Ok(()),
            more => write!(f, " {more} {rest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_rounded_up_to_two_units() {
        let text = |nanos| Rounded(Duration::from_nanos(nanos)).to_string();
        const SECOND: u64 = 1_000_000_000;
        for (nanos, expected) in [
            (1, "1 ms"),
            (120_000_000, "120 ms"),
            (998_000_001, "999 ms"),
            (999_000_001, "1 s"),
            (SECOND + 1, "1.1 s"),
            (SECOND + 200_000_000, "1.2 s"),
            (2 * SECOND, "2 s"),
            (58 * SECOND + 950_000_000, "59 s"),
            (59 * SECOND + 1, "1 min"),
            (61 * SECOND, "1 min 1 s"),
            (3_599 * SECOND + 1, "1 h"),
            (3_660 * SECOND + 1, "1 h 2 min"),
            (86_340 * SECOND + 1, "24 h"),
            (86_400 * SECOND, "1 d"),
            (90_000 * SECOND + 1, "1 d 2 h"),
            (u64::MAX, "213504 d"),
        ] {
            assert_eq!(text(nanos), expected, "{nanos}");
        }
    }
}
