//! One resource: at most five e-mails a minute, the first three at once.

use tollgate::{Quota, SingleLimiter};

fn main() -> Result<(), tollgate::ConfigError> {
    let emails = SingleLimiter::builder(Quota::per_minute(5).burst(3)).build()?;
    for number in 1..=4 {
        let decision = emails.check();
        if decision.is_allowed() {
            println!("e-mail {number}: sent, {} left", decision.remaining());
        } else {
            println!("e-mail {number}: retry after {:?}", decision.retry_after());
        }
    }
    Ok(())
}
