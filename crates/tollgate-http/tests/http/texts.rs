//! Tests that wrong limits are refused or warned of when a layer is built from their texts, and
//! that right ones are not.

use tollgate_http::settings::LayerSettings;
use tollgate_testing::limit_texts::{RIGHT, WRONG};

/// Returns the refusal or the warnings for a text; empty if the text is accepted in silence.
fn said(text: &str) -> String {
    let limit = match text.parse() {
        Ok(limit) => limit,
        Err(error) => return format!("{error}"),
    };
    let settings = LayerSettings { limits: vec![limit], ..LayerSettings::default() };
    match settings.builder() {
        Err(error) => error.to_string(),
        Ok(builder) => {
            let warnings: Vec<String> = builder.warnings().iter().map(ToString::to_string).collect();
            match builder.build() {
                Err(error) => error.to_string(),
                Ok(_) => warnings.join("\n"),
            }
        }
    }
}

#[test]
fn every_wrong_limit_is_refused_or_warned_of_with_the_fix() {
    let missed = WRONG.into_iter().filter(|(text, fix)| !said(text).contains(fix));
    let missed: Vec<String> = missed.map(|(text, fix)| format!("{text}: {fix}: {}", said(text))).collect();
    assert!(missed.is_empty(), "{} of {}:\n{}", missed.len(), WRONG.len(), missed.join("\n"));
}

#[test]
fn no_right_limit_is_refused_or_warned_of() {
    let refused = RIGHT.into_iter().filter(|text| !said(text).is_empty());
    let refused: Vec<String> = refused.map(|text| format!("{text}: {}", said(text))).collect();
    assert!(refused.is_empty(), "{} of {}:\n{}", refused.len(), RIGHT.len(), refused.join("\n"));
}
