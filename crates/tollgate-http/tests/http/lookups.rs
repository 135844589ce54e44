//! Tests classes that a function looks up in a database. The database answers when the test allows
//! it.

use super::elsewhere::{Elsewhere, UnderWay, Waits};
use super::gate::Gate;
use super::site::{Answer, Site, from, site};
use http::Request;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tollgate::{Limiter, Quota};
use tollgate_http::{ClassBy, ClassLookup, KeyBy, Limit, RateLimitLayer, TrustedProxies, WhenNoKey};

/// A database of plans. It holds back its answers while it is closed.
#[derive(Default)]
struct Plans {
    gate: Gate,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    plans: HashMap<String, &'static str>,
    /// How the database fails: `error` or `panic`.
    fault: &'static str,
    asked: Vec<String>,
    /// The number of open queries, and the maximum so far.
    open: usize,
    most_open: usize,
}

/// A query, which counts as open until it is answered or dropped.
struct Open<'p>(&'p Plans);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().open -= 1;
    }
}

impl Plans {
    fn new(plans: &[(&str, &'static str)]) -> Arc<Self> {
        let new = Self::default();
        new.state.lock().unwrap().plans =
            plans.iter().map(|(key, plan)| ((*key).to_owned(), *plan)).collect();
        Arc::new(new)
    }

    fn set(&self, key: &str, plan: &'static str) {
        self.state.lock().unwrap().plans.insert(key.to_owned(), plan);
    }

    fn fault(&self, fault: &'static str) {
        self.state.lock().unwrap().fault = fault;
    }

    fn close(&self) {
        self.gate.close();
    }

    fn open(&self) {
        self.gate.open();
    }

    /// Returns the keys that were asked about since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().asked)
    }

    async fn plan_of(self: Arc<Self>, key: String) -> Result<Option<String>, String> {
        let fault = {
            let mut state = self.state.lock().unwrap();
            state.asked.push(key.clone());
            state.open += 1;
            state.most_open = state.most_open.max(state.open);
            state.fault
        };
        let _open = Open(&self);
        self.gate.pass().await;
        assert_ne!(fault, "panic");
        if fault == "error" {
            return Err("no connection".to_owned());
        }
        Ok(self.state.lock().unwrap().plans.get(&key).map(|&plan| plan.to_owned()))
    }

    fn lookup(self: &Arc<Self>, site: &Site) -> ClassLookup<String> {
        let plans = Arc::clone(self);
        let who = |head: tollgate_http::RequestHead<'_>| {
            Some(String::from_utf8_lossy(&head.header("x-user")?).into_owned())
        };
        ClassLookup::new(who, move |key| Arc::clone(&plans).plan_of(key)).clock(&site.clock)
    }
}

/// A per-address limit: two requests an hour, or four for paying callers.
fn tier(site: &Site, by: ClassBy) -> Limit {
    let builder = Limiter::builder(Quota::per_hour(2)).clock(&site.clock);
    let limiter = builder.class("paid", Quota::per_hour(4)).build().unwrap();
    Limit::new("tier", limiter).by(KeyBy::peer()).class_by(by).when_no_key(WhenNoKey::Deny)
}

/// Returns a layer with this limit alone, and the lookup's clock.
fn running(plans: &Arc<Plans>) -> (Waits, tollgate::ManualClock) {
    let site = site();
    let clock = site.clock.clone();
    let limit = tier(&site, ClassBy::from(plans.lookup(&site)));
    (site.limit(limit).run_shared(), clock)
}

fn of(user: &str) -> Request<()> {
    from("192.0.2.1", "/", &[("x-user", user)])
}

/// Returns the quota that a response shows.
fn quota(answer: &Answer) -> &str {
    let policy = answer.header("ratelimit-policy").unwrap();
    policy.strip_prefix("\"tier\";q=").and_then(|rest| rest.strip_suffix(";w=3600")).unwrap()
}

#[test]
fn who_pays_has_his_quota_from_the_first_request_on() {
    let plans = Plans::new(&[("alice", "paid"), ("carol", "gold")]);
    let site = site();
    let limit = tier(&site, ClassBy::from(plans.lookup(&site)));
    let unknown = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&unknown);
    let hook = move |_: &str, class: &str| listener.lock().unwrap().push(class.to_owned());
    let site = site.limit(limit).with(|builder| builder.on_unknown_class(hook)).run_shared();
    plans.close();
    let mut waiting = site.under_way(of("alice"));
    assert_eq!(waiting.status(), None);
    plans.open();
    let answer = waiting.answer().unwrap();
    assert_eq!((answer.status.as_u16(), quota(&answer)), (200, "4"));
    // The database does not contain bob, and the limiter does not have carol's class, gold. A
    // request without a user does not query the database.
    assert_eq!(quota(&site.send(of("bob"))), "2");
    assert_eq!(quota(&site.send(of("carol"))), "2");
    assert_eq!(site.send(of("carol")).status, 429);
    assert_eq!(*unknown.lock().unwrap(), ["gold"; 2], "from the answer, and from what is known");
    plans.asked();
    assert_eq!(quota(&site.send(from("192.0.2.2", "/", &[]))), "2");
    assert_eq!(plans.asked(), [""; 0]);
}

#[test]
fn requests_of_one_key_wait_for_one_question() {
    let plans = Plans::new(&[("alice", "paid")]);
    let (site, _) = running(&plans);
    plans.close();
    let mut waiting = ["alice", "bob", "alice", "alice"].map(|user| site.under_way(of(user)));
    assert!(waiting.iter_mut().all(|request| request.status().is_none()));
    assert_eq!(plans.asked(), ["alice", "bob"]);
    plans.open();
    let answers = waiting.each_mut().map(|request| request.answer().unwrap());
    assert_eq!(answers.each_ref().map(quota), ["4", "2", "4", "4"]);
    // The class is now known, even while the database does not answer.
    plans.close();
    assert_eq!(quota(&site.send(of("alice"))), "4");
    assert_eq!(plans.asked(), [""; 0]);
}

#[test]
fn an_answer_counts_for_its_time() {
    let plans = Plans::new(&[("alice", "paid")]);
    let (site, clock) = running(&plans);
    assert_eq!((quota(&site.send(of("alice"))), quota(&site.send(of("bob")))), ("4", "2"));
    plans.set("bob", "paid");
    plans.asked();
    clock.advance(Duration::from_nanos(59_999_999_999));
    assert_eq!(quota(&site.send(of("bob"))), "2");
    assert_eq!(plans.asked(), [""; 0]);
    clock.advance(Duration::from_nanos(1));
    plans.close();
    let mut waiting = [site.under_way(of("bob")), site.under_way(of("bob"))];
    assert!(waiting.iter_mut().all(|request| request.status().is_none()));
    plans.open();
    assert_eq!(waiting.each_mut().map(|it| quota(&it.answer().unwrap()).to_owned()), ["4", "4"]);
    assert_eq!(plans.asked(), ["bob"]);
}

#[test]
fn a_question_that_fails_leaves_the_class_as_it_was_and_is_asked_again() {
    for fault in ["error", "panic"] {
        let plans = Plans::new(&[("alice", "paid")]);
        let (site, clock) = running(&plans);
        assert_eq!(quota(&site.send(of("alice"))), "4");
        plans.fault(fault);
        clock.advance(Duration::from_secs(7200));
        assert_eq!(quota(&site.send(of("alice"))), "4", "{fault}");
        // Bob's class was not known before.
        assert_eq!(quota(&site.send(of("bob"))), "2");
        assert_eq!(plans.asked(), ["alice", "alice", "bob"]);
        clock.advance(Duration::from_nanos(999_999_999));
        let _ = site.statuses([of("alice"), of("bob")]);
        assert_eq!(plans.asked(), [""; 0], "not at each request");
        clock.advance(Duration::from_nanos(1));
        plans.fault("");
        plans.set("bob", "paid");
        plans.set("alice", "");
        clock.advance(Duration::from_secs(7200));
        assert_eq!((quota(&site.send(of("alice"))), quota(&site.send(of("bob")))), ("2", "4"), "{fault}");
    }
}

#[test]
fn who_hangs_up_neither_ends_the_question_of_others_nor_leaves_one_open() {
    let plans = Plans::new(&[("alice", "paid")]);
    let (site, _) = running(&plans);
    plans.close();
    let mut first = site.under_way(of("alice"));
    let mut second = site.under_way(of("alice"));
    assert_eq!((first.status(), second.status()), (None, None));
    drop(first);
    assert_eq!((second.status(), plans.state.lock().unwrap().open), (None, 1));
    drop(second);
    assert_eq!(plans.state.lock().unwrap().open, 0, "nobody waits, so the database is let go");
    plans.open();
    let mut first = site.under_way(of("alice"));
    assert_eq!(quota(&first.answer().unwrap()), "4");
    assert_eq!(plans.asked(), ["alice", "alice"]);
    // The first caller hangs up, and the answer wakes the other.
    let (site, _) = running(&plans);
    plans.close();
    let mut first = site.under_way(of("alice"));
    let second = site.under_way(of("alice"));
    assert_eq!(first.status(), None);
    let waiting = thread::spawn(move || pollster::block_on(second).unwrap());
    drop(first);
    plans.open();
    assert_eq!(quota(&waiting.join().unwrap()), "4");
}

#[test]
fn what_another_limit_refuses_asks_nobody() {
    let plans = Plans::new(&[("alice", "paid")]);
    let site = site();
    let all = Limit::new("all", site.single(Quota::per_hour(1)));
    let limit = tier(&site, ClassBy::from(plans.lookup(&site)));
    let site = site.limit(limit).limit(all).run_shared();
    let passed = site.send(of("alice"));
    assert_eq!(passed.items("ratelimit-policy"), ["tier q=4 w=3600", "all q=1 w=3600"]);
    plans.asked();
    let refused = site.send(of("bob"));
    assert_eq!((refused.status.as_u16(), plans.asked()), (429, vec![]));
    // If the class is not known, its quota is not shown.
    assert_eq!(refused.items("ratelimit-policy"), ["all q=1 w=3600"]);
    assert_eq!(refused.items("ratelimit"), ["all r=0 t=3600"]);
    // If the class is known, its quota is shown.
    assert_eq!(site.send(of("alice")).items("ratelimit-policy"), ["tier q=4 w=3600", "all q=1 w=3600"]);
}

#[test]
fn two_limits_ask_at_the_same_time_and_beside_a_shared_one() {
    let site = site();
    let (one, other) = (Plans::new(&[("alice", "paid")]), Plans::new(&[]));
    let elsewhere = [4, 8].map(|quota| Elsewhere::new(site.limiter(Quota::per_hour(quota))));
    let shared = Limit::new("there", elsewhere[0].with_class("paid", &elsewhere[1])).by(KeyBy::peer());
    let shared = shared.class_by(other.lookup(&site)).when_no_key(WhenNoKey::Deny);
    let limit = tier(&site, ClassBy::from(one.lookup(&site)));
    let site = site.limit(shared).limit(limit).run_shared();
    one.close();
    other.close();
    let mut waiting: UnderWay = site.under_way(of("alice"));
    assert_eq!(waiting.status(), None);
    assert_eq!((one.asked().len(), other.asked().len(), elsewhere[0].calls().len()), (1, 1, 0));
    one.open();
    assert_eq!(waiting.status(), None);
    other.open();
    let answer = waiting.answer().unwrap();
    assert_eq!(answer.items("ratelimit-policy"), ["there q=4 w=3600", "tier q=4 w=3600"]);
    assert_eq!(answer.items("ratelimit"), ["there r=3 t=900", "tier r=3 t=900"]);
    assert_eq!((elsewhere[0].calls(), elsewhere[1].calls()), (vec!["check 1".to_owned()], vec![]));
    // A caller whose class has no tokens left is refused before the shared limit is asked.
    assert_eq!(site.statuses([of("alice"), of("alice"), of("alice")]), [200, 200, 200]);
    elsewhere[0].calls();
    assert_eq!(site.send(of("alice")).status, 429);
    assert_eq!(elsewhere[0].calls(), [""; 0]);
}

#[test]
fn answers_are_kept_about_so_many_keys() {
    let plans = Plans::new(&[]);
    let site = site();
    let limit = tier(&site, ClassBy::from(plans.lookup(&site).max_keys(64)));
    let site = site.limit(limit).run_shared();
    let users: Vec<String> = (0..1000).map(|number| format!("user-{number}")).collect();
    let asked = || {
        for user in &users {
            site.send(of(user));
        }
        plans.asked().len()
    };
    assert_eq!(asked(), 1000);
    let again = asked();
    assert!((1000 - 64..=1000).contains(&again), "{again}");
}

#[test]
fn threads_that_race_ask_one_question_of_a_key_at_a_time() {
    let plans = Plans::new(&[("alice", "paid")]);
    let (site, clock) = running(&plans);
    plans.close();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let request = site.under_way(of("alice"));
            thread::spawn(move || quota(&pollster::block_on(request).unwrap()).to_owned())
        })
        .collect();
    while !plans.gate.is_waited_for() {
        thread::yield_now();
    }
    plans.open();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap() == "4"));
    clock.advance(Duration::from_secs(60));
    assert_eq!(quota(&site.send(of("alice"))), "4");
    assert_eq!(plans.state.lock().unwrap().most_open, 1);
}

#[test]
fn a_lookup_that_cannot_work_is_refused() {
    let refused = |lookup: fn(ClassLookup<String>) -> ClassLookup<String>| {
        let site = site();
        let limit = tier(&site, ClassBy::from(lookup(Plans::new(&[]).lookup(&site))));
        let built = RateLimitLayer::builder().limit(limit).build();
        built.map(drop).map_err(|error| error.to_string())
    };
    for (message, part) in [
        (refused(|it| it.max_keys(0)), "class lookup: invalid max_keys 0: expected 1 to 16777216"),
        (refused(|it| it.max_keys(usize::MAX)), "expected 1 to 16777216"),
        (
            refused(|it| it.keep_for(Duration::ZERO)),
            "class lookup: invalid time 0ns for an answer to count: ",
        ),
        (refused(|it| it.keep_for(Duration::MAX)), "expected 1ms to 24h"),
    ] {
        let message = message.unwrap_err();
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(refused(|it| it.max_keys(1).keep_for(Duration::from_millis(1))), Ok(()));
    let shown = format!("{:?}", ClassBy::header("x-plan", TrustedProxies::hops(1)));
    assert_eq!(shown, "header(x-plan)");
}
