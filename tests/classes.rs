//! Classes of callers, with fingerprints; and the example of tiers.

#[path = "stores/classes.rs"]
mod cases;
#[path = "stores/fingerprints.rs"]
mod store;
#[path = "../examples/tiers.rs"]
mod tiers;

#[test]
fn the_example_of_tiers_runs() {
    tiers::main().unwrap();
}
