//! A cost: each account may upload a megabyte a minute, counted in kilobytes. A failed upload is
//! refunded.

use tollgate::{Limiter, Quota};

fn main() -> Result<(), tollgate::ConfigError> {
    let uploads: Limiter<u64> = Limiter::builder(Quota::per_minute(1_000)).build()?;
    for (account, bytes, fails) in [(7, 600_000_u64, true), (7, 900_000, false), (7, 400_000, false)] {
        let kilobytes = bytes.div_ceil(1_000);
        let decision = uploads.check_n(&account, kilobytes);
        if !decision.is_allowed() {
            println!("{kilobytes} kB: retry after {:?}", decision.retry_after());
        } else if fails {
            uploads.refund(&account, &decision);
            println!("{kilobytes} kB: failed and given back");
        } else {
            println!("{kilobytes} kB: uploaded, {} kB left", decision.remaining());
        }
    }
    Ok(())
}
