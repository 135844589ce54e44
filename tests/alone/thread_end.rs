//! Calls in the destructors of thread-local variables, at the end of a thread. The thread-local
//! variable of scc may then be destroyed. A panic in such a destructor aborts the process, so the
//! calls run in a process of their own.

use std::cell::RefCell;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use tollgate::store::ExactKeys;
use tollgate::{Charge, InFlight, Limiter, ManualClock, Quota, Reservation, SingleLimiter, check_all};

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

fn all_calls() {
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
        return all_calls();
    }
    let name = "thread_end::exact_keys_work_in_destructors_of_thread_locals";
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
    // A panic that is caught on the way would be reported here.
    assert!(output.stderr.is_empty(), "{output:?}");
}
