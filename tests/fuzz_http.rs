//! As `fuzz_corpus`, for what the HTTP layer reads of requests and writes into responses.

mod oracle;

#[path = "http_sockets/structured.rs"]
mod structured;

mod fuzz {
    pub(crate) mod fields;
    pub(crate) mod forwarded;
    pub(crate) mod input;
    // Its quotas.
    #[allow(dead_code)]
    pub(crate) mod rule;
    pub(crate) mod saved;
}

#[test]
fn clients_behind_proxies_are_whom_the_proxies_name_for_what_was_fuzzed() {
    fuzz::saved::try_all("forwarded", fuzz::forwarded::body, 50_000);
}

#[test]
fn fields_of_responses_are_read_back_as_what_was_decided_for_what_was_fuzzed() {
    fuzz::saved::try_all("fields", fuzz::fields::body, 6_000);
}
