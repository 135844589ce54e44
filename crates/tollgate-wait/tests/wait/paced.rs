//! Tests callers that obey a server's limits, in virtual time.

use crate::simulation::{Simulation, Sleep, ms};
use futures_util::FutureExt;
use http::response::Parts;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use std::cell::{Cell, RefCell};
use std::future::{Future, ready};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};
use tollgate::{Algorithm, Decision, Limiter, Quota, SingleLimiter, Tick, WindowAlign};
use tollgate_wait::{Answer, NextWaiter, Paced, Turn, WaitError, WaitQueue, Waitable};

fn answer(status: u16, fields: &[(&str, &str)]) -> Answer {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    Answer::read(StatusCode::from_u16(status).unwrap(), &headers, SystemTime::UNIX_EPOCH)
}

type Queue<S> = WaitQueue<Paced<Limiter<u64>>, S>;

fn queue(simulation: &Simulation, own: Quota) -> Rc<Queue<impl Fn(Duration) -> Sleep + use<>>> {
    queue_with(simulation, own, |paced| paced)
}

fn queue_with(
    simulation: &Simulation,
    own: Quota,
    settings: fn(Paced<Limiter<u64>>) -> Paced<Limiter<u64>>,
) -> Rc<Queue<impl Fn(Duration) -> Sleep + use<>>> {
    let limiter = Limiter::builder(own).clock(simulation.clock.clone()).build().unwrap();
    let paced = settings(Paced::new(limiter).clock(&simulation.clock));
    Rc::new(WaitQueue::with_sleep(paced, simulation.sleeper()).patience(ms(3_600_000)))
}

/// Returns the head of a response.
fn head(status: u16, fields: &[(&str, &str)]) -> Parts {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(()).unwrap().into_parts().0
}

/// Sends a request for key 7, and returns how long it must wait, or zero if it is admitted.
fn wait<S>(queue: &Queue<S>) -> Duration
where
    S: tollgate_wait::Sleep,
{
    let asks = queue.until_n_within(&7, 1, Duration::ZERO);
    match pollster::block_on(asks) {
        Ok(_) => Duration::ZERO,
        Err(WaitError::TooLong { wait, .. }) => wait,
        Err(error) => panic!("{error}"),
    }
}

/// A server with a limit, as seen by its clients. Requests and responses take random times, but the
/// requests of one process do not overtake each other.
struct Server {
    limiter: SingleLimiter,
    window: u64,
    served: Cell<u64>,
    refused: Cell<u64>,
}

impl Server {
    fn answer(&self, decision: &Decision) -> Answer {
        let seconds = |time: Duration| time.as_secs() + u64::from(time.subsec_nanos() > 0);
        let tokens = self.limiter.quota().tokens();
        let policy = format!("\"api\";q={tokens};w={}", self.window);
        let more = seconds(decision.refill_after());
        let left = format!("\"api\";r={};t={more}", decision.remaining());
        let fields = [("ratelimit-policy", &*policy), ("ratelimit", &*left)];
        if decision.is_allowed() {
            self.served.set(self.served.get() + 1);
            return answer(200, &fields);
        }
        self.refused.set(self.refused.get() + 1);
        let wait = seconds(decision.retry_after().unwrap()).max(1).to_string();
        answer(429, &[fields[0], fields[1], ("retry-after", &*wait)])
    }
}

/// Lets `processes` processes, each with `callers` callers, call a server for `time`. Returns how
/// many requests were served and how many were refused in the second half of this time.
fn run(
    seed: u64,
    processes: usize,
    callers: usize,
    own: Quota,
    (algorithm, quota, window): (Algorithm, Quota, u64),
    time: Duration,
) -> (u64, u64) {
    let mut simulation = Simulation::new(seed);
    let mut builder = SingleLimiter::builder(quota).algorithm(algorithm).clock(simulation.clock.clone());
    if algorithm == Algorithm::FixedWindow {
        builder = builder.align(WindowAlign::ClockStart);
    }
    let limiter = builder.build().unwrap();
    let (served, refused) = (Cell::new(0), Cell::new(0));
    let server = Rc::new(Server { limiter, window, served, refused });
    for _ in 0..processes {
        let queue = queue(&simulation, own);
        let arrived = Rc::new(Cell::new(ms(0)));
        for caller in 0..callers {
            let (queue, server, sleep) = (Rc::clone(&queue), Rc::clone(&server), simulation.sleeper());
            let (arrived, clock) = (Rc::clone(&arrived), simulation.clock.clone());
            let mut random = fastrand::Rng::with_seed(seed * 1_000 + caller as u64);
            simulation.spawn(async move {
                loop {
                    queue.until_ready(&7).await.unwrap();
                    let number = queue.limiter().number(&7);
                    let now = clock.now().since(Tick::ZERO);
                    let arrives = (now + ms(random.u64(1..20))).max(arrived.get() + Duration::from_nanos(1));
                    arrived.set(arrives);
                    sleep(arrives - now).await;
                    let answer = server.answer(&server.limiter.check());
                    sleep(ms(random.u64(1..20))).await;
                    queue.limiter().learn(&7, &answer, number);
                }
            });
        }
    }
    simulation.run_for(time / 2);
    let before = (server.served.get(), server.refused.get());
    simulation.run_for(time / 2);
    (server.served.get() - before.0, server.refused.get() - before.1)
}

/// A single client is never refused, and uses everything that the server admits. It may have to
/// leave half of a one-second window unused, because responses report the end of the window in
/// whole seconds.
#[test]
fn a_client_alone_keeps_to_any_limit_that_it_is_told() {
    let limits = [
        (Algorithm::TokenBucket, Quota::per_second(200), 1, 95),
        (Algorithm::TokenBucket, Quota::per_second(20), 1, 95),
        (Algorithm::TokenBucket, Quota::per_second(3), 1, 95),
        (Algorithm::TokenBucket, Quota::per_minute(120), 60, 95),
        (Algorithm::FixedWindow, Quota::per_minute(600), 60, 95),
        (Algorithm::FixedWindow, Quota::per_second(100), 1, 50),
        (Algorithm::SlidingWindow, Quota::per_second(100), 1, 70),
    ];
    for (number, (algorithm, quota, window, least)) in limits.into_iter().enumerate() {
        let limit = (algorithm, quota, window);
        let time = Duration::from_secs(window * 20);
        let (served, refused) = run(number as u64, 1, 30, Quota::per_second(1_000), limit, time);
        let allowed = quota.tokens() * 10;
        println!("{limit:?}: {served} of {allowed} served, {refused} refused");
        assert_eq!(refused, 0, "{limit:?}: {served} served");
        assert!(served * 100 >= allowed * least, "{limit:?}: {served} of {allowed} served");
    }
}

/// Four processes share a limit without communicating.
#[test]
fn processes_that_share_a_limit_share_what_remains() {
    let limits = [
        (Algorithm::TokenBucket, Quota::per_second(400), 1),
        (Algorithm::TokenBucket, Quota::per_second(100), 1),
        (Algorithm::TokenBucket, Quota::per_minute(1_200), 60),
    ];
    for (number, limit) in limits.into_iter().enumerate() {
        let (_, quota, window) = limit;
        let time = Duration::from_secs(window * 80);
        let (served, refused) = run(number as u64, 4, 30, Quota::per_second(1_000), limit, time);
        let allowed = quota.tokens() * 40;
        println!("{limit:?}: {served} of {allowed} served, {refused} refused");
        assert!(refused * 1_000 <= served, "{limit:?}: {served} served, {refused} refused");
        assert!(served * 100 >= allowed * 95, "{limit:?}: {served} of {allowed} served");
    }
}

#[test]
fn a_refusal_pauses_its_key_for_the_servers_time_and_no_longer() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(10));
    assert_eq!(wait(&queue), ms(0));
    queue.limiter().learn(&7, &answer(429, &[("retry-after", "20")]), 0);
    assert_eq!((wait(&queue), queue.limiter().paused_for(&7)), (ms(20_000), ms(20_000)));
    assert_eq!(queue.limiter().paused_for(&8), ms(0));
    // A shorter time does not end the pause, and a response to an earlier request does not end it
    // either.
    queue.limiter().learn(&7, &answer(503, &[("retry-after", "5")]), 0);
    queue.limiter().learn(&7, &answer(200, &[]), 0);
    simulation.clock.advance(ms(19_999));
    assert_eq!(wait(&queue), ms(1));
    simulation.clock.advance(ms(1));
    // The quota of the inner limiter applies again, with its burst.
    assert_eq!((0..10).map(|_| wait(&queue)).max(), Some(ms(0)));
    assert_eq!(wait(&queue), ms(100));
    // The pace of the key is removed at the next response.
    queue.limiter().learn(&7, &answer(200, &[("retry-after", "9")]), 0);
    assert_eq!(queue.limiter().known_keys(), 0);
}

/// The head of each response is a success, and its body is a refusal.
#[test]
fn refusals_in_the_bodies_of_successes_double_the_backoff() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1_000));
    let send = |is_refused| {
        assert_eq!(wait(&queue), ms(0));
        let number = queue.limiter().number(&7);
        queue.limiter().learn(&7, &answer(200, &[]), number);
        if is_refused {
            queue.limiter().learn(&7, &answer(503, &[]), number);
        }
        let pause = queue.limiter().paused_for(&7);
        simulation.clock.advance(pause);
        pause
    };
    for _ in 0..2 {
        for longest in [1_000, 2_000, 4_000, 8_000].map(ms) {
            let pause = send(true);
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?} of {longest:?}");
        }
        // A success ends the series.
        assert_eq!(send(false), ms(0));
    }
    // A pace with a series that has ended is forgotten.
    simulation.clock.advance(ms(60_000));
    assert_eq!(send(false), ms(0));
    assert_eq!(queue.limiter().known_keys(), 0);
}

#[test]
fn times_that_are_nonsense_pause_for_the_longest_pause_at_most() {
    let no_time = [("retry-after", "-5"), ("retry-after", "soon"), ("retry-after", "0"), ("date", "0")];
    for field in no_time {
        let simulation = Simulation::new(1);
        let queue = queue(&simulation, Quota::per_second(10));
        queue.limiter().learn(&7, &answer(429, &[field]), 0);
        assert!((ms(500)..=ms(1_000)).contains(&wait(&queue)), "{field:?}: {:?}", wait(&queue));
    }
    let year = ms(31_536_000_000);
    let long = [
        ("retry-after", "31536000"),
        ("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT"),
        ("ratelimit", "\"a\";r=0;t=999999999999999"),
    ];
    let hour: fn(Paced<_>) -> Paced<_> = |paced| paced.max_pause(ms(3_600_000));
    for (longest, settings) in [(24 * 3_600_000, (|paced| paced) as fn(_) -> _), (3_600_000, hour)] {
        for field in long {
            let simulation = Simulation::new(1);
            let queue = queue_with(&simulation, Quota::per_second(10), settings);
            queue.limiter().learn(&7, &answer(429, &[field]), 0);
            // The error contains the server's time, and not the longest pause.
            assert!(wait(&queue) >= year, "{field:?}: {:?}", wait(&queue));
            simulation.clock.advance(ms(longest - 1));
            assert!(wait(&queue) > year - ms(longest), "{field:?}: {:?}", wait(&queue));
            simulation.clock.advance(ms(1));
            assert_eq!(wait(&queue), ms(0), "{field:?}");
        }
    }
}

/// A window of five hours. A caller that does not accept the wait learns how long it is, and a
/// caller that accepts it makes one call when it is over.
#[test]
fn a_wait_of_hours_is_told_in_full_and_ends_with_one_call() {
    let hours = Duration::from_secs(13_262);
    for fields in [
        &[("retry-after", "13262")][..],
        &[("x-ratelimit-limit", "50"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "13262")],
    ] {
        let mut simulation = Simulation::new(1);
        let queue = queue(&simulation, Quota::per_second(10));
        queue.limiter().learn(&7, &answer(429, fields), 0);
        let max_wait = ms(30_000);
        let refused = queue.until_n_within(&7, 1, max_wait).now_or_never();
        assert_eq!(
            refused.map(|turn| turn.map(drop)),
            Some(Err(WaitError::TooLong { wait: hours, max_wait }))
        );
        let calls: Rc<RefCell<Vec<Duration>>> = Rc::default();
        for max_wait in [None, Some(2 * hours)] {
            let (queue, calls, clock) = (Rc::clone(&queue), Rc::clone(&calls), simulation.clock.clone());
            simulation.spawn(async move {
                let turn = match max_wait {
                    None => queue.until_ready(&7).await,
                    Some(max_wait) => queue.until_ready_within(&7, max_wait).await,
                };
                assert!(turn.is_ok(), "{turn:?}");
                calls.borrow_mut().push(clock.now().since(Tick::ZERO));
                queue.limiter().learn(&7, &answer(429, &[("retry-after", "60")]), 1);
            });
        }
        simulation.run_for(2 * hours);
        let calls = calls.borrow();
        assert!(calls[0] == hours && calls[1] >= hours + ms(60_000), "{fields:?}: {calls:?}");
    }
}

/// With much left of a long window, requests follow each other within a second, even if another
/// process uses the same limit. When half of the quota is left, the pace is the average rate.
#[test]
fn what_is_left_of_a_long_window_is_not_spent_at_a_crawl() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1_000));
    let window = ("ratelimit-limit", "100;w=21600");
    let learn = |left: u64| {
        let left = format!("{left};w=21600");
        let fields = [window, ("ratelimit-remaining", &*left)];
        queue.limiter().learn(&7, &answer(200, &fields), queue.limiter().number(&7));
    };
    learn(76);
    for left in (66..76).rev() {
        let wait = wait_and_go(&simulation, &queue);
        assert!(wait <= ms(1_000), "{left} left: {wait:?}");
        learn(left);
    }
    assert!(simulation.now() <= ms(10_000), "{:?}", simulation.now());
    learn(51);
    assert!(wait_and_go(&simulation, &queue) <= ms(1_000));
    learn(49);
    let average = wait(&queue);
    assert!((ms(215_000)..=ms(217_000)).contains(&average), "{average:?}");
    // A window alone is no limit.
    let empty = answer(200, &[("ratelimit-limit", ";w=21600"), ("ratelimit-remaining", ";w=21600")]);
    queue.limiter().learn(&8, &empty, 0);
    assert_eq!(queue.limiter().known_keys(), 1);
    // The callers that cannot start in time are refused at once: 25 tokens can be spent quickly.
    let learnt = answer(200, &[window, ("ratelimit-remaining", "76;w=21600")]);
    let (turns, refused, expired) = crowd(&learnt, 60, ms(60_000));
    assert!((26..=28).contains(&turns) && turns + refused == 60, "{turns}, {refused}, {expired}");
}

/// Waits for a turn of key 7, and returns how long this took.
fn wait_and_go<S>(simulation: &Simulation, queue: &Queue<S>) -> Duration
where
    S: tollgate_wait::Sleep,
{
    let mut waited = ms(0);
    loop {
        match wait(queue) {
            Duration::ZERO => return waited,
            time => {
                simulation.clock.advance(time);
                waited += time;
            }
        }
    }
}

/// Refusals with other statuses, as the function of the limiter recognizes them.
#[test]
fn a_function_tells_refusals_that_are_no_429_and_their_times() {
    /// The error in the body of a response.
    #[derive(Clone)]
    struct Told(&'static str);

    let simulation = Simulation::new(1);
    let queue = queue_with(&simulation, Quota::per_second(1_000), |paced| {
        paced.read_with(|head, answer| {
            let Some(Told(error)) = head.extensions.get() else { return };
            match (head.status.as_u16(), *error) {
                (403, error) if error.contains("secondary rate limit") => {
                    answer.is_refusal = true;
                    answer.retry_after.get_or_insert(Duration::from_secs(60));
                }
                (400, "ThrottlingException") | (418, _) => answer.is_refusal = true,
                (429, error) => {
                    let seconds = error.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
                    answer.retry_after = seconds.map(Duration::from_secs_f64);
                }
                (503, "maintenance of one page") => answer.is_refusal = false,
                _ => {}
            }
        })
    });
    let paced = queue.limiter();
    let budget = [("x-ratelimit-limit", "30"), ("x-ratelimit-remaining", "28"), ("x-ratelimit-reset", "47")];
    let short = [("retry-after", "120")];
    for (key, (status, fields, error, refuses, least, most)) in (0_u64..).zip([
        (403, &budget[..], "You have exceeded a secondary rate limit.", true, 60_000, 60_000),
        (403, &[("retry-after", "7")], "You have exceeded a secondary rate limit.", true, 7_000, 7_000),
        (403, &[], "Resource not accessible by integration", false, 0, 0),
        (400, &[], "ThrottlingException", true, 500, 1_000),
        (400, &[], "ValidationException", false, 0, 0),
        (418, &short, "banned", true, 120_000, 120_000),
        (429, &[], "45.837906927s", true, 45_837, 45_838),
        (429, &[], "0.1s", true, 100, 100),
        (429, &[], "a quota", true, 500, 1_000),
        (529, &[], "overloaded_error", true, 500, 1_000),
        (503, &[], "maintenance of one page", false, 0, 0),
    ]) {
        let mut head = head(status, fields);
        head.extensions.insert(Told(error));
        let answer = paced.read(&head);
        assert_eq!(answer.is_refusal, refuses, "{status} {error}");
        paced.learn(&key, &answer, paced.number(&key));
        let pause = paced.paused_for(&key);
        assert!((ms(least)..=ms(most)).contains(&pause), "{status} {error}: {pause:?}");
    }
    // Without an error in the extensions, only the known fields count.
    assert!(!paced.read(&head(403, &budget)).is_refusal);
}

/// Two requests of a key are refused at the same time, without a time. The second refusal belongs to
/// the same backoff as the first one, but only the second one is global.
#[test]
fn a_global_refusal_pauses_every_key_although_its_own_key_has_backed_off() {
    let simulation = Simulation::new(1);
    let queue = queue_with(&simulation, Quota::per_second(1_000), |paced| {
        paced.read_with(|head, answer| answer.is_global = head.headers.contains_key("x-ratelimit-global"))
    });
    let numbers = [(); 2].map(|()| {
        assert_eq!(wait(&queue), ms(0));
        queue.limiter().number(&7)
    });
    let paused = |key: u64| queue.limiter().paused_for(&key);
    queue.limiter().learn(&7, &queue.limiter().read(&head(429, &[])), numbers[0]);
    let backoff = paused(7);
    assert!((ms(500)..=ms(1_000)).contains(&backoff), "{backoff:?}");
    assert_eq!(paused(8), ms(0));
    let global = queue.limiter().read(&head(429, &[("x-ratelimit-global", "true")]));
    queue.limiter().learn(&7, &global, numbers[1]);
    assert_eq!((paused(7), paused(8)), (backoff, backoff));
}

/// Five refusals with the status 529 and without a time, and then one with a time.
#[test]
fn an_overloaded_server_is_left_alone_for_longer_each_time() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1_000));
    for longest in [1_000, 2_000, 4_000, 8_000, 16_000].map(ms) {
        assert_eq!(wait(&queue), ms(0));
        queue.limiter().learn(&7, &answer(529, &[]), queue.limiter().number(&7));
        let pause = queue.limiter().paused_for(&7);
        assert!(pause >= longest / 2 && pause <= longest, "{pause:?} of {longest:?}");
        simulation.clock.advance(pause);
    }
    queue.limiter().learn(&7, &answer(529, &[("retry-after", "7")]), queue.limiter().number(&7));
    assert_eq!(queue.limiter().paused_for(&7), ms(7_000));
}

/// The keys are routes of a server. A refusal that is global pauses all of them, and the others
/// keep to their own paces otherwise.
#[test]
fn a_global_refusal_pauses_every_key() {
    let mut simulation = Simulation::new(1);
    let queue = queue_with(&simulation, Quota::per_second(1_000), |paced| {
        paced.read_with(|head, answer| answer.is_global = head.headers.contains_key("x-ratelimit-global"))
    });
    let learn = |key: u64, fields: &[(&str, &str)]| {
        let answer = queue.limiter().read(&head(429, fields));
        queue.limiter().learn(&key, &answer, 0);
    };
    let paused = |key: u64| queue.limiter().paused_for(&key);
    // Key 6 has a longer pause of its own, which concerns no other key.
    learn(6, &[("retry-after", "600")]);
    assert_eq!((paused(6), paused(7), paused(8)), (ms(600_000), ms(0), ms(0)));
    let turn = Rc::new(Cell::new(None));
    let (waits, ends, clock) = (Rc::clone(&queue), Rc::clone(&turn), simulation.clock.clone());
    learn(8, &[("retry-after", "20")]);
    simulation.spawn(async move {
        waits.until_ready(&8).await.unwrap();
        ends.set(Some(clock.now().since(Tick::ZERO)));
    });
    simulation.run_for(ms(10_000));
    learn(6, &[("x-ratelimit-global", "true"), ("retry-after", "64")]);
    assert_eq!((paused(6), paused(7), paused(8)), (ms(590_000), ms(64_000), ms(64_000)));
    assert_eq!(wait(&queue), ms(64_000));
    // The pause of a key that nobody uses takes no memory.
    (0..1_000).for_each(|key| assert!(paused(key) >= ms(64_000)));
    assert_eq!(queue.limiter().known_keys(), 2);
    // The one that already waited waits for the end of the new pause.
    simulation.run_for(ms(63_999));
    assert_eq!((turn.get(), wait(&queue)), (None, ms(1)));
    simulation.run_for(ms(1));
    assert_eq!((turn.get(), wait(&queue)), (Some(ms(74_000)), ms(0)));
    // A backoff is global, too. A success is not a refusal, whatever it says.
    learn(6, &[("x-ratelimit-global", "true")]);
    assert!((ms(500)..=ms(1_000)).contains(&paused(9)), "{:?}", paused(9));
    simulation.run_for(ms(1_000));
    let answer = queue.limiter().read(&head(200, &[("x-ratelimit-global", "true")]));
    queue.limiter().learn(&7, &answer, 0);
    assert_eq!(paused(9), ms(0));
}

/// Another key is refused for all keys. A limit that this key has learned lasts for one window
/// after the pause, so no burst of the inner limiter's quota follows.
#[test]
fn a_limit_outlasts_a_global_pause_by_its_window() {
    for pause in [20_000, 120_000] {
        let simulation = Simulation::new(1);
        let queue = queue(&simulation, Quota::per_second(1_000));
        queue.limiter().learn(&7, &answer(200, &[("ratelimit-policy", "\"a\";q=100;w=60")]), 0);
        simulation.clock.advance(ms(10_000));
        let mut global = answer(429, &[("retry-after", &(pause / 1_000).to_string())]);
        global.is_global = true;
        queue.limiter().learn(&8, &global, 0);
        // No call uses this key in the first half of the pause. In the longer pause, the limit
        // would have ended in this time.
        simulation.clock.advance(ms(pause / 2));
        assert_eq!(wait(&queue), ms(pause / 2));
        simulation.clock.advance(ms(pause / 2));
        for sent in 0..100 {
            assert_eq!(wait(&queue), ms(0), "{sent}");
            let next = wait(&queue);
            assert!((ms(550)..=ms(650)).contains(&next), "{sent}: {next:?}");
            simulation.clock.advance(next);
        }
        simulation.clock.advance(ms(60_000));
        assert_eq!((0..100).map(|_| wait(&queue)).max(), Some(ms(0)));
    }
}

/// No call has used the key since its limit ended, so its pace still contains the limit.
#[test]
fn a_limit_that_has_ended_does_not_return_with_a_global_pause() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1_000));
    queue.limiter().learn(&7, &answer(200, &[("ratelimit-policy", "\"a\";q=1;w=60")]), 0);
    simulation.clock.advance(ms(60_000));
    let mut global = answer(429, &[("retry-after", "20")]);
    global.is_global = true;
    queue.limiter().learn(&8, &global, 0);
    assert_eq!(wait(&queue), ms(20_000));
    simulation.clock.advance(ms(20_000));
    assert_eq!((0..100).map(|_| wait(&queue)).max(), Some(ms(0)));
}

/// The first of the policies is the one that is used up, and the second has no remaining amount.
#[test]
fn policies_of_one_name_all_count() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1_000));
    let policies = ("ratelimit-policy", "\"a\";q=10;w=1, \"a\";q=100;w=60");
    queue.limiter().learn(&7, &answer(200, &[policies, ("ratelimit", "\"a\";r=0;t=30")]), 0);
    assert_eq!(wait(&queue), ms(30_000));
    simulation.clock.advance(ms(30_000));
    assert_eq!(wait(&queue), ms(0));
    let slow = wait(&queue);
    assert!((ms(550)..=ms(650)).contains(&slow), "{slow:?}");
}

/// The remaining amount counts tokens of a language model, and is stated in a success.
#[test]
fn a_total_of_tokens_that_is_used_up_pauses_until_its_reset() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(10));
    let left = |total, input| {
        let kinds = ["anthropic-ratelimit-tokens", "anthropic-ratelimit-input-tokens"];
        let names = kinds.map(|kind| ["limit", "remaining", "reset"].map(|name| format!("{kind}-{name}")));
        let values = [["96000", total, "1970-01-01T00:00:21Z"], ["80000", input, "1970-01-01T00:00:10Z"]];
        let fields = names.iter().flatten().map(String::as_str).zip(values.into_iter().flatten());
        answer(200, &fields.collect::<Vec<_>>())
    };
    queue.limiter().learn(&7, &left("1", "16000"), 0);
    assert_eq!(queue.limiter().paused_for(&7), ms(0));
    queue.limiter().learn(&7, &left("0", "16000"), 0);
    assert_eq!((queue.limiter().paused_for(&7), wait(&queue)), (ms(21_000), ms(21_000)));
    // The field states the used and the total number of calls, but not when more are possible.
    queue.limiter().learn(&8, &answer(200, &[("x-shopify-shop-api-call-limit", "40/40")]), 0);
    assert_eq!(queue.limiter().paused_for(&8), ms(0));
}

/// A limit without effect on the pace does not replace the backoff.
#[test]
fn a_refusal_backs_off_if_the_time_of_its_limit_has_no_effect() {
    let eight = (0..8).map(|name| format!("\"{name}\";r=1;t=100")).collect::<Vec<_>>().join(",");
    let policy = ("ratelimit-policy", "\"f\";q=8;qu=\"concurrent-requests\"");
    for (name, known, policies) in [("f", "", &[policy][..]), ("ninth", &*eight, &[])] {
        let simulation = Simulation::new(1);
        let queue = queue(&simulation, Quota::per_second(10));
        queue.limiter().learn(&7, &answer(200, &[("ratelimit", known)]), 0);
        let used_up = format!("\"{name}\";r=0;t=5");
        let fields = [policies, &[("ratelimit", &*used_up)]].concat();
        queue.limiter().learn(&7, &answer(429, &fields), 0);
        let pause = queue.limiter().paused_for(&7);
        assert!((ms(500)..=ms(1_000)).contains(&pause), "{fields:?}: {pause:?}");
    }
}

/// Consecutive refusals without a time cause increasingly long pauses of random length. A hundred
/// refusals at the same moment count as one.
#[test]
fn refusals_without_a_time_back_off_with_jitter() {
    let (mut shortest, mut longest) = ([ms(u64::MAX); 8], [ms(0); 8]);
    for _ in 0..200 {
        let simulation = Simulation::new(1);
        let queue = queue(&simulation, Quota::per_second(10_000));
        for round in 0..8 {
            for _ in 0..100 {
                assert_eq!(wait(&queue), ms(0));
            }
            let number = queue.limiter().number(&7);
            for _ in 0..100 {
                queue.limiter().learn(&7, &answer(503, &[]), number);
            }
            let pause = queue.limiter().paused_for(&7);
            shortest[round] = shortest[round].min(pause);
            longest[round] = longest[round].max(pause);
            simulation.clock.advance(pause);
        }
        // A success ends the series of refusals.
        assert_eq!(wait(&queue), ms(0));
        let number = queue.limiter().number(&7);
        queue.limiter().learn(&7, &answer(200, &[]), number);
        assert_eq!(wait(&queue), ms(0));
        queue.limiter().learn(&7, &answer(503, &[]), queue.limiter().number(&7));
        assert!(queue.limiter().paused_for(&7) <= ms(1_000));
    }
    for (round, seconds) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
        let (least, most) = (ms(seconds * 500), ms(seconds * 1_000));
        assert!(shortest[round] >= least && longest[round] <= most, "{round}: {:?}", longest[round]);
        assert!(longest[round] - shortest[round] > ms(seconds * 300), "{round}: no jitter");
    }
}

/// The slowest of several policies counts, and each policy ends at its own time.
#[test]
fn a_policy_holds_for_its_window_and_then_the_own_quota_counts() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1_000));
    let policies = [("ratelimit-policy", "\"fast\";q=10;w=1, \"slow\";q=6;w=60")];
    queue.limiter().learn(&7, &answer(200, &policies), 0);
    assert_eq!(wait(&queue), ms(0));
    let slow = wait(&queue);
    assert!((ms(9_900)..ms(10_100)).contains(&slow), "{slow:?}");
    simulation.clock.advance(ms(60_000));
    assert_eq!((0..1_000).map(|_| wait(&queue)).max(), Some(ms(0)));
}

/// Lets `callers` callers wait for at most `max_wait`. Returns how many had their turns, how many
/// were refused at once, and how many waited in vain.
fn crowd(learnt: &Answer, callers: usize, max_wait: Duration) -> (usize, usize, usize) {
    let mut simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(50));
    queue.limiter().learn(&7, learnt, 0);
    let ends = Rc::new(Cell::new((0, 0, 0)));
    for _ in 0..callers {
        let (queue, ends) = (Rc::clone(&queue), Rc::clone(&ends));
        simulation.spawn(async move {
            let end = queue.until_n_within(&7, 1, max_wait).await;
            let (turns, refused, expired) = ends.get();
            ends.set(match end {
                Ok(_) => (turns + 1, refused, expired),
                Err(WaitError::TooLong { .. }) => (turns, refused + 1, expired),
                Err(_) => (turns, refused, expired + 1),
            });
        });
    }
    simulation.settle();
    let refused_at_once = ends.get().1;
    simulation.run_for(max_wait);
    assert_eq!(ends.get().1, refused_at_once);
    ends.get()
}

#[test]
fn a_caller_whose_turn_comes_too_late_at_the_servers_pace_fails_at_once() {
    let policy = ("ratelimit-policy", "\"a\";q=60;w=60");
    let paced = answer(200, &[policy]);
    assert_eq!(crowd(&paced, 40, ms(5_000)), (5, 35, 0));
    // After a pause, or as soon as more remains, the callers proceed at this pace.
    let paused = answer(429, &[policy, ("retry-after", "30")]);
    let used_up = answer(200, &[policy, ("ratelimit", "\"a\";r=0;t=30")]);
    for learnt in [paused, used_up] {
        assert_eq!(crowd(&learnt, 40, ms(34_500)), (5, 35, 0), "{learnt:?}");
    }
}

/// A client that has used up a window goes on when the window ends, at the pace of the amount that
/// remains then, and not one window after its last request.
#[test]
fn a_used_up_window_delays_a_request_until_the_window_ends() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1_000));
    let left = |left: &str| {
        answer(200, &[("ratelimit-policy", "\"a\";q=100;w=60"), ("ratelimit", &format!("\"a\";{left}"))])
    };
    queue.limiter().learn(&7, &left("r=50;t=30"), 0);
    assert_eq!(wait(&queue), ms(0));
    queue.limiter().learn(&7, &left("r=0;t=10"), queue.limiter().number(&7));
    assert_eq!(wait(&queue), ms(10_000));
    simulation.clock.advance(ms(10_000));
    let waits = (0..3).map(|_| {
        let wait = wait(&queue);
        simulation.clock.advance(wait);
        wait
    });
    assert!(waits.sum::<Duration>() <= ms(2_000));
}

/// The remaining amount in a response also limits the requests that are sent after the answered
/// request.
#[test]
fn what_remains_is_not_exceeded_until_more_is_there() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1_000));
    let left = |left: &str| answer(200, &[("x-ratelimit-remaining", left), ("x-ratelimit-reset", "3000")]);
    queue.limiter().learn(&7, &left("3"), 0);
    let mut sent = 0;
    for _ in 0..3_000 {
        sent += u64::from(wait(&queue).is_zero());
        simulation.clock.advance(ms(1_000));
    }
    assert_eq!(sent, 3);
    assert_eq!(wait(&queue), ms(0));
}

#[test]
fn the_memory_of_servers_is_bounded_and_the_one_that_ends_first_is_forgotten() {
    let simulation = Simulation::new(1);
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_second(10)).clock(simulation.clock.clone()).build().unwrap();
    let paced = Paced::new(limiter).clock(&simulation.clock).max_keys(160);
    paced.learn(&7, &answer(429, &[("retry-after", "3000")]), 0);
    for key in 1_000..100_000_u64 {
        paced.learn(&key, &answer(429, &[("retry-after", "20")]), 0);
    }
    assert_eq!((paced.known_keys(), paced.paused_for(&7)), (160, ms(3_000_000)));
    // Ended paces make room for new ones, and no active pace is removed.
    simulation.clock.advance(ms(20_000));
    for key in 0..1_000_u64 {
        paced.learn(&key, &answer(200, &[("ratelimit-policy", "10;w=1")]), 0);
    }
    assert!(paced.paused_for(&7) > ms(0));
}

/// If the inner limiter denies a request, or the request is dropped during the check, the remaining
/// amount does not shrink.
#[test]
fn a_request_that_is_not_admitted_takes_nothing_of_what_remains() {
    let simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1).burst(1));
    let left =
        answer(200, &[("ratelimit-policy", "1000;w=1"), ("ratelimit", "limit=1000, remaining=2, reset=100")]);
    queue.limiter().learn(&7, &left, 0);
    assert_eq!(wait(&queue), ms(0));
    simulation.clock.advance(ms(400));
    for _ in 0..100 {
        assert_eq!(wait(&queue), ms(600));
    }
    simulation.clock.advance(ms(600));
    assert_eq!(wait(&queue), ms(0));
}

#[test]
fn a_cost_of_zero_waits_for_the_end_of_a_pause_only() {
    let mut simulation = Simulation::new(1);
    let queue = queue(&simulation, Quota::per_second(1_000));
    let fields = [("ratelimit-policy", "6;w=60"), ("retry-after", "20")];
    queue.limiter().learn(&7, &answer(429, &fields), 0);
    let free = || pollster::block_on(queue.until_n_within(&7, 0, Duration::ZERO));
    assert!(matches!(free(), Err(WaitError::TooLong { wait, .. }) if wait == ms(20_000)), "{:?}", free());
    let end = Rc::new(Cell::new(None));
    let (waits, ended) = (Rc::clone(&queue), Rc::clone(&end));
    simulation.spawn(async move { ended.set(Some(waits.until_n(&7, 0).await)) });
    simulation.run_for(ms(19_999));
    assert!(end.take().is_none());
    simulation.run_for(ms(1));
    assert!(matches!(end.take(), Some(Ok(_))));
    // The server's limit delays the next request, and a cost of zero neither waits nor delays it.
    assert_eq!(wait(&queue), ms(0));
    let next = wait(&queue);
    assert!(next > ms(9_000) && free().is_ok() && wait(&queue) == next, "{next:?}, {:?}", free());
}

#[test]
fn a_cost_above_the_capacity_fails_at_once_while_the_server_delays_its_key() {
    for fields in [&[("retry-after", "20")][..], &[("ratelimit", "\"a\";r=0;t=30")]] {
        let simulation = Simulation::new(1);
        let queue = queue(&simulation, Quota::per_second(5));
        queue.limiter().learn(&7, &answer(429, fields), 0);
        let never = Some(Err(WaitError::Never { cost: 6, capacity: 5 }));
        let in_time = pollster::block_on(queue.until_n_within(&7, 6, ms(5_000)));
        assert_eq!(Some(in_time.map(drop)), never, "{fields:?}");
        let answer = queue.until_n(&7, 6).now_or_never();
        assert_eq!(answer.map(|answer| answer.map(drop)), never, "{fields:?}");
    }
}

/// A limiter that takes time to answer, like a shared limiter.
struct Slow(SingleLimiter);

impl Waitable<()> for Slow {
    type Turn = Turn;

    async fn take(&self, _: &(), cost: u64, _: NextWaiter<'_>) -> Result<Turn, Decision> {
        tokio::task::yield_now().await;
        self.0.check_n(cost).try_into()
    }

    fn peek_n(&self, _: &(), cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.0.peek_n(cost))
    }

    fn quota(&self, _: &()) -> Quota {
        self.0.quota()
    }
}

/// A server may admit a request long before its whole quota is back.
#[test]
fn a_refusal_with_a_time_to_retry_pauses_for_this_time_alone() {
    let paced = Paced::new(SingleLimiter::builder(Quota::per_second(10)).build().unwrap());
    let fields = [("retry-after", "1"), ("ratelimit", "\"a\";r=0;t=60")];
    paced.learn(&(), &answer(429, &fields), 0);
    assert!(paced.paused_for(&()) <= ms(1_000), "{:?}", paced.paused_for(&()));
    // Without the time to retry, the last of all resets counts.
    let fields = [("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "2s")];
    let requests = ("ratelimit", "\"a\";r=0;t=60");
    paced.learn(&(), &answer(429, &[fields[0], fields[1], requests]), 0);
    assert!(paced.paused_for(&()) > ms(59_000), "{:?}", paced.paused_for(&()));
}

/// A waiter would lose its place if it proceeded first and found the pause afterwards.
#[test]
fn a_refusal_is_learnt_while_a_shared_limiter_is_asked() {
    for field in [("retry-after", "20"), ("ratelimit", "\"a\";r=0;t=20")] {
        let paced = Paced::new(Slow(SingleLimiter::builder(Quota::per_second(10)).build().unwrap()));
        let queue = WaitQueue::with_sleep(paced, |_| ready(()));
        let mut context = Context::from_waker(Waker::noop());
        let mut turn = pin!(queue.until_n_within(&(), 1, ms(1_000)));
        assert!(turn.as_mut().poll(&mut context).is_pending());
        queue.limiter().learn(&(), &answer(429, &[field]), 0);
        let answer = (0..10).find_map(|_| match turn.as_mut().poll(&mut context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        });
        let Some(Err(WaitError::TooLong { wait, .. })) = answer else { panic!("{answer:?}") };
        assert!(wait > ms(19_000), "{wait:?}");
    }
}
