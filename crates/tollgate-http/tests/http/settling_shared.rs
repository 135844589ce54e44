//! Tests shared limits whose cost is revealed by the response. The store answers when the test
//! allows it, and tasks run when the test polls them.

use super::elsewhere::Elsewhere;
use super::settling::{
    Answer, ESTIMATE, USAGE, call, cases, charged, events, json, layer, limiter, pull, pull_all, send,
};
use http::Request;
use http_body::Body as _;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;
use tollgate::{Limiter, ManualClock, Quota, Settlement, SingleLimiter};
use tollgate_http::{ClassBy, Key, KeyBy, Limit, RateLimitBuilder, RateLimitLayer, ResponseCost, WhenNoKey};

/// A single limit for all requests, on another machine: 100 tokens an hour, a debt of up to 50, and
/// an estimate of 20.
struct One {
    elsewhere: Arc<Elsewhere>,
    layer: RateLimitLayer,
}

fn elsewhere(clock: &ManualClock, tokens: u64, debt: u64) -> Arc<Elsewhere> {
    let limiter = Limiter::builder(Quota::per_hour(tokens)).clock(clock).max_debt(debt);
    Elsewhere::new(limiter.build().unwrap())
}

fn one_with(settle: ResponseCost, change: impl FnOnce(Limit) -> Limit) -> One {
    let elsewhere = elsewhere(&ManualClock::new(), 100, 50);
    let limit = Limit::new("tokens", Arc::clone(&elsewhere)).by(KeyBy::nothing());
    let limit = change(limit.cost(ESTIMATE).settle(settle));
    One { layer: layer([limit]), elsewhere }
}

fn one(settle: ResponseCost) -> One {
    one_with(settle, |limit| limit)
}

impl One {
    /// Returns how many tokens are charged, including the debt.
    fn charged(&self) -> u64 {
        self.elsewhere.charged(&key())
    }

    /// Sends a request, and removes its checks from the recorded calls.
    fn send(&self, data: &[&str]) -> Answer {
        let answer = send(&self.layer, json(data));
        self.elsewhere.calls();
        answer
    }
}

/// Pulls all frames, and runs the tasks after each. Returns the number of frames.
fn pull_with_tasks(answer: &mut Answer, elsewhere: &Elsewhere) -> u64 {
    let mut frames = 0;
    while pull(answer).is_some() {
        frames += 1;
        elsewhere.run_tasks();
    }
    frames
}

fn key() -> Key {
    let none: [&str; 0] = [];
    Key::new("tokens", none)
}

const TEN: &str = "0123456789";

#[test]
fn a_shared_limit_is_settled_as_one_of_this_process() {
    for (number, (settle, response, cost)) in cases().into_iter().enumerate() {
        let one = one(settle());
        let frames = response.body().0.len();
        let mut answer = send(&one.layer, response);
        assert_eq!(pull_all(&mut answer).len(), frames, "{number}");
        drop(answer);
        assert_eq!(one.elsewhere.run_tasks(), 0, "{number}");
        assert_eq!(one.charged(), cost, "{number}");
    }
}

#[test]
fn no_response_waits_for_the_store() {
    for settle in [ResponseCost::bytes(1), ResponseCost::bytes(1).cut_off()] {
        let one = one(settle);
        let mut answer = one.send(&[TEN, TEN, TEN]);
        one.elsewhere.close();
        pull_with_tasks(&mut answer, &one.elsewhere);
        drop(answer);
        assert_eq!((one.charged(), one.elsewhere.run_tasks()), (ESTIMATE + 5, 1));
        one.elsewhere.open();
        assert_eq!((one.elsewhere.run_tasks(), one.charged()), (0, 30));
    }
}

#[test]
fn a_header_settles_a_shared_limit_before_the_body_is_asked_for() {
    for (stated, cost) in [(7, 7), (45, 45)] {
        let one = one(ResponseCost::header("x-tokens").or(ResponseCost::bytes(1)));
        let mut response = json(&[TEN]);
        response.headers_mut().insert("x-tokens", stated.into());
        let mut answer = send(&one.layer, response);
        assert_eq!((one.elsewhere.run_tasks(), one.charged()), (0, cost));
        pull_all(&mut answer);
        assert_eq!((one.elsewhere.run_tasks(), one.charged()), (0, cost));
    }
}

#[test]
fn a_dropped_body_is_settled_without_being_polled_again() {
    for (pulled, cost) in [(0, ESTIMATE), (1, 10), (3, 30)] {
        let one = one(ResponseCost::bytes(1));
        let mut answer = one.send(&[TEN; 5]);
        (0..pulled).for_each(|_| _ = pull(&mut answer));
        drop(answer);
        assert_eq!((one.elsewhere.run_tasks(), one.charged()), (0, cost));
    }
    // A handler that fails leaves the estimate, and no task.
    let one = one(ResponseCost::bytes(1));
    assert!(call(&one.layer, Request::new(()), Err("failed".to_owned())).is_err());
    assert_eq!((one.elsewhere.run_tasks(), one.charged()), (0, ESTIMATE));
}

#[test]
fn what_goes_beyond_the_estimate_is_asked_for_in_steps() {
    let one = one(ResponseCost::bytes(1));
    let mut answer = one.send(&["0123456789012345", "67", "8", "9", TEN, TEN]);
    let mut pull = || {
        pull(&mut answer);
        one.elsewhere.run_tasks();
        one.elsewhere.calls()
    };
    assert_eq!([pull(), pull()], [[""; 0]; 2], "a step is 5, and 2 are left, which is half of it");
    assert_eq!(pull(), ["check 5"]);
    assert_eq!(pull(), [""; 0], "25 are charged");
    assert_eq!(pull(), ["check 11"], "5 are missing, and the next step is 6");
    assert_eq!(pull(), ["check 13"]);
    drop(answer);
    one.elsewhere.run_tasks();
    assert_eq!((one.elsewhere.calls(), one.charged()), (vec!["refund 9".to_owned()], 40));
}

#[test]
fn a_stream_takes_what_is_left_and_is_cut_at_the_first_frame_after_a_denial() {
    let one = one(ResponseCost::bytes(1).cut_off());
    let mut answer = one.send(&[TEN; 20]);
    let frames = pull_with_tasks(&mut answer, &one.elsewhere);
    // A process-local limit would have passed ten frames. Here, one more frame passed while its
    // tokens were being requested.
    assert_eq!((frames, one.elsewhere.run_tasks(), one.charged()), (11, 0, 110));
    assert!(answer.body().is_end_stream());
    // A step is a quarter of the tokens charged so far, plus any tokens already missing. Of the 24
    // tokens in the last full step, only 4 were available.
    let steps = [5, 11, 13, 13, 15, 19, 24, 4, 10].map(|tokens| format!("check {tokens}"));
    assert_eq!(one.elsewhere.calls(), [&steps[..], &["force 10".to_owned()]].concat());
    // The debt is paid first.
    assert_eq!(call(&one.layer, Request::new(()), Ok(json(&[]))).unwrap().status(), 429);
}

#[test]
fn a_stream_over_its_limit_takes_each_token_that_is_refilled() {
    let clock = ManualClock::new();
    let elsewhere = elsewhere(&clock, 100, 0);
    let limit = Limit::new("tokens", Arc::clone(&elsewhere)).by(KeyBy::nothing()).cost(ESTIMATE);
    let layer = layer([limit.settle(ResponseCost::bytes(1))]);
    let mut answer = send(&layer, json(&[&*TEN.repeat(3); 40]));
    for number in 0..40 {
        assert!(pull(&mut answer).is_some());
        elsewhere.run_tasks();
        let left = elsewhere.left(&key());
        assert!(number < 10 || left == 0, "{number}: {left}");
        // 20 tokens are refilled, and the next frame costs 30.
        clock.advance(Duration::from_secs(720));
    }
}

#[test]
fn a_stream_whose_store_is_silent_gets_at_most_the_capacity_beyond() {
    let one = one(ResponseCost::bytes(1).cut_off());
    let mut answer = one.send(&[TEN; 40]);
    one.elsewhere.close();
    let frames = pull_with_tasks(&mut answer, &one.elsewhere);
    assert_eq!(frames, (ESTIMATE + 100) / 10);
    one.elsewhere.open();
    // The limit charges all 120 bytes that passed, 20 of them as debt.
    assert_eq!((one.elsewhere.run_tasks(), one.charged()), (0, 120));
}

#[test]
fn one_question_is_under_way_at_a_time() {
    let one = one(ResponseCost::bytes(1));
    let mut answer = one.send(&[TEN; 8]);
    one.elsewhere.close();
    pull_with_tasks(&mut answer, &one.elsewhere);
    assert_eq!(one.elsewhere.calls(), ["check 5"]);
    one.elsewhere.open();
    one.elsewhere.run_tasks();
    assert_eq!((one.elsewhere.calls(), one.charged()), (vec!["force 55".to_owned()], 80));
}

#[test]
fn what_is_granted_when_the_body_is_gone_is_given_back() {
    let one = one(ResponseCost::bytes(1));
    let mut answer = one.send(&[TEN, TEN, TEN]);
    one.elsewhere.close();
    (0..2).for_each(|_| _ = pull(&mut answer));
    assert_eq!((one.elsewhere.run_tasks(), one.elsewhere.calls()), (1, vec!["check 5".to_owned()]));
    drop(answer);
    one.elsewhere.open();
    assert_eq!((one.elsewhere.run_tasks(), one.charged()), (0, 20));
    assert_eq!(one.elsewhere.calls(), ["refund 5"]);
}

#[test]
fn a_task_that_is_dropped_leaves_the_charges_and_a_stream_that_must_pay_ends() {
    for (cuts, passed) in [(true, 2), (false, 5)] {
        let settle = ResponseCost::bytes(1);
        let one = one(if cuts { settle.cut_off() } else { settle });
        let mut answer = one.send(&[TEN; 5]);
        one.elsewhere.drop_tasks();
        assert_eq!(pull_all(&mut answer).len(), passed);
        drop(answer);
        assert_eq!((one.charged(), one.elsewhere.calls()), (ESTIMATE, vec![]));
    }
}

#[test]
fn a_smaller_figure_gives_back_all_that_was_charged_on_the_way() {
    let one = one(ResponseCost::json("usage.total_tokens").or(ResponseCost::bytes(1)).cut_off());
    let (before, after) = USAGE.split_at(25);
    let mut answer = one.send(&[before, after, "  "]);
    for charged in [20 + 5 + 5, 20 + 5 + 5 + 12] {
        pull(&mut answer);
        one.elsewhere.run_tasks();
        assert_eq!(one.charged(), charged);
    }
    assert_eq!(one.elsewhere.calls(), ["check 10", "check 12"]);
    // The refunds are sent one after the other.
    one.elsewhere.close();
    pull_all(&mut answer);
    assert_eq!((one.elsewhere.run_tasks(), one.elsewhere.calls()), (1, vec!["refund 12".to_owned()]));
    one.elsewhere.open();
    assert_eq!((one.elsewhere.run_tasks(), one.charged()), (0, 7));
    assert_eq!(one.elsewhere.calls(), ["refund 10", "refund 13"]);
}

#[test]
fn a_shared_shadow_counts_and_cuts_nothing() {
    let clock = ManualClock::new();
    let tried = elsewhere(&clock, 100, 50);
    let limit = Limit::new("tokens", Arc::clone(&tried)).by(KeyBy::nothing()).shadow();
    let open = Limit::new("open", SingleLimiter::builder(Quota::per_hour(1)).build().unwrap());
    let layer = layer([limit.settle(ResponseCost::bytes(1).cut_off()), open]);
    let mut answer = send(&layer, json(&[&*TEN.repeat(6); 3]));
    let frames = pull_with_tasks(&mut answer, &tried);
    // The cost is 180, but the limit charges no more than its remaining tokens and its maximum
    // debt.
    assert_eq!((frames, tried.run_tasks(), tried.charged(&key())), (3, 0, 150));
}

#[test]
fn a_frame_that_one_limit_refuses_costs_the_other_nothing() {
    let clock = ManualClock::new();
    for shared_cuts in [true, false] {
        let (shared, here) = if shared_cuts { (60, 1000) } else { (1000, 60) };
        let far = elsewhere(&clock, shared, 0);
        let near = Arc::new(SingleLimiter::builder(Quota::per_hour(here)).clock(&clock).build().unwrap());
        let settle = |limit: Limit| limit.cost(20).settle(ResponseCost::bytes(1).cut_off());
        let limits = [
            Limit::new("tokens", Arc::clone(&far)).by(KeyBy::nothing()),
            Limit::new("near", Arc::clone(&near)),
        ];
        let layer = layer(limits.map(settle));
        let mut answer = send(&layer, json(&[TEN; 20]));
        let frames = pull_with_tasks(&mut answer, &far);
        assert_eq!((frames, far.run_tasks()), (if shared_cuts { 7 } else { 6 }, 0));
        assert_eq!(near.peek().capacity() - near.peek().remaining(), 10 * frames);
        // If the shared limit cuts the stream off, the seventh frame passes while its tokens are
        // being requested. The limit allows no debt, so it charges 60 tokens in both cases.
        assert_eq!(far.charged(&key()), 60);
    }
}

#[test]
fn each_class_is_settled_with_its_own_limiter() {
    let clock = ManualClock::new();
    let (free, paid) = (elsewhere(&clock, 100, 50), elsewhere(&clock, 1000, 50));
    let limit = Limit::new("tokens", free.with_class("paid", &paid))
        .by(KeyBy::header("x-user"))
        .class_by(ClassBy::list(KeyBy::header("x-user"), [("alice", "paid")]))
        .when_no_key(WhenNoKey::Deny)
        .cost(ESTIMATE)
        .settle(ResponseCost::bytes(1));
    let layer = layer([limit]);
    for (user, limiter, other) in [("alice", &paid, &free), ("bob", &free, &paid)] {
        let request = Request::get("/").header("x-user", user).body(()).unwrap();
        let mut answer = call(&layer, request, Ok(json(&[TEN; 3]))).unwrap();
        pull_all(&mut answer);
        limiter.run_tasks();
        let key = Key::new("tokens", [user]);
        assert_eq!((limiter.charged(&key), other.charged(&key)), (30, 0), "{user}");
    }
}

/// The events that the listener received. Each contains the limit's name, the cost (if known), the
/// charged and unpaid tokens, and whether the limit cut the response off.
type Told = Arc<Mutex<Vec<(String, Option<u64>, Settlement, bool)>>>;

fn telling(limit: Limit) -> (RateLimitLayer, Told) {
    let told = Told::default();
    let noted = Arc::clone(&told);
    let builder: RateLimitBuilder = RateLimitLayer::builder().limit(limit).on_settled(move |event| {
        assert_eq!((event.class, event.is_shadow), (None, false));
        let name = event.limit_name.to_owned();
        noted.lock().unwrap().push((name, event.cost, event.settlement, event.is_cut));
    });
    (builder.build().unwrap(), told)
}

#[test]
fn a_listener_is_told_what_was_settled_cut_and_not_paid() {
    let clock = ManualClock::new();
    for is_shared in [false, true] {
        let far = elsewhere(&clock, 100, 10);
        let near = SingleLimiter::builder(Quota::per_hour(100)).clock(&clock).max_debt(10).build().unwrap();
        let near = Arc::new(near);
        let limit = |settle: ResponseCost| {
            let limit = if is_shared {
                Limit::new("tokens", Arc::clone(&far)).by(KeyBy::nothing())
            } else {
                Limit::new("tokens", Arc::clone(&near))
            };
            telling(limit.cost(ESTIMATE).settle(settle))
        };
        let (layer, told) = limit(ResponseCost::header("x-tokens").or(ResponseCost::bytes(1)));
        let mut response = json(&[]);
        response.headers_mut().insert("x-tokens", 5.into());
        drop(send(&layer, response));
        pull_all(&mut send(&layer, json(&[TEN])));
        drop(send(&layer, json(&[TEN])));
        far.run_tasks();
        let event = |cost, charged, unpaid, is_cut| {
            ("tokens".to_owned(), cost, Settlement { charged, unpaid }, is_cut)
        };
        let plain = |cost| event(Some(cost), cost, 0, false);
        // If a response was not read, its cost is not known.
        let unknown = event(None, ESTIMATE, 0, false);
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), [plain(5), plain(10), unknown]);
        // 65 tokens are left, with a debt of 10.
        pull_all(&mut send(&layer, json(&[&"x".repeat(90)])));
        far.run_tasks();
        assert_eq!(*told.lock().unwrap(), [event(Some(90), 75, 15, false)]);
        far.reset(&key());
        near.reset();
        let (layer, told) = limit(ResponseCost::events().cut_off());
        let mut answer = send(&layer, events(&["data: 1\n\n", &"data: 2\n\n".repeat(120)]));
        pull_all(&mut answer);
        drop(answer);
        far.run_tasks();
        assert_eq!(*told.lock().unwrap(), [event(Some(1), 1, 0, true)]);
    }
}

/// Listeners panic during settlements by the head, by the body and by a refund.
#[test]
fn a_listener_that_panics_loses_no_settlement() {
    let clock = ManualClock::new();
    let far = [(); 2].map(|()| elsewhere(&clock, 100, 50));
    let near = [(); 3].map(|()| limiter(&clock, 100, 50));
    let shared = |name, at: usize| Limit::new(name, Arc::clone(&far[at])).by(KeyBy::nothing()).cost(20);
    let local = |name, at: usize| Limit::new(name, Arc::clone(&near[at])).cost(20);
    let by_header = || ResponseCost::header("x-tokens");
    let layer = RateLimitLayer::builder()
        .limit(local("one", 0).settle(ResponseCost::bytes(1)))
        .limit(local("other", 1).settle(ResponseCost::bytes(1)))
        .limit(local("head", 2).settle(by_header()))
        .limit(shared("tokens", 0).settle(by_header()))
        .limit(shared("refunded", 1).charge_if(|_| false))
        .on_settled(|_| panic!("as it was asked to"))
        .build()
        .unwrap();
    let mut response = json(&["abc", "def"]);
    response.headers_mut().insert("x-tokens", 5.into());
    assert_eq!(pull_all(&mut send(&layer, response)), ["abc", "def"]);
    assert_eq!(far[0].run_tasks(), 0);
    assert_eq!(near.map(|limiter| limiter.peek().remaining()), [94, 94, 95]);
    let none: [&str; 0] = [];
    assert_eq!((far[0].charged(&key()), far[1].charged(&Key::new("refunded", none))), (5, 0));
}

#[test]
fn a_listener_that_panics_while_another_panic_drops_the_body_ends_no_process() {
    let near = limiter(&ManualClock::new(), 100, 0);
    let limit = Limit::new("tokens", Arc::clone(&near)).cost(20).settle(ResponseCost::bytes(1));
    let layer = RateLimitLayer::builder().limit(limit).on_settled(|_| panic!("a listener")).build().unwrap();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut answer = send(&layer, json(&["abc", "def"]));
        pull(&mut answer);
        panic!("a body");
    }));
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"a body"));
    assert_eq!(near.peek().remaining(), 97);
}

/// Several threads pull streams that share a budget, while another thread runs the tasks.
#[test]
fn streams_on_several_threads_are_charged_exactly_what_passed() {
    let far = elsewhere(&ManualClock::new(), 5_000, 1_000_000);
    let limit = Limit::new("tokens", Arc::clone(&far)).by(KeyBy::nothing()).cost(30);
    let layer = layer([limit.settle(ResponseCost::bytes(1).cut_off())]);
    let (start, is_over) = (Barrier::new(5), AtomicBool::new(false));
    let passed: u64 = thread::scope(|scope| {
        let run = |seed: usize| {
            let (layer, start) = (&layer, &start);
            move || {
                start.wait();
                let texts = ["x".repeat(7), "x".repeat(11), "x".repeat(seed)];
                let texts: Vec<&str> = texts.iter().cycle().take(3 * seed).map(String::as_str).collect();
                let mut passed = 0;
                for turn in 0..40 {
                    let mut answer = call(layer, Request::new(()), Ok(json(&texts))).unwrap();
                    if answer.status() != 200 {
                        return passed;
                    }
                    // Some clients hang up.
                    let pulls = if turn % 3 == 0 { seed } else { 3 * seed + 1 };
                    let frames: Vec<String> = (0..pulls).map_while(|_| pull(&mut answer)).collect();
                    let bytes = frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
                    passed += if bytes == 0 { 30 } else { bytes };
                }
                passed
            }
        };
        let threads = [17, 23, 29, 31].map(|seed| scope.spawn(run(seed)));
        let tasks = scope.spawn(|| {
            start.wait();
            while !is_over.load(Relaxed) {
                far.run_tasks();
            }
        });
        let passed = threads.map(|thread| thread.join().unwrap()).into_iter().sum();
        is_over.store(true, Relaxed);
        tasks.join().unwrap();
        passed
    });
    assert_eq!(far.run_tasks(), 0);
    assert_eq!(far.charged(&key()), passed);
    // If a stream is refused while other streams own tokens requested in advance, part of the
    // budget remains unused.
    assert!(passed >= 2_000, "{passed}");
}

/// A stream behind several limits, with its response and the number of bytes passed so far.
struct Stream {
    answer: Option<Answer>,
    passed: u64,
    length: u64,
    is_whole: bool,
}

impl Stream {
    fn pull(&mut self) -> bool {
        let Some(answer) = &mut self.answer else { return false };
        match pull(answer) {
            Some(frame) => self.passed += frame.len() as u64,
            None => self.answer = None,
        }
        // The stream is whole if all bytes have passed and the body was polled to its end.
        self.is_whole |= self.answer.is_none() && self.passed == self.length;
        self.answer.is_some()
    }

    /// Returns the cost based on the bytes passed.
    fn bytes(&self, estimate: u64) -> u64 {
        if self.passed == 0 { estimate } else { self.passed }
    }

    /// Returns the cost of a stream with `figure` in its last frame. If that frame has not passed,
    /// the cost is based on bytes. If the frame has passed but the body was not polled to its end,
    /// the cost is at least the number of bytes passed.
    fn figure(&self, estimate: u64, figure: u64) -> u64 {
        match self.passed == self.length {
            true if self.is_whole => figure,
            true => self.passed.max(figure),
            false => self.bytes(estimate),
        }
    }
}

proptest! {
    /// Two of a layer's four limits are shared. One limit cuts streams off, one only counts, and
    /// two are settled by a figure at the end, one of them in shadow mode. Streams are pulled and
    /// dropped in any order, stores open and close, and tasks run at arbitrary times. In the end,
    /// each limit must be charged according to its own rule.
    #[test]
    fn no_token_is_lost_whenever_the_stores_answer(
        sizes in prop::collection::vec(prop::collection::vec(0..60_usize, 0..12), 1..5),
        estimate in 1..40_u64,
        figure in 0..400_u64,
        shared_cuts in any::<bool>(),
        steps in prop::collection::vec((any::<usize>(), 0..8_u8), 0..120),
    ) {
        let clock = ManualClock::new();
        // The first limiter of each pair may run out of tokens; the second never does.
        let far = [300, 5_000].map(|tokens| elsewhere(&clock, tokens, 100_000));
        let near = [300, 5_000].map(|tokens| limiter(&clock, tokens, 100_000));
        let shared = |name, at: usize| Limit::new(name, Arc::clone(&far[at])).by(KeyBy::nothing());
        let local = |name, at: usize| Limit::new(name, Arc::clone(&near[at]));
        let by_figure = || ResponseCost::json("usage.total_tokens").or(ResponseCost::bytes(1)).cut_off();
        let (cuts, counts) = (ResponseCost::bytes(1).cut_off(), ResponseCost::bytes(1));
        let limits = if shared_cuts {
            [(shared("cuts", 0), cuts), (local("counts", 0), counts), (local("figure", 1), by_figure()),
             (shared("shadow", 1).shadow(), by_figure())]
        } else {
            [(local("cuts", 0), cuts), (shared("counts", 0), counts), (shared("figure", 1), by_figure()),
             (local("shadow", 1).shadow(), by_figure())]
        };
        let layer = layer(limits.map(|(limit, settle)| limit.cost(estimate).settle(settle)));
        let stream = |sizes: &Vec<usize>| {
            let end = format!("{{\"usage\":{{\"total_tokens\":{figure}}}}}");
            let texts = sizes.iter().map(|&size| " ".repeat(size)).chain([end]).collect::<Vec<_>>();
            let texts = texts.iter().map(String::as_str).collect::<Vec<_>>();
            let length = texts.iter().map(|text| text.len() as u64).sum();
            Stream { answer: Some(send(&layer, json(&texts))), passed: 0, length, is_whole: false }
        };
        let mut streams: Vec<Stream> = sizes.iter().map(stream).collect();
        for (which, how) in steps {
            let (stream, far) = (which % streams.len(), &far[which % 2]);
            match how {
                0 => far.close(),
                1 => far.open(),
                2 | 3 => _ = far.run_tasks(),
                4 => streams[stream].answer = None,
                _ => _ = streams[stream].pull(),
            }
        }
        streams.iter_mut().for_each(|stream| while stream.pull() {});
        far.iter().for_each(|far| far.open());
        // Tasks that waited for an answer continue with the next call.
        prop_assert_eq!(far.each_ref().map(|far| far.run_tasks()), [0, 0]);
        let bytes: u64 = streams.iter().map(|it| it.bytes(estimate)).sum();
        let figures: u64 = streams.iter().map(|it| it.figure(estimate, figure)).sum();
        let none: [&str; 0] = [];
        let names = if shared_cuts { ["cuts", "shadow"] } else { ["counts", "figure"] };
        let [far_first, far_second] = [0, 1].map(|at| far[at].charged(&Key::new(names[at], none)));
        prop_assert_eq!([far_first, charged(&near[0])], [bytes; 2]);
        prop_assert_eq!([far_second, charged(&near[1])], [figures; 2]);
    }
}
