//! Tests the program from the outside. The inputs are arguments, logs and requests, and the outputs
//! are reports and responses.

mod fuzz;
mod program;
#[cfg(all(unix, feature = "proxy"))]
mod proxy;
mod replay;
mod replay_against;
mod replay_docs;
mod replay_formats;
#[cfg(feature = "html")]
mod replay_html;
mod replay_limits;
mod replay_oracle;
mod replay_quotas;
mod subcommands;
mod suggest;
