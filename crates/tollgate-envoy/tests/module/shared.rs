//! Tests limits that several Envoys share through a store. Filters with different names in one
//! process share nothing but the store, as two Envoys do.

use std::fs;
use std::net::TcpListener;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_envoy::hooks::read_figures_now;
use tollgate_testing::store::cluster::Cluster;
use tollgate_testing::store::program::Program;
use tollgate_testing::store::sentinel::{NAME, Watched};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::setup::Setup;
use tollgate_testing::store::wait::until;

use crate::host::{Module, Stream, get, logged, schedulers, with_slow_events};

/// Tests that count the threads or the schedulers of the process run one after the other, and so do
/// all others in this file.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a configuration with this store. Even on a busy machine, the store answers within the
/// deadline.
fn config(store: &Server, text: &str) -> String {
    format!("{text}\nredis = \"{}\"\nredis-deadline = \"10s\"", store.url())
}

/// Returns a configuration whose requests are decided without the store after 50 ms.
fn impatient(store: &Server, text: &str) -> String {
    format!("{text}\nredis = \"{}\"", store.url())
}

/// Creates a configuration, and waits until it has reached the store.
fn load(filter: &str, config: &str) -> Module {
    let module = Module::load(filter, config).unwrap();
    let reached = || {
        module.serve(&get("/reached").from("203.0.113.250:1"));
        read_figures_now(filter);
        module.serve(&get("/reached").from("203.0.113.250:1"));
        module.counter(&format!("tollgate.{filter}.a.store-up")) == 1
            && module.counter(&format!("tollgate.{filter}.a.shared-by-store")) > 0
    };
    until("the store is reached", reached);
    module
}

fn status(module: &Module) -> u16 {
    module.serve(&get("/")).status
}

/// Begins streams until one of them waits. The store may answer within the first hook.
fn waiting(module: &Module) -> Stream<'_> {
    loop {
        let stream = module.begin(&get("/"));
        if stream.is_suspended() {
            return stream;
        }
    }
}

/// Returns the number of the module's threads for stores.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "tollgate-store").count()
}

#[test]
fn two_envoys_admit_one_quota_together() {
    let _alone = alone();
    let store = Server::start();
    let text = config(&store, "limit = [\"a=10/1000d by ip\"]\nalgorithm = \"fixed-window\"");
    let [one, two] = ["one", "two"].map(|filter| load(filter, &text));
    let statuses: Vec<u16> = (0..14).map(|at| status([&one, &two][at % 2])).collect();
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 4]].concat());
    let refused = two.serve(&get("/"));
    assert_eq!(refused.header("ratelimit-policy"), Some("\"a\";q=10;w=86400000"));
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(one.counter("tollgate.one.a.denied") + two.counter("tollgate.two.a.denied"), 5);
}

#[test]
fn a_request_that_asks_the_store_is_suspended_and_resumed() {
    let _alone = alone();
    let store = Server::start();
    let module = load("resumed", &config(&store, "limit = [\"a=2/1000d by ip\"]"));
    store.stop();
    let mut stream = module.begin(&get("/"));
    assert!(stream.is_suspended());
    // While the store is silent, other streams of the worker go on.
    let mut other = module.begin(&get("/").from("192.0.2.9:1"));
    assert!(other.is_suspended());
    store.resume();
    stream.wait();
    other.wait();
    assert_eq!(stream.refusal(), None);
    assert_eq!(stream.respond(200, &[]).header("ratelimit"), Some("\"a\";r=1;t=43200000"));
    stream.complete();
    drop((stream, other));
    assert_eq!(schedulers(), 0);
}

/// A limit in shadow mode is used up on one Envoy, and another Envoy tells its upstream.
#[test]
fn the_decisions_of_the_store_are_metadata() {
    let _alone = alone();
    let store = Server::start();
    let text = "limit = [\"a=2/1000d by ip\", \"b=9/1000d by ip\"]\nshadow = [\"a\"]";
    let text = config(&store, &format!("{text}\ndynamic-metadata = \"tollgate.test\""));
    let modules = ["degrades", "degrades-too"].map(|filter| load(filter, &text));
    for (number, decision) in ["allowed/1", "allowed/0", "shadow/0", "shadow/0"].into_iter().enumerate() {
        let answer = modules[number % 2].serve(&get("/"));
        assert_eq!((answer.status, answer.header("x-limit-a")), (200, Some(decision)), "request {number}");
    }
}

#[test]
fn leased_tokens_are_spent_without_a_wait_and_across_a_reload() {
    let _alone = alone();
    let store = Server::start();
    let text = config(&store, "limit = [\"a=10000/1000d by ip\"]\nredis-lease = 20");
    let before = load("leased", &text);
    until("tokens are leased", || {
        assert_eq!(status(&before), 200);
        read_figures_now("leased");
        status(&before) == 200 && before.counter("tollgate.leased.a.shared-leased") > 4
    });
    let after = Module::load("leased", &text).unwrap();
    store.stop();
    let mut stream = after.begin(&get("/"));
    assert!(!stream.is_suspended(), "the new configuration spends the lease");
    assert_eq!(stream.respond(200, &[]).status, 200);
    // The old configuration drains, and spends it as well.
    assert!(!before.begin(&get("/")).is_suspended());
    store.resume();
    drop(before);
    assert_eq!(status(&after), 200);
    assert_eq!(logged("filter leased"), "");
}

#[test]
fn a_silent_store_is_answered_for_after_the_deadline() {
    let _alone = alone();
    let store = Server::start();
    let limit = "limit = [\"a=2/1000d by ip\"]\nredis-when-unavailable";
    let [allow, deny, local] = ["allow", "deny", "local"].map(|policy| {
        let filter = format!("silent-{policy}");
        let text = format!("{limit} = \"{policy}\"\ndynamic-metadata = \"tollgate.test\"");
        load(&filter, &impatient(&store, &text))
    });
    store.stop();
    let begun = Instant::now();
    assert_eq!([status(&allow), status(&allow), status(&allow)], [200; 3]);
    // Nothing counted these requests, so nothing is known of what is left.
    let uncounted = allow.serve(&get("/"));
    assert_eq!((uncounted.header("x-limit-a"), uncounted.header("ratelimit")), (Some("allowed/"), None));
    assert!(uncounted.header("ratelimit-policy").is_some());
    assert!(begun.elapsed() >= Duration::from_millis(50), "{:?}", begun.elapsed());
    assert_eq!([status(&local), status(&local), status(&local)], [200, 200, 429]);
    let refused = deny.serve(&get("/"));
    assert_eq!((refused.status, refused.header("retry-after")), (503, None));
    assert_eq!(deny.counter("tollgate.silent-deny.a.unavailable"), 1);
    store.resume();
    until("the store is found", || status(&deny) != 503);
}

#[test]
fn a_store_that_is_killed_and_returns_is_told() {
    let _alone = alone();
    let store = Server::start();
    let module = load("killed", &impatient(&store, "limit = [\"a=9/1000d by ip\"]\nredis-share = 0.5"));
    assert_eq!(status(&module), 200);
    let said = |what: &str| logged(what).matches(&store.address().to_string()).count();
    let (lost, found) = (said("the store is lost"), logged("the store is found").lines().count());
    store.kill();
    assert_eq!(status(&module), 200, "the local limiter decides");
    until("its loss is told", || said("the store is lost") > lost);
    store.restart();
    until("its return is told", || logged("the store is found").lines().count() > found);
    // The local limiter never has more than four tokens left.
    until("the store decides", || left(&module).is_some_and(|left| left > 4));
    read_figures_now("killed");
    status(&module);
    let figure = |name: &str| module.counter(&format!("tollgate.killed.a.{name}"));
    assert!(figure("shared-by-fallback") > 0 && figure("store-breaker-trips") > 0);
    assert_eq!(figure("store-up"), 1);
}

#[test]
fn a_stream_that_is_reset_while_it_waits_keeps_its_charge_and_no_event_comes() {
    let _alone = alone();
    let store = Server::start();
    let module = load("gone", &config(&store, "limit = [\"a=1/1000d by ip\"]"));
    let answered = || {
        let stream = waiting(&module);
        // The store has answered.
        stream.next_event();
        stream
    };
    drop(answered());
    // Envoy completes a stream before it destroys its filter, and may destroy it later.
    let mut stream = answered();
    stream.complete();
    assert_eq!(schedulers(), 0);
    stream.deliver();
    assert_eq!((stream.refusal(), stream.events()), (None, 0));
    drop(stream);
    // The store does not answer before the end of the stream.
    store.stop();
    drop(module.begin(&get("/")));
    store.resume();
    assert_eq!(schedulers(), 0);
    assert_eq!(status(&module), 429);
}

#[test]
fn an_event_that_comes_late_changes_nothing() {
    let _alone = alone();
    let store = Server::start();
    let module = load("late", &config(&store, "limit = [\"a=1000000/1000d by ip\"]"));
    // The event is under way when the stream completes.
    let mut stream = waiting(&module);
    stream.next_event();
    stream.complete();
    stream.deliver();
    assert!(stream.is_suspended() && stream.refusal().is_none());
    drop(stream);
    // One more event arrives after the request was continued.
    let mut stream = waiting(&module);
    stream.wait();
    stream.deliver();
    assert_eq!(stream.respond(200, &[]).status, 200);
    stream.deliver();
    stream.complete();
    stream.deliver();
    assert_eq!(schedulers(), 0);
}

#[test]
fn a_request_that_envoy_answers_itself_waits_no_more() {
    let _alone = alone();
    let store = Server::start();
    let module = load("timeout", &config(&store, "limit = [\"a=2/1000d by ip\"]"));
    store.stop();
    let mut stream = module.begin(&get("/"));
    stream.answer_in_place(408);
    assert_eq!(schedulers(), 0, "the check has ended");
    store.resume();
    stream.deliver();
    assert!(stream.is_suspended() && stream.refusal().is_none(), "nothing is continued or answered");
    stream.complete();
}

#[test]
fn workers_that_end_while_the_store_answers_get_no_event() {
    let _alone = alone();
    let store = Server::start();
    let module = load("workers", &config(&store, "limit = [\"a=1000000/1000d by ip\"]"));
    let worker = |worker: u64| {
        for turn in 0..100 {
            let mut streams: Vec<Stream<'_>> = (0..4).map(|_| module.begin(&get("/"))).collect();
            thread::sleep(Duration::from_micros((worker * 37 + turn * 11) % 300 * 30));
            // The host checks that no event is posted to a stream that is gone.
            streams.truncate(1);
            streams[0].wait();
        }
    };
    with_slow_events(|| {
        thread::scope(|scope| (0..8).for_each(|number| drop(scope.spawn(move || worker(number)))));
    });
    assert_eq!(schedulers(), 0);
    assert_eq!(module.counter("tollgate.workers.a.denied"), 0);
}

#[test]
fn places_count_on_all_envoys() {
    let _alone = alone();
    let store = Server::start();
    let text = config(&store, "limit = [\"a=2 at once by ip\"]");
    let [one, two] = ["places-1", "places-2"].map(|filter| load(filter, &text));
    let mut streams: Vec<Stream<'_>> = [&one, &two].map(|module| module.begin(&get("/"))).into();
    streams.iter_mut().for_each(Stream::wait);
    assert_eq!(streams.iter().map(|it| it.refusal().is_none()).collect::<Vec<_>>(), [true, true]);
    let refused = two.serve(&get("/"));
    assert_eq!((refused.status, refused.header("ratelimit")), (429, Some("\"a\";r=0")));
    streams[0].respond(200, &[]);
    streams[0].complete();
    until("the place is free", || status(&two) == 200);
    // A stream that ends while it waits for its place gives the place back.
    store.stop();
    drop(one.begin(&get("/")));
    store.resume();
    drop(streams);
    until("all places are free", || {
        let mut streams = [&one, &two].map(|module| module.begin(&get("/")));
        streams.iter_mut().for_each(Stream::wait);
        streams.iter().all(|it| it.refusal().is_none())
    });
}

#[test]
fn charges_that_a_response_gives_back_are_free_for_the_next_request() {
    let _alone = alone();
    let store = Server::start();
    let text = config(&store, "limit = [\"a=1/1000d by ip\"]\ncharge-if = { a = \"401\" }");
    let [one, two] = ["back-1", "back-2"].map(|filter| load(filter, &text));
    for _ in 0..50 {
        assert_eq!(status(&one), 200, "the store gives the token back first");
    }
    let seen = two.serve(&get("/"));
    assert_eq!(seen.status, 200);
    assert_eq!(one.serve(&get("/").answered(401)).status, 401);
    assert_eq!([status(&one), status(&two)], [429, 429]);
}

#[test]
fn charges_are_given_back_first_over_a_quiet_connection() {
    let _alone = alone();
    let store = Server::start();
    let text = config(&store, "limit = [\"a=1/1000d by ip\"]\ncharge-if = { a = \"401\" }");
    let module = load("quiet", &text);
    for _ in 0..50 {
        let mut stream = module.begin(&get("/"));
        stream.wait();
        assert_eq!(stream.refusal(), None, "the store gives the token back first");
        // A connection is quiet a few milliseconds after its last answer.
        thread::sleep(Duration::from_millis(10));
        stream.respond(200, &[]);
        stream.complete();
    }
}

#[test]
fn the_end_waits_for_no_store_that_is_lost() {
    let _alone = alone();
    let store = Server::start();
    let module = Module::load("lost", &impatient(&store, "limit = [\"a=1 at once by ip\"]")).unwrap();
    let mut stream = module.begin(&get("/"));
    stream.wait();
    assert_eq!(stream.refusal(), None);
    store.kill();
    until("the loss is told", || logged("the store is lost").contains(&store.address().to_string()));
    drop(stream);
    let begun = Instant::now();
    drop(module);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    until("the thread has ended", || threads() == 0);
}

#[test]
fn a_refused_configuration_connects_to_no_store() {
    let _alone = alone();
    // An attempt to connect would delay the end of the thread, because this store accepts nothing.
    let store = TcpListener::bind("127.0.0.1:0").unwrap();
    store.set_nonblocking(true).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.txt");
    // It takes a while to read the file, and the second limit is refused after that.
    fs::write(&keys, (0..200_000).map(|key| format!("key-{key}\n")).collect::<String>()).unwrap();
    let text = format!(
        "limit = [\"a=9000/s by header x-key known {} else allow\", \"b=9/s by ip\"]\nredis = \"redis://{}\"\n\
         redis-lease = 600",
        keys.display(),
        store.local_addr().unwrap()
    );
    for turn in 0..5 {
        let said = Module::load(&format!("refuses-{turn}"), &text).err().unwrap();
        assert!(said.contains("lease of 600 tokens: expected 1 to 4"), "{said}");
    }
    assert!(store.accept().is_err(), "nothing connects");
}

#[test]
fn beside_counts_that_are_reported_later_places_are_refused_without_the_store() {
    let _alone = alone();
    let limits = |name| format!("limit = [\"{name}=5/1000d by ip\", \"{name}-places=5 at once by ip\"]");
    let rest = "algorithm = \"fixed-window\"\nredis = \"redis://127.0.0.1:1\"\nredis-max-unsynced = 5";
    let module = Module::load("unavailable", &format!("{}\n{rest}", limits("a"))).unwrap();
    assert_eq!(status(&module), 503);
    assert_eq!(module.counter("tollgate.unavailable.a-places.unavailable"), 1);
    let local = "redis-when-unavailable = \"local\"";
    let module = Module::load("available", &format!("{}\n{rest}\n{local}", limits("b"))).unwrap();
    assert_eq!(status(&module), 200);
}

#[test]
fn a_configuration_that_drains_keeps_the_thread_and_the_last_one_ends_it() {
    let _alone = alone();
    let store = Server::start();
    let text = |quota: &str| config(&store, &format!("limit = [\"a={quota}/1000d by ip\"]"));
    let draining = load("drains", &text("5"));
    assert_eq!(threads(), 1);
    let newest = load("drains", &text("9"));
    assert_eq!(threads(), 1, "one thread belongs to the module");
    assert_eq!(store.clients(), 1, "both configurations have one connection");
    store.stop();
    let mut stream = draining.begin(&get("/"));
    assert!(stream.is_suspended());
    drop(newest);
    store.resume();
    stream.wait();
    assert_eq!(stream.respond(200, &[]).status, 200);
    drop(stream);
    assert_eq!(store.clients(), 1);
    drop(draining);
    until("the thread has ended", || threads() == 0);
    until("the connection is closed", || store.clients() == 0);
    let changed = "limit a: has a new quota or new settings, and its keys keep their counts in the store";
    assert!(logged("filter drains").contains(changed), "{}", logged("filter drains"));
}

/// Returns the remaining tokens of the limit `a` that a response reports.
fn left(module: &Module) -> Option<u64> {
    let answer = module.serve(&get("/"));
    answer.header("ratelimit")?.split_once("r=")?.1.split(';').next()?.parse().ok()
}

#[test]
fn the_last_configuration_frees_its_places() {
    let _alone = alone();
    let store = Server::start();
    let text = config(&store, "limit = [\"a=1 at once by ip\"]");
    for turn in 0..5 {
        let module = Module::load("frees", &text).unwrap();
        let mut stream = module.begin(&get("/"));
        stream.wait();
        assert_eq!(stream.refusal(), None, "turn {turn}");
        drop(stream);
    }
}

#[test]
fn the_last_configuration_reports_its_counts() {
    let _alone = alone();
    let store = Server::start();
    let text = "limit = [\"a=1000/1000d by ip\"]\nalgorithm = \"fixed-window\"\nredis-max-unsynced = 100";
    let text = config(&store, text);
    let module = load("reports", &text);
    let mut admitted = 0;
    let admit = |admitted: &mut u64| {
        assert_eq!(status(&module), 200);
        *admitted += 1;
    };
    // The last requests are not in the report that is under way.
    store.stop();
    until("a report is under way", || {
        admit(&mut admitted);
        read_figures_now("reports");
        admit(&mut admitted);
        module.counter("tollgate.reports.a.shared-unsynced-sent") > 0
    });
    (0..10).for_each(|_| admit(&mut admitted));
    thread::scope(|scope| {
        scope.spawn(|| {
            // The configuration most likely ends before its report is answered.
            thread::sleep(Duration::from_millis(100));
            store.resume();
        });
        drop(module);
    });
    let module = load("reports-2", &text);
    let mut own = 0;
    until("all counts of the ended process are known", || {
        own += 1;
        left(&module).is_some_and(|left| left + own + admitted == 1000)
    });
}

#[test]
fn figures_are_counted_once_whichever_configuration_publishes_them() {
    let _alone = alone();
    let store = Server::start();
    let text = config(&store, "limit = [\"a=1000/1000d by ip\"]");
    let modules = [(); 2].map(|()| load("figures", &text));
    let figure = |name: &str| {
        let name = format!("tollgate.figures.a.{name}");
        modules.iter().map(|module| module.counter(&name)).sum::<u64>()
    };
    let publish = |at: usize| {
        read_figures_now("figures");
        assert_eq!(status(&modules[at % 2]), 200);
    };
    publish(0);
    let before = figure("shared-by-store");
    // Each request publishes the figures of the requests before it.
    (0..10).for_each(publish);
    assert_eq!(figure("shared-by-store") - before, 10);
    assert_eq!((figure("shared-unsent"), figure("shared-store-errors")), (0, 0));
}

#[test]
fn figures_of_a_client_are_counted_once_over_a_reload() {
    let _alone = alone();
    let store = Server::start();
    let text = |quota: &str| impatient(&store, &format!("limit = [\"a={quota}/1000d by ip\"]"));
    let before = load("reloaded", &text("1000"));
    store.kill();
    until("the breaker opens", || {
        assert_eq!(status(&before), 200);
        read_figures_now("reloaded");
        assert_eq!(status(&before), 200);
        before.counter("tollgate.reloaded.a.store-breaker-trips") == 1
    });
    // A new quota needs a new limiter, which has the same client.
    let after = Module::load("reloaded", &text("2000")).unwrap();
    read_figures_now("reloaded");
    assert_eq!([status(&before), status(&after)], [200; 2]);
    assert_eq!(before.counter("tollgate.reloaded.a.store-breaker-trips"), 1);
    assert_eq!(after.counter("tollgate.reloaded.a.store-breaker-trips"), 0);
}

#[test]
fn figures_of_a_client_are_counted_once_while_a_listener_drains() {
    let _alone = alone();
    let store = Server::start();
    let text = |quota: &str| impatient(&store, &format!("limit = [\"a={quota}/1000d by ip\"]"));
    let before = load("trips", &text("1000"));
    let after = load("trips", &text("2000"));
    store.kill();
    let trips = || {
        assert_eq!([status(&before), status(&after)], [200; 2]);
        read_figures_now("trips");
        assert_eq!([status(&before), status(&after)], [200; 2]);
        let counters = [&before, &after].map(|it| it.counter("tollgate.trips.a.store-breaker-trips"));
        counters.iter().sum::<u64>()
    };
    until("the breaker opens", || trips() > 0);
    assert_eq!(trips(), 1);
}

/// The first case of a configuration with each kind of servers.
#[test]
fn sentinels_clusters_and_passwords_are_settings() {
    let _alone = alone();
    let watched = Watched::start(Program::Redis);
    let sentinels = watched.urls().join(", ");
    let text = |quota: &str| {
        format!(
            "limit = [\"a={quota}/1000d by ip\"]\nredis = \"redis://{NAME}\"\nredis-sentinel = \"{sentinels}\"\n\
             redis-deadline = \"10s\""
        )
    };
    let [one, two] = ["sentinel-1", "sentinel-2"].map(|filter| load(filter, &text("2")));
    assert_eq!([status(&one), status(&two), status(&one)], [200, 200, 429]);
    let lost = watched.kill_master();
    watched.wait_for_failover(lost);
    until("the new master has the counts", || {
        load("sentinel-3", &text("3")).serve(&get("/")).header("ratelimit").is_some()
    });
    drop((one, two));

    let cluster = Cluster::start(Program::Redis);
    let nodes = cluster.urls().join(",");
    let text = format!("limit = [\"a=2/1000d by ip\"]\nredis = \"{nodes}\"\nredis-deadline = \"10s\"");
    let [one, two] = ["cluster-1", "cluster-2"].map(|filter| load(filter, &text));
    assert_eq!([status(&one), status(&two), status(&one)], [200, 200, 429]);
    drop((one, two));

    let store = Setup::new(Program::Redis).password("hunter2").start();
    let module = load("password", &config(&store, "limit = [\"a=1/1000d by ip\"]"));
    assert_eq!([status(&module), status(&module)], [200, 429]);
    assert!(!logged("").contains("hunter2"));
}

#[test]
fn no_password_is_in_the_log() {
    let _alone = alone();
    for (number, text) in [
        "redis = \"redis://:hunter2@127.0.0.1:1\"",
        "redis = \":hunter2@127.0.0.1:1\"",
        "redis = \"redis://:hunt/er2@127.0.0.1:1\"",
        "redis = \"redis://:hunter2@m:1\"\nredis-sentinel = \"redis://:hunter2@127.0.0.1:1\"",
        "redis = \"redis://:hunter2@m\"\nredis-sentinel = \"redis://:hunter2@127.0.0.1:1\"",
        "redis = \"redis://:hunter2@127.0.0.1:1\"\nredis-lease = 600",
        "redis = \"redis://:hunter2@127.0.0.1:1\"\nredis-lease = \"hunter\"",
    ]
    .into_iter()
    .enumerate()
    {
        let module = Module::load(&format!("secret-{number}"), &format!("limit = [\"a=9/h by ip\"]\n{text}"));
        if let Ok(module) = module {
            let _ = status(&module);
        }
    }
    until("a loss is told", || logged("127.0.0.1:1").contains("limits are not shared"));
    assert!(!logged("").contains("hunter2") && !logged("").contains("er2@"), "{}", logged("hunt"));
}
