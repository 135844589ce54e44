//! Tests the text of a quota. Parsing and printing must be inverse operations, and an error must
//! state the position and the reason.

use super::input::Input;
use super::rule::quota;
use tollgate::{Algorithm, Quota, SingleLimiter};

pub fn body(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<Quota>() {
        Ok(quota) => {
            assert_eq!(quota.to_string().parse(), Ok(quota), "{text:?}");
            for algorithm in Algorithm::ALL {
                if let Err(refused) = SingleLimiter::builder(quota).algorithm(algorithm).build() {
                    assert!(refused.to_string().contains("allowed: "), "{refused}");
                }
            }
        }
        Err(refused) => {
            assert!(text.is_char_boundary(refused.offset().unwrap()), "{refused}");
            let message = refused.to_string();
            assert!(message.starts_with("invalid quota ") && message.contains("allowed: "), "{message}");
        }
    }
    let _ = text.parse::<Algorithm>();
    // A printed quota must parse to the same quota. A period that is too long for any limiter may
    // also be too long for the text.
    let quota = quota(&mut Input(data));
    if quota.period() <= Quota::MAX_PERIOD && !quota.period().is_zero() {
        assert_eq!(quota.to_string().parse(), Ok(quota));
    }
}
