//! The proxy's spelling of the settings of shared limits.

use tollgate_redis::program::SettingNames;

/// The names of the options.
pub const NAMES: SettingNames = SettingNames { prefix: "--", limit: |name| format!("--limit '{name}'") };
