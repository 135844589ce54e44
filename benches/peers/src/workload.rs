//! The workloads.

use crate::keys::Order;
use crate::subjects::Quota;

/// The keys of a workload.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    U64,
    String,
    Ipv6,
}

#[derive(Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    pub kind: Kind,
    pub order: Order,
    /// The number of different keys.
    pub keys: usize,
    pub quota: Quota,
    /// The heading on pages and in the picture, with `{}` for the number of keys.
    heading: &'static str,
    /// Whether the picture has a panel for the workload.
    pub is_drawn: bool,
}

impl Workload {
    /// Returns whether each key is new. In that case, each turn has a new and empty subject.
    pub fn is_flood(&self) -> bool {
        self.order == Order::Fresh
    }

    /// Returns the heading with the number of keys: `1,000,000 keys, u64`.
    pub fn heading(&self) -> String {
        self.heading.replace("{}", &grouped(self.keys))
    }

    /// See [`title`].
    pub fn title(&self) -> String {
        title(self.name, self.keys)
    }
}

/// Returns a name with the number of keys: `uniform u64, 1,000,000 keys`.
pub fn title(name: &str, keys: usize) -> String {
    if keys == 1 { name.to_owned() } else { format!("{name}, {}", counted(keys, "key")) }
}

/// Returns all workloads. `many` is a million, except in a run that only shows that everything
/// works.
pub fn all(many: usize, large: bool) -> Vec<Workload> {
    use Kind::{Ipv6, String, U64};
    use Order::{Fresh, Uniform, Zipf};
    use Quota::{Ample, UsedUp};

    let workload = |(name, kind, order, keys, quota, heading, is_drawn)| Workload {
        name,
        kind,
        order,
        keys,
        quota,
        heading,
        is_drawn,
    };
    let mut list = vec![
        ("hot key, admitted, u64", U64, Uniform, 1, Ample, "hot key, admitted", true),
        ("hot key, denied, u64", U64, Uniform, 1, UsedUp, "hot key, denied", true),
        ("hot key, admitted, String", String, Uniform, 1, Ample, "hot key, admitted, String", false),
        ("uniform u64", U64, Uniform, 1_000, Ample, "{} keys", true),
        ("uniform String", String, Uniform, 1_000, Ample, "{} keys, String", false),
        ("uniform u64", U64, Uniform, many, Ample, "{} keys, u64", true),
        ("uniform String", String, Uniform, many, Ample, "{} keys, String", true),
        ("uniform IPv6", Ipv6, Uniform, many, Ample, "{} keys, IPv6", false),
        ("Zipf u64", U64, Zipf, many, Ample, "{} keys, u64 by Zipf's law", false),
        ("flood of fresh u64", U64, Fresh, many / 2, Ample, "flood of new keys", true),
    ];
    if large {
        list.push(("uniform u64", U64, Uniform, 10 * many, Ample, "{} keys, u64", false));
    }
    list.into_iter().map(workload).collect()
}

/// `1 thread`, `1,000 keys`.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// `1,000,000`.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
