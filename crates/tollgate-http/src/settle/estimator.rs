//! An optional estimator of costs, based on a quantile of earlier requests' costs.

use super::tally::Tally;
use crate::error::{Fault, LayerError};
use std::fmt;

/// Estimates the cost of a request from earlier requests. The estimate is a quantile of the earlier
/// costs in the same class, and never exceeds the maximum declared by the request.
///
/// If each request reserved its maximum cost, other requests would be refused for the sake of
/// tokens that are rarely used. With a quantile of 0.95, one request in twenty costs more than its
/// estimate. The limit's [`max_debt`](tollgate::Builder::max_debt) covers the difference.
///
/// A class is a group of requests with its own distribution of costs, such as the requests from one
/// class of callers, the requests for one model, or a combination of both. Each class requires 4
/// KB.
///
/// A cost loses half of its weight with every 2048 costs that follow. The estimate is up to an
/// eighth above the exact quantile.
///
/// [`RequestCost::estimated`](crate::RequestCost::estimated) charges the estimate as the cost of
/// each request. If the limit is [settled](crate::Limit::settle), the estimator learns from each
/// complete response that reveals its cost. It ignores responses that are cut off or whose client
/// hangs up.
///
/// ```
/// use tollgate_http::Estimator;
///
/// let estimator = Estimator::new(0.95, 1000, ["chat", "summary"])?;
/// // Nothing is known yet: the largest maximum that the request declares or, without one, 1000.
/// assert_eq!(estimator.estimate("chat", [1, 10_000]), 10_000);
/// assert_eq!(estimator.estimate("chat", []), 1000);
///
/// (1..=100).for_each(|cost| estimator.observe("chat", cost));
/// let estimate = estimator.estimate("chat", [10_000]);
/// assert!((95..=106).contains(&estimate));
/// assert_eq!(estimator.estimate("chat", [10]), 10);
/// assert_eq!(estimator.estimate("summary", []), 1000);
/// # Ok::<(), tollgate_http::LayerError>(())
/// ```
pub struct Estimator {
    thousandths: u64,
    initial: u64,
    /// The last tally belongs to all other classes together.
    classes: Box<[(Box<str>, Tally)]>,
}

impl Estimator {
    /// Creates an estimator for these classes. All other classes together form one more class. The
    /// quantile is from 0.001 to 0.999, in steps of 0.001.
    ///
    /// `initial` is the estimate for a request that declares no maximum. It applies as long as the
    /// request's class has too few costs for a quantile (fewer than 20 for a quantile of 0.95).
    ///
    /// # Errors
    ///
    /// Returns an error if the quantile is not in this range.
    ///
    /// ```
    /// # use tollgate_http::Estimator;
    /// let one_for_all = Estimator::new(0.9, 500, [""; 0])?;
    /// assert!(Estimator::new(95.0, 500, [""; 0]).is_err());
    /// # Ok::<(), tollgate_http::LayerError>(())
    /// ```
    pub fn new<'c>(
        quantile: f64,
        initial: u64,
        classes: impl IntoIterator<Item = &'c str>,
    ) -> Result<Self, LayerError> {
        let thousandths = (1..1000_u16).find(|&it| (quantile * 1000.0 - f64::from(it)).abs() < 1e-6);
        let Some(thousandths) = thousandths else {
            return Err(Fault::Quantile { quantile: quantile.to_string() }.into());
        };
        let names = classes.into_iter().chain([""]);
        let classes = names.map(|name| (name.into(), Tally::default())).collect();
        Ok(Self { thousandths: thousandths.into(), initial, classes })
    }

    /// Returns an estimate in tokens. The estimate is at least 1 and, if the request declares
    /// maximum costs, at most the largest of them. (A request with two such fields may cost as much
    /// as the larger one.)
    ///
    /// # Progress
    ///
    /// This method is wait-free. It reads the 496 counts of the class.
    ///
    /// ```
    /// # use tollgate_http::Estimator;
    /// # let estimator = Estimator::new(0.9, 500, [""; 0])?;
    /// let (max_tokens, max_completion_tokens) = (Some(1), Some(10_000));
    /// let declared = [max_tokens, max_completion_tokens].into_iter().flatten();
    /// assert_eq!(estimator.estimate("chat", declared), 10_000);
    /// # Ok::<(), tollgate_http::LayerError>(())
    /// ```
    pub fn estimate(&self, class: &str, declared: impl IntoIterator<Item = u64>) -> u64 {
        self.estimate_within(u64::MAX, class, declared)
    }

    /// Returns an estimate in tokens. The estimate is at most `capacity`, unless it is a maximum
    /// that the request declares. A limit always refuses a cost above its capacity, and an
    /// estimator whose requests are all refused could never learn a smaller cost.
    pub(crate) fn estimate_within(
        &self,
        capacity: u64,
        class: &str,
        declared: impl IntoIterator<Item = u64>,
    ) -> u64 {
        let most = declared.into_iter().max();
        let learnt = self.classes[self.class(class)].1.quantile(self.thousandths);
        let learnt = learnt.map(|learnt| learnt.min(capacity));
        let estimate = learnt.or(most).unwrap_or(self.initial.min(capacity));
        estimate.min(most.unwrap_or(u64::MAX)).max(1)
    }

    /// Learns the cost of a request of this class, in tokens.
    ///
    /// # Progress
    ///
    /// This method is lock-free, and wait-free for all but one call in 2048.
    ///
    /// ```
    /// # use tollgate_http::Estimator;
    /// # let estimator = Estimator::new(0.5, 500, ["chat"])?;
    /// [7, 8, 9].map(|cost| estimator.observe("chat", cost));
    /// assert_eq!(estimator.estimate("chat", []), 8);
    /// # Ok::<(), tollgate_http::LayerError>(())
    /// ```
    pub fn observe(&self, class: &str, cost: u64) {
        self.learn(self.class(class), cost);
    }

    /// Returns the index of a class.
    pub(crate) fn class(&self, name: &str) -> usize {
        let others = self.classes.len() - 1;
        self.classes[..others].iter().position(|(class, _)| **class == *name).unwrap_or(others)
    }

    /// Learns a cost of the class with this index.
    pub(crate) fn learn(&self, class: usize, cost: u64) {
        if let Some((_, tally)) = self.classes.get(class) {
            tally.count(cost);
        }
    }
}

impl fmt::Debug for Estimator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thousandths, initial, .. } = self;
        let mut debug = f.debug_struct("Estimator");
        debug.field("thousandths", thousandths).field("initial", initial).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_declared_maximum_clamps_the_estimate() {
        let estimator = Estimator::new(0.95, 1000, ["chat"]).unwrap();
        let declared = [Some(1), Some(10_000), None].into_iter().flatten();
        assert_eq!(estimator.estimate("chat", declared.clone()), 10_000);
        (0..100).for_each(|_| estimator.observe("chat", 4096));
        let learnt = estimator.estimate("chat", declared);
        assert!((4096..=4608).contains(&learnt), "{learnt}");
        assert_eq!(estimator.estimate("chat", [1, 100]), 100);
        assert_eq!(estimator.estimate("chat", [0]), 1);
    }

    #[test]
    fn each_class_has_an_estimate_of_its_own_and_unknown_ones_share_one() {
        let estimator = Estimator::new(0.5, 1000, ["free", "paid"]).unwrap();
        for (class, cost) in [("free", 3), ("paid", 9), ("else", 12)] {
            (0..10).for_each(|_| estimator.observe(class, cost));
        }
        let estimates = ["free", "paid", "else", "other", ""].map(|class| estimator.estimate(class, []));
        assert_eq!(estimates, [3, 9, 12, 12, 12]);
    }

    #[test]
    fn too_few_costs_are_no_quantile() {
        let estimator = Estimator::new(0.95, 1000, [""; 0]).unwrap();
        (0..19).for_each(|_| estimator.observe("", 5));
        assert_eq!((estimator.estimate("", []), estimator.estimate("", [70])), (1000, 70));
        estimator.observe("", 5);
        assert_eq!((estimator.estimate("", []), estimator.estimate("", [70])), (5, 5));
    }

    #[test]
    fn a_quantile_is_between_0_and_1_in_thousandths() {
        for quantile in [0.0, 1.0, 95.0, -0.5, 0.9999, 0.0001, f64::NAN, f64::INFINITY] {
            let refused = Estimator::new(quantile, 1, [""; 0]).unwrap_err();
            assert_eq!(*refused.fault(), Fault::Quantile { quantile: quantile.to_string() });
        }
        for quantile in [0.001, 0.5, 0.95, 0.999] {
            assert!(Estimator::new(quantile, 1, [""; 0]).is_ok(), "{quantile}");
        }
    }
}
