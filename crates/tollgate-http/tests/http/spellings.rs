//! Tests that no spelling of a request evades a limit of the layer.

use super::classes::scratch;
use super::site::Running;
use http::{HeaderValue, Request};
use std::net::IpAddr;
use tollgate::ManualClock;
use tollgate_http::PeerAddr;
use tollgate_http::settings::LayerSettings;
use tollgate_testing::spellings::{KNOWN, SPELLED, Sent};

fn request(sent: &Sent) -> Request<()> {
    let mut request = Request::builder().method(sent.method).uri(sent.target).body(()).unwrap();
    let client: IpAddr = sent.client.parse().unwrap();
    request.extensions_mut().insert(PeerAddr((client, 4711).into()));
    for host in sent.hosts() {
        request.headers_mut().append("host", HeaderValue::from_static(host));
    }
    for (name, value) in sent.others() {
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, HeaderValue::from_static(value));
    }
    request
}

#[test]
fn no_spelling_of_a_request_evades_a_limit() {
    let file = scratch("spellings", KNOWN);
    let mut evading = Vec::new();
    for spelled in SPELLED {
        let text = format!("a=1/h {}", spelled.limit.replace("KNOWN", &file));
        let settings = LayerSettings { limits: vec![text.parse().unwrap()], ..LayerSettings::default() };
        let layer = settings.builder().unwrap().build().unwrap();
        let site = Running { clock: ManualClock::new(), layer };
        assert_eq!(site.status(request(&spelled.plain)), 200, "{text}");
        for other in spelled.others {
            let status = site.status(request(other));
            if !(400..500).contains(&status) {
                evading.push(format!("{text}: {other:?}: {status}"));
            }
        }
    }
    assert!(evading.is_empty(), "{}:\n{}", evading.len(), evading.join("\n"));
}
