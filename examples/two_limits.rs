//! Two limits: two requests a second for each address, and three a second in all. A request is
//! charged to both or to neither.

use std::net::{IpAddr, Ipv4Addr};
use tollgate::{Charge, Denied, Limiter, Quota, SingleLimiter, check_all};

fn main() -> Result<(), tollgate::ConfigError> {
    let each: Limiter<IpAddr> = Limiter::builder(Quota::per_second(2)).build()?;
    let all = SingleLimiter::builder(Quota::per_second(3)).build()?;

    let admit = |address: IpAddr| -> Result<(), Denied> {
        let each = each.for_key(&address);
        check_all(&mut [Charge::new(&each, 1), Charge::new(&all, 1)])
    };
    for last in [1, 1, 1, 2, 3] {
        let address = IpAddr::V4(Ipv4Addr::new(203, 0, 113, last));
        match admit(address) {
            Ok(()) => println!("{address}: served"),
            Err(denied) => println!("{address}: {denied}"),
        }
    }
    Ok(())
}
