//! Many keys: each user has a hundred requests a second, at most two at once.

use tollgate::{Denied, Limiter, Quota};

fn serve(limiter: &Limiter<String>, user: &str) -> Result<String, Denied> {
    limiter.check(user).ok()?;
    Ok(format!("hello, {user}"))
}

fn main() -> Result<(), tollgate::ConfigError> {
    let limiter = Limiter::builder(Quota::per_second(100).burst(2)).build()?;
    for user in ["alice", "alice", "alice", "bob"] {
        match serve(&limiter, user) {
            Ok(answer) => println!("{answer}"),
            Err(denied) => println!("{user}: {denied}"),
        }
    }
    Ok(())
}
