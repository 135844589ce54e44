//! Layers whose limits continue the counts of an earlier layer.

use crate::site::{Running, from};
use std::fs;
use tollgate::{Algorithm, Limiter, ManualClock, Quota};
use tollgate_http::settings::{LayerSettings, SavedLimits};
use tollgate_http::{BuildWarning, Key, KeyBy, Limit, RateLimitBuilder, WhenNoKey};

fn settings(limits: &[&str]) -> LayerSettings {
    let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    LayerSettings { limits, trust_hops: Some(1), ..LayerSettings::default() }
}

fn run(builder: RateLimitBuilder) -> Running {
    Running { clock: ManualClock::new(), layer: builder.build().unwrap() }
}

fn start(settings: &LayerSettings) -> Running {
    run(settings.builder().unwrap())
}

fn saved(running: &Running) -> Vec<u8> {
    let mut saved = Vec::new();
    running.layer.save(&mut saved).unwrap();
    saved
}

/// Returns what a layer continues, and what it does not.
fn continued(settings: &LayerSettings, mut saved: &[u8]) -> (Running, Vec<String>) {
    let builder = settings.builder_from(SavedLimits::read(&mut saved).unwrap()).unwrap();
    assert!(saved.is_empty(), "everything was read");
    let is_of_load = |it: &BuildWarning| {
        matches!(it, BuildWarning::StartsFresh { .. } | BuildWarning::CountsDropped { .. })
    };
    let warnings = builder.warnings().into_iter().filter(is_of_load);
    let warnings = warnings.map(|it| it.to_string()).collect();
    (run(builder), warnings)
}

/// Sends a request of this plan and with this key, and returns the remaining quota of each limit.
fn left(running: &Running, plan: &str, key: &str) -> (u16, Vec<String>) {
    let answer = running.send(from("192.0.2.1", "/", &[("x-plan", plan), ("x-api-key", key)]));
    let items = answer.items("ratelimit").into_iter();
    let left = items.map(|item| item.split(" t=").next().unwrap().to_owned());
    (answer.status.as_u16(), left.collect())
}

#[test]
fn limits_of_every_kind_continue_with_their_counts() {
    for algorithm in Algorithm::ALL {
        let limits = [
            "all=9/d by nothing",
            "ip=5/d and 8 at once by ip",
            "key=7/30d class paid 8/30d class staff unlimited by header x-api-key or ip class by header x-plan",
        ];
        let settings = LayerSettings { algorithm, ..settings(&limits) };
        let mut running = start(&settings);
        // One limiter never stops, and the other one is loaded before each request.
        let twin = start(&settings);
        let requests =
            [("free", "a"), ("paid", "a"), ("staff", "a"), ("free", "a"), ("free", "b"), ("paid", "a")];
        for (plan, key) in requests {
            let (next, warnings) = continued(&settings, &saved(&running));
            assert_eq!(warnings, [] as [&str; 0], "{algorithm}");
            running = next;
            assert_eq!(left(&running, plan, key), left(&twin, plan, key), "{algorithm} {plan} {key}");
        }
        assert_eq!(left(&running, "paid", "a").0, 429, "{algorithm}: five a day");
    }
}

/// The counts of keys that mean the same continue, and everything else is listed.
#[test]
fn what_does_not_continue_begins_without_counts_and_is_listed() {
    let limit = |text: &str| settings(&[text]);
    let classes =
        |classes: &str| limit(&format!("a=2/d {classes}by header x-api-key class by header x-plan"));
    let other_algorithm =
        LayerSettings { algorithm: Algorithm::FixedWindow, ..limit("a=2/d by header x-api-key") };
    let fresh = "limit \"a\" begins without counts: ";
    let cases = [
        (limit("a=2/d by header x-api-key else allow"), 429, vec![]),
        (limit("a=3/d by header x-api-key"), 200, vec![]),
        (
            limit("a=2/d by header x-user or header x-api-key"),
            200,
            vec![format!(
                "{fresh}its saved counts are by `header x-api-key`, and it counts by `header x-user or header x-api-key` \
                 now"
            )],
        ),
        (
            limit("a=2/d by nothing"),
            200,
            vec![format!(
                "{fresh}its saved counts are by `header x-api-key`, and it counts by `nothing` now"
            )],
        ),
        (
            other_algorithm,
            200,
            vec![format!(
                "{fresh}the saved state is unusable: it is the state of a token-bucket; this limiter is a \
                 fixed-window, which cannot continue that state"
            )],
        ),
        (
            limit("b=2/d by header x-api-key"),
            200,
            vec![
                "limit \"b\" begins without counts: the saved state does not contain it".to_owned(),
                "limit \"a\" counts no rate any more: its saved counts are dropped".to_owned(),
            ],
        ),
        (
            limit("a=2 at once by header x-api-key"),
            200,
            vec!["limit \"a\" counts no rate any more: its saved counts are dropped".to_owned()],
        ),
        (
            classes("class paid 9/d "),
            429,
            vec![
                "limit \"a\", class \"paid\", begins without counts: the saved state does not contain it"
                    .to_owned(),
            ],
        ),
    ];
    let before = start(&limit("a=2/d by header x-api-key"));
    assert_eq!([(); 3].map(|()| left(&before, "free", "k").0), [200, 200, 429]);
    let saved = saved(&before);
    for (settings, status, expected) in cases {
        let (after, warnings) = continued(&settings, &saved);
        assert_eq!(warnings, expected);
        assert_eq!(left(&after, "free", "k").0, status, "{settings:?}");
    }
}

#[test]
fn a_class_that_is_gone_is_dropped_and_the_others_continue() {
    let of =
        |classes: &str| settings(&[&format!("a=1/d {classes}by header x-api-key class by header x-plan")]);
    let before = start(&of("class paid 2/d class gone 3/d "));
    for plan in ["free", "paid", "gone"] {
        left(&before, plan, "k");
    }
    let (after, warnings) = continued(&of("class paid 2/d "), &saved(&before));
    assert_eq!(
        warnings,
        ["limit \"a\", class \"gone\", counts no rate any more: its saved counts are dropped"]
    );
    assert_eq!(left(&after, "paid", "k"), (200, vec!["a r=0".to_owned()]));
    assert_eq!(left(&after, "free", "k").0, 429);
}

/// A file of known keys that moves, and keys that are added to it, change no key.
#[test]
fn keys_continue_with_another_file_of_known_keys() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("saved_known");
    fs::create_dir_all(&folder).unwrap();
    let of = |name: &str, keys: &str| {
        let file = folder.join(name);
        fs::write(&file, keys).unwrap();
        settings(&[&format!("a=1/d by header x-api-key known {} or ip", file.display())])
    };
    let before = start(&of("one", "k\n"));
    assert_eq!(left(&before, "free", "k").0, 200);
    let (after, warnings) = continued(&of("two", "j\nk\n"), &saved(&before));
    assert_eq!(warnings, [] as [&str; 0]);
    assert_eq!(["k", "j", "ip"].map(|key| left(&after, "free", key).0), [429, 200, 200]);
}

#[test]
fn no_key_is_forgiven_if_there_are_fewer_places() {
    let limits = LayerSettings { max_keys: 100, ..settings(&["a=1/d by header x-api-key"]) };
    let before = start(&limits);
    let keys: Vec<String> = (0..100).map(|key| key.to_string()).collect();
    assert!(keys.iter().all(|key| left(&before, "free", key).0 == 200));
    let (after, warnings) = continued(&LayerSettings { max_keys: 10, ..limits }, &saved(&before));
    assert_eq!(warnings, [] as [&str; 0]);
    assert!(keys.iter().all(|key| left(&after, "free", key).0 == 429));
}

/// A limiter that the caller has built is saved by the caller, and nothing about it is listed.
#[test]
fn limiters_of_the_caller_are_not_saved() {
    let settings = settings(&["a=1/d by header x-api-key"]);
    let own = || -> Limiter<Key> { Limiter::builder(Quota::per_day(1)).build().unwrap() };
    let by = || KeyBy::header("x-api-key");
    let limit = || Limit::new("own", own()).by(by()).when_no_key(WhenNoKey::Deny);
    let before = run(settings.builder().unwrap().limit(limit()));
    assert_eq!([(); 2].map(|()| left(&before, "free", "k").0), [200, 429]);
    let saved = saved(&before);
    let text = String::from_utf8_lossy(&saved).into_owned();
    assert!(text.contains("\"limit\":\"a\"") && !text.contains("own"), "{text}");
    let read = SavedLimits::read(&saved[..]).unwrap();
    let builder = settings.builder_from(read).unwrap().limit(limit());
    assert_eq!(builder.warnings(), settings.builder().unwrap().limit(limit()).warnings());
    assert_eq!(left(&run(builder), "free", "k"), (429, vec!["a r=0".to_owned(), "own r=1".to_owned()]));
}

#[test]
fn states_of_two_layers_may_follow_each_other_in_one_file() {
    let (one, two) = (settings(&["a=1/d by header x-api-key"]), settings(&["b=1/d by header x-api-key"]));
    let (first, second) = (start(&one), start(&two));
    left(&second, "free", "k");
    let both = [saved(&first), saved(&second)].concat();
    let mut rest = &both[..];
    SavedLimits::read(&mut rest).unwrap();
    let (second, _) = continued(&two, rest);
    assert_eq!(left(&second, "free", "k").0, 429);
}

#[test]
fn a_state_that_is_truncated_foreign_or_damaged_is_refused_or_listed() {
    let settings = settings(&["a=1/d class paid 2/d by header x-api-key class by header x-plan"]);
    let running = start(&settings);
    left(&running, "free", "k");
    left(&running, "paid", "k");
    let saved = saved(&running);
    let why = |bytes: &[u8]| SavedLimits::read(bytes).unwrap_err().to_string();
    for length in 0..saved.len() {
        assert!(why(&saved[..length]).ends_with(": it is truncated"), "{length}");
    }
    let mut foreign = Vec::new();
    Limiter::<u64>::builder(Quota::per_day(1)).build().unwrap().save(&mut foreign).unwrap();
    assert!(why(&foreign).contains("it does not begin with \"tollgate-http\""));
    let mut newer = saved.clone();
    newer[13] = 9;
    assert!(why(&newer).contains("its version is 9; allowed: 1; another release"), "{}", why(&newer));
    let names = saved.windows(2).position(|it| it == b"[{").unwrap();
    let names = names..names + saved[names..].windows(2).position(|it| it == b"}]").unwrap();
    for bit in 0..8 * saved.len() {
        let mut changed = saved.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let Ok(read) = SavedLimits::read(&changed[..]) else { continue };
        assert!(!names.contains(&(bit / 8)), "{bit}");
        let warnings = settings.builder_from(read).unwrap().warnings();
        assert!(warnings.iter().any(|it| matches!(it, BuildWarning::StartsFresh { .. })), "{bit}");
    }
}
