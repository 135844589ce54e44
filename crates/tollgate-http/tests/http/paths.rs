//! Tests per-path limits. All spellings of a path share one canonical form, and a template covers
//! many paths.

use super::site::{from, site};
use http::{Request, Uri};
use tollgate::{Limiter, Quota};
use tollgate_http::program::canonical_path;
use tollgate_http::settings::LayerSettings;
use tollgate_http::{Key, KeyBy, Limit, RateLimitLayer, RequestHead};
use tollgate_testing::paths::{PATHS, RAW_PATHS};

fn key(by: &KeyBy, request: &Request<()>) -> Key {
    by.key("a", RequestHead::of(request)).unwrap().expect("a path is always there")
}

#[test]
fn every_spelling_of_a_path_has_the_key_of_its_form() {
    for (sent, form) in PATHS {
        let request = from("", sent, &[]);
        assert_eq!(RequestHead::of(&request).path(), form, "{sent}");
        assert_eq!(key(&KeyBy::path(), &request), key(&KeyBy::path(), &from("", form, &[])), "{sent}");
        // The layer counts the path with its canonical form.
        let site = site().hourly(KeyBy::path());
        assert_eq!(site.statuses([from("", form, &[]), request.clone()]), [200, 429], "{sent}");
        assert_eq!(request.uri(), &sent.parse::<Uri>().unwrap());
    }
}

#[test]
fn bytes_that_a_uri_refuses_have_the_key_of_their_encoding() {
    for (sent, passed_on, form) in RAW_PATHS {
        let [of_sent, of_form] = [passed_on, form].map(|path| key(&KeyBy::path(), &from("", path, &[])));
        assert_eq!(of_sent, of_form, "{passed_on}");
        if let Some(path) =
            sent.split(|byte| b"?#".contains(byte)).next().filter(|path| path.starts_with(b"/"))
        {
            assert_eq!(*canonical_path(path), *form.as_bytes(), "{passed_on}");
        }
    }
}

#[test]
fn what_has_no_path_has_a_key() {
    let mut whole_server = Request::options("*").body(()).unwrap();
    assert_eq!(key(&KeyBy::path(), &whole_server), Key::new("a", ["*"]));
    *whole_server.uri_mut() = Uri::from_static("example.org:443");
    assert_eq!(key(&KeyBy::path(), &whole_server), Key::new("a", ["/"]));
    let raw = from("", "/caf\u{e9}", &[]);
    assert_eq!(key(&KeyBy::path(), &raw), Key::new("a", ["/caf%C3%A9"]));
    for one in ["/b/login", "/b/login/", "/b/login;x=1", "/b%2Flogin", "/b%5clogin", "/b;y/login"] {
        assert_eq!(key(&KeyBy::path(), &from("", one, &[])), Key::new("a", ["/b/login"]), "{one}");
    }
}

#[test]
fn a_path_is_skipped_in_any_spelling() {
    let settings = LayerSettings {
        limits: vec!["all=1/h by nothing".parse().unwrap()],
        except: vec!["/health".parse().unwrap()],
        ..LayerSettings::default()
    };
    let running = super::site::Running {
        clock: tollgate::ManualClock::new(),
        layer: settings.builder().unwrap().build().unwrap(),
    };
    let status = |path: &str| running.status(from("", path, &[]));
    assert_eq!(["/", "/health", "//h%65alth", "/a/../health?x"].map(status), [200; 4]);
    assert_eq!(["/health/", "/Health", "/health%2F"].map(status), [429; 3]);
}

#[test]
fn a_template_is_one_key_and_all_that_match_none_are_another() {
    let site = site().hourly(KeyBy::path_templates(["/users/me", "/users/{id}", "/files/{*path}"]));
    let status = |path: &str| site.status(from("", path, &[]));
    assert_eq!(["/users/1", "/users/2", "//users/%32"].map(status), [200, 429, 429]);
    assert_eq!(["/users/me", "/users/m%65"].map(status), [200, 429]);
    assert_eq!(["/files/a", "/files/a/b/c"].map(status), [200, 429]);
    assert_eq!(["/login", "/users/1/x", "/login;1", "/users/", "/"].map(status), [200, 429, 429, 429, 429]);
}

#[test]
fn a_bad_template_is_refused_when_the_layer_is_built() {
    let limit = |by| Limit::new("a", Limiter::builder(Quota::per_hour(1)).build().unwrap()).by(by);
    let refused = |by| RateLimitLayer::builder().limit(limit(by)).build().unwrap_err().to_string();
    let message = refused(KeyBy::path_templates(["/a{id}"]));
    assert!(
        message.starts_with("invalid path template `/a{id}` at segment 1, `a{id}`: expected"),
        "{message}"
    );
    assert!(refused(KeyBy::path_templates(["/{a}", "/b"])).contains("`/b` is never reached"));
    // Templates in settings are checked even if no limit uses them.
    let settings = LayerSettings {
        limits: vec!["all=1/h by nothing".parse().unwrap()],
        path_templates: vec!["/{a}".parse().unwrap(), "/b".parse().unwrap()],
        ..LayerSettings::default()
    };
    assert!(settings.builder().unwrap_err().to_string().contains("`/b` is never reached"));
}
