//! Calls in the destructors of thread-local variables, at the end of a thread. The thread-local
//! variable of scc may then be destroyed. A panic in such a destructor aborts the process, so the
//! calls run in a process of their own.

use std::cell::RefCell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tollgate::store::ExactKeys;
use tollgate::{
    Algorithm, Charge, Clock, InFlight, Limiter, ManualClock, Quota, Reservation, SingleLimiter, check_all,
};

/// A variable of the environment that is set in the other process.
const CHILD: &str = "TOLLGATE_THREAD_END";

type Exact = Arc<Limiter<String, ExactKeys<String>>>;

/// Runs a closure when dropped.
struct AtEnd(RefCell<Option<Box<dyn FnOnce()>>>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.take().expect("a thread sets it")();
    }
}

thread_local! {
    static AT_END: AtEnd = const { AtEnd(RefCell::new(None)) };
}

/// Runs `call` on a new thread, after the destructors of the thread-local variables that `before`
/// has used first. (They are destroyed in the reverse order of their first use.)
fn at_the_end_of_a_thread(before: impl FnOnce() + Send + 'static, call: impl FnOnce() + Send + 'static) {
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ended);
    let thread = thread::spawn(move || {
        let call = move || {
            call();
            counted.fetch_add(1, Relaxed);
        };
        AT_END.with(|at_end| at_end.0.replace(Some(Box::new(call))));
        before();
    });
    thread.join().unwrap();
    assert_eq!(ended.load(Relaxed), 1, "the destructor did not run");
}

fn exact() -> Exact {
    let builder = Limiter::<String>::builder(Quota::per_hour(10)).max_keys(1_000);
    Arc::new(builder.clock(ManualClock::new()).exact_keys().build().unwrap())
}

/// Calls each method of a limiter.
fn use_all(limiter: &Limiter<String, ExactKeys<String>>) {
    assert_eq!(limiter.check("known").remaining(), 8);
    for key in 0..50 {
        assert!(limiter.check(&key.to_string()).is_allowed());
    }
    let charge = limiter.check_n("new", 4);
    assert_eq!((charge.remaining(), limiter.peek("new").remaining()), (6, 6));
    limiter.refund_n("new", &charge, 3);
    assert_eq!(limiter.force("new", 9), 9);
    assert!(!limiter.check("new").is_allowed());
    limiter.reset("new");
    assert_eq!(limiter.peek("new").remaining(), 10);
    limiter.set_key_quota("own", Quota::per_hour(3)).unwrap();
    assert_eq!(limiter.check("own").remaining(), 2);
    limiter.set_key_quota("own", None).unwrap();
    assert_eq!(limiter.key_quota("own"), None);
    limiter.set_quota(Quota::per_hour(20)).unwrap();
    assert!(limiter.check("own").is_allowed());
    let keys = (limiter.for_key("own"), limiter.for_key("other"));
    assert!(check_all(&mut [Charge::new(&keys.0, 1), Charge::new(&keys.1, 1)]).is_ok());
    assert_eq!((limiter.keys().count(), limiter.stats().keys), (54, 54));
    limiter.clear();
    while limiter.sweep(1_000) {}
    assert_eq!(limiter.len(), 0);
    assert!(limiter.check("known").is_allowed());
}

fn exact_calls() {
    // The thread has used scc, and its variable is destroyed before the calls.
    let limiter = exact();
    let before = Arc::clone(&limiter);
    at_the_end_of_a_thread(move || assert!(before.check("known").is_allowed()), move || use_all(&limiter));
    // The thread uses scc for the first time.
    let limiter = exact();
    assert!(limiter.check("known").is_allowed());
    at_the_end_of_a_thread(|| (), move || use_all(&limiter));
    // The last owner of a limiter is a thread-local variable.
    let limiter = exact();
    let before = Arc::clone(&limiter);
    at_the_end_of_a_thread(move || assert!(before.check("known").is_allowed()), move || drop(limiter));
    // Permits and reservations that own their key.
    let places = InFlight::<u64>::builder(9).clock(ManualClock::new()).exact_keys().build().unwrap();
    let (before, after) = (places.clone(), places.clone());
    let last = move || {
        let permit = after.acquire_owned(7).unwrap();
        assert_eq!(after.in_flight(&7), 2);
        drop(permit);
    };
    at_the_end_of_a_thread(move || std::mem::forget(before.acquire_owned(7).unwrap()), last);
    assert_eq!(places.in_flight(&7), 1);
    for is_settled in [false, true] {
        let limiter = exact();
        let before = Arc::clone(&limiter);
        let held = Reservation::new(limiter.for_key_owned("held".to_owned()), 5).unwrap();
        let last = move || if is_settled { _ = held.commit(2) } else { held.release() };
        at_the_end_of_a_thread(move || assert!(before.check("held").is_allowed()), last);
        assert_eq!(limiter.peek("held").remaining(), if is_settled { 7 } else { 9 });
    }
}

/// Calls of limiters without exact keys. Each case runs on a thread that calls the limiter for the
/// first time, and on a thread that has called it before.
fn other_calls() {
    fn both<T: Send + Sync + 'static>(limiter: T, before: fn(&T), last: fn(&T)) {
        let limiter = Arc::new(limiter);
        let (first, owner) = (Arc::clone(&limiter), Arc::clone(&limiter));
        at_the_end_of_a_thread(|| (), move || last(&first));
        at_the_end_of_a_thread(move || before(&limiter), move || last(&owner));
    }
    let fingerprints = Limiter::<String>::builder(Quota::per_hour(10)).max_keys(100_000);
    let check = |limiter: &Limiter<String>| {
        for key in 0..5_000 {
            assert!(limiter.check(&key.to_string()).is_allowed());
        }
        limiter.set_key_quota("own", Quota::per_hour(3)).unwrap();
        let key = limiter.for_key("own");
        let reservation = Reservation::new(&key, 1).unwrap();
        assert_eq!(reservation.commit(0).charged, 0);
        limiter.clear();
    };
    both(fingerprints.build().unwrap(), check, check);
    // The clock has a state for each thread.
    for clock in [Clock::default(), Clock::system(), Clock::coarse(Duration::from_millis(10))] {
        let builder = SingleLimiter::builder(Quota::per_hour(100_000)).clock(clock);
        let check = |limiter: &SingleLimiter| assert!(limiter.check().is_allowed());
        both(builder.core_leases().build().unwrap(), check, check);
    }
    let log = SingleLimiter::builder(Quota::per_hour(10_000)).algorithm(Algorithm::SlidingLog);
    let check = |limiter: &SingleLimiter| {
        for _ in 0..1_000 {
            let charge = limiter.check();
            limiter.refund(&charge);
            assert!(charge.is_allowed() && limiter.check().is_allowed());
        }
    };
    both(log.build().unwrap(), check, check);
    let permits = InFlight::<u64>::builder(9).build().unwrap();
    both(permits, |permits| drop(permits.acquire(&7)), |permits| drop(permits.acquire_owned(7)));
}

#[test]
fn limiters_work_in_destructors_of_thread_locals() {
    if std::env::var_os(CHILD).is_some() {
        return other_calls();
    }
    calls_in_another_process("thread_end::limiters_work_in_destructors_of_thread_locals");
}

/// A thread takes a lease in its destructor, and another thread is granted what is left of it.
#[test]
fn leases_work_in_destructors_of_thread_locals() {
    let builder = SingleLimiter::builder(Quota::per_hour(1_000_000)).core_leases();
    let limiter = Arc::new(builder.build().unwrap());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                (0..200_000).take_while(|_| limiter.leased() == 0).for_each(|_| _ = limiter.check())
            });
        }
    });
    let last = Arc::clone(&limiter);
    at_the_end_of_a_thread(|| (), move || assert!((0..10_000).all(|_| last.check().is_allowed())));
    while limiter.check_n(1_000).is_allowed() {}
    assert_eq!(limiter.leased(), 0, "the leases of ended threads are returned");
}

#[test]
fn exact_keys_work_in_destructors_of_thread_locals() {
    if std::env::var_os(CHILD).is_some() {
        return exact_calls();
    }
    calls_in_another_process("thread_end::exact_keys_work_in_destructors_of_thread_locals");
}

/// Runs a test in another process, whose calls must not panic.
fn calls_in_another_process(name: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    // A panic that is caught on the way would be reported here.
    assert!(output.stderr.is_empty(), "{output:?}");
}
