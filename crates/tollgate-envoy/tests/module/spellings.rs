//! Tests that no spelling of a request evades a limit of the module.

use std::fs;

use crate::host::{Asked, Module, get};
use tollgate_testing::spellings::{KNOWN, SPELLED, Sent};

/// Returns a request as Envoy passes it to a filter: an absolute target takes the place of the
/// host, names are in lower case, and there is one host. Returns `None` for two different hosts,
/// because Envoy passes on the one in the target.
fn asked(sent: &Sent) -> Option<Asked> {
    let host = sent.hosts().join(",");
    let (authority, path) = match sent.target.strip_prefix("http://") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => (host.as_str(), sent.target),
    };
    let is_default = !sent.fields.iter().any(|(name, _)| *name == "host");
    if authority != host && !is_default {
        return None;
    }
    let client = match sent.client.contains(':') {
        true => format!("[{}]:4711", sent.client),
        false => format!("{}:4711", sent.client),
    };
    let mut asked = Asked { method: sent.method, ..get(path) }.to(authority).from(client.leak());
    for (name, value) in sent.others() {
        asked = asked.with(name.to_ascii_lowercase().leak(), value);
    }
    Some(asked)
}

#[test]
fn no_spelling_of_a_request_evades_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("known");
    fs::write(&file, KNOWN).unwrap();
    let mut evading = Vec::new();
    for (number, spelled) in SPELLED.iter().enumerate() {
        let text = format!("a=1/h {}", spelled.limit.replace("KNOWN", file.to_str().unwrap()));
        let module = Module::load(&format!("spelled-{number}"), &format!("limit = ['{text}']")).unwrap();
        assert_eq!(module.serve(&asked(&spelled.plain).unwrap()).status, 200, "{text}");
        for other in spelled.others {
            let status = asked(other).map(|asked| module.serve(&asked).status);
            if status.is_some_and(|status| !(400..500).contains(&status)) {
                evading.push(format!("{text}: {other:?}: {status:?}"));
            }
        }
    }
    assert!(evading.is_empty(), "{}:\n{}", evading.len(), evading.join("\n"));
}
