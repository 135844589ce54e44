//! The configuration of a filter. It consists of limits in the language of tollgate-http, of the
//! proxy's settings for shared limits, and of settings that only this module supports.
//!
//! The configuration is written in TOML, or in JSON if it starts with `{`. Envoy converts a
//! `google.protobuf.Struct` to JSON.

use http::HeaderName;
use http::header::HOST;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate_http::ForwardedField;
use tollgate_http::program::{
    Fact, class_header, facts, facts_of_scope, field_watch, files_relative_to, parse_time, printable,
};
use tollgate_http::settings::LayerSettings;
use tollgate_redis::program::{self, StoreSettings, UnavailablePolicy};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// The configuration of a filter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) limits: LayerSettings,
    pub(crate) own: OwnSettings,
    /// The store of the limits. `None` if they count in this Envoy alone.
    pub(crate) shared: Option<StoreSettings>,
}

/// The settings that are specific to this module.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct OwnSettings {
    /// Headers that Envoy either sets itself or removes from clients' requests.
    #[serde(deserialize_with = "header_names")]
    pub(crate) trust_headers: Vec<HeaderName>,
    /// The headers through which limits see route metadata, each with the namespace and the key of
    /// its metadata.
    #[serde(deserialize_with = "metadata")]
    pub(crate) route_metadata: Vec<(HeaderName, RouteMetadata)>,
    /// The namespace of the dynamic metadata to which the limits' decisions are written.
    pub(crate) dynamic_metadata: Option<String>,
    /// The file in which the counts of the limits outlive the process.
    pub(crate) state: Option<PathBuf>,
}

impl OwnSettings {
    /// Returns the headers whose values originate from Envoy rather than from the client.
    pub(crate) fn of_envoy(&self) -> impl Iterator<Item = &HeaderName> {
        self.route_metadata.iter().map(|(header, _)| header).chain(&self.trust_headers)
    }
}

/// The settings of shared limits. They have the names of the proxy's options.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct RedisSettings {
    redis: Option<String>,
    redis_sentinel: Option<String>,
    #[serde(deserialize_with = "deadline")]
    redis_deadline: Option<Duration>,
    #[serde(deserialize_with = "policy")]
    redis_when_unavailable: Option<UnavailablePolicy>,
    redis_share: Option<f64>,
    redis_lease: Option<u64>,
    redis_max_unsynced: Option<u64>,
}

fn deadline<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_time(&text).map(Some).map_err(|error| {
        D::Error::custom(format!("invalid redis-deadline `{}`: {error}", printable(text.as_bytes())))
    })
}

fn policy<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<UnavailablePolicy>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match &*text {
        "local" => Ok(Some(UnavailablePolicy::Local)),
        "allow" => Ok(Some(UnavailablePolicy::Allow)),
        "deny" => Ok(Some(UnavailablePolicy::Deny)),
        _ => {
            let shown = printable(text.as_bytes());
            Err(D::Error::custom(format!(
                "invalid redis-when-unavailable `{shown}`: expected local, allow or deny"
            )))
        }
    }
}

impl RedisSettings {
    fn store(self) -> Option<StoreSettings> {
        Some(StoreSettings {
            addresses: self.redis?,
            sentinels: self.redis_sentinel,
            deadline: self.redis_deadline,
            when_unavailable: self.redis_when_unavailable,
            share: self.redis_share,
            lease: self.redis_lease,
            max_unsynced: self.redis_max_unsynced,
        })
    }
}

/// Returns why settings that exclude each other, or that need another setting, are refused.
fn misfit(settings: impl Iterator<Item = impl AsRef<str>>) -> Option<String> {
    let names: Vec<_> = settings.collect();
    let has = |name: &str| names.iter().any(|it| it.as_ref() == name);
    if has("redis") {
        return has("when-full").then(|| {
            "`when-full` has no effect beside `redis`, because the store tracks any number of keys: leave one of them \
             out"
            .to_owned()
        });
    }
    let useless = program::SETTINGS.into_iter().find(|name| has(name))?;
    Some(format!(
        "`{useless}` has no effect without `redis`: expected the address of the store as well, as in redis = \
         \"redis://10.0.0.5\"; set `redis`, or leave `{useless}` out"
    ))
}

/// The names of the settings of a layer that this module has, and `file`.
const OF_LAYER: [&str; 11] = [
    "limit",
    "algorithm",
    "max-keys",
    "when-full",
    "shadow",
    "status",
    "except",
    "path-template",
    "ipv6-prefix",
    "charge-if",
    "file",
];

/// The names of the settings in [`OwnSettings`].
const OWN: [&str; 4] = ["trust-headers", "route-metadata", "dynamic-metadata", "state"];

/// The layer settings that determine the client's address. They are supported only for a field with
/// a single address, because Envoy itself determines the address from the others.
const OF_PROXIES: [&str; 3] = ["trust", "trust-hops", "forwarded-field"];

/// A string in a route's metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouteMetadata {
    pub(crate) namespace: String,
    pub(crate) key: String,
}

fn header_name<E: serde::de::Error>(text: &str) -> Result<HeaderName, E> {
    text.parse().map_err(|_| {
        let shown = printable(text.as_bytes());
        E::custom(format!("invalid header `{shown}`: expected the name of a header, such as x-plan"))
    })
}

fn header_names<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<HeaderName>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    names.iter().map(|name| header_name(name)).collect()
}

fn metadata<'de, D>(deserializer: D) -> Result<Vec<(HeaderName, RouteMetadata)>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let texts = BTreeMap::<String, String>::deserialize(deserializer)?;
    let one = |(header, text): (String, String)| {
        let (namespace, key) = text
            .rsplit_once('/')
            .filter(|(namespace, key)| !namespace.is_empty() && !key.is_empty())
            .ok_or_else(|| {
                let shown = printable(text.as_bytes());
                D::Error::custom(format!(
                    "invalid route-metadata `{shown}`: expected NAMESPACE/KEY, as in com.example/tenant"
                ))
            })?;
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        Ok((header_name(&header)?, RouteMetadata { namespace, key }))
    };
    texts.into_iter().map(one).collect()
}

impl Settings {
    /// Reads the configuration of a filter. If the configuration names a file, also reads that
    /// file.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is neither TOML nor JSON, if a setting is unknown or out of
    /// range, or if a file cannot be read. Also returns an error if any client could choose its
    /// class.
    pub(crate) fn read(config: &[u8]) -> Result<Self, String> {
        let text = text(config, "the filter_config")?;
        match Document::parse(text, "filter_config")? {
            Document { file: Some(file), is_alone: true, .. } => {
                let shown = printable(file.as_bytes());
                let bytes = fs::read(&file).map_err(|error| {
                    format!(
                        "cannot read the file `{shown}`: {error}; expected one that Envoy's user may read"
                    )
                })?;
                let document = Document::parse(self::text(&bytes, &shown)?, &shown)?;
                if document.file.is_some() {
                    return Err(format!("{shown}: `file` in a file: expected the limits themselves"));
                }
                let mut settings = document.settings;
                if let Some(folder) = Path::new(&file).parent() {
                    settings.limits.limits.iter_mut().for_each(|it| files_relative_to(it, folder));
                    if let Some(state) = settings.own.state.as_mut().filter(|it| !it.as_os_str().is_empty()) {
                        *state = folder.join(&*state);
                    }
                }
                settings
            }
            Document { file: Some(_), .. } => {
                return Err("`file` beside other settings: expected it alone, with all settings in the file"
                    .to_owned());
            }
            document => document.settings,
        }
        .checked()
    }

    fn checked(self) -> Result<Self, String> {
        for limit in &self.limits.limits {
            let named = class_header(limit);
            let trusted = |header: &str| {
                self.own.trust_headers.iter().any(|it| it.as_str().eq_ignore_ascii_case(header))
            };
            if let Some(header) = named.filter(|header| !trusted(header)) {
                let (limit, header) = (printable(limit.name.as_bytes()), printable(header.as_bytes()));
                return Err(format!(
                    "limit `{limit}`: any client can write the header `{header}`, which names the class of the caller: \
                     let a filter before this one set it or remove it, and say so with trust-headers = [\"{header}\"]"
                ));
            }
        }
        let of_limits = self.limits.limits.iter().flat_map(facts);
        let facts: Vec<Fact> = of_limits.chain(self.limits.except.iter().flat_map(facts_of_scope)).collect();
        let headers = facts.iter().flat_map(|fact| match fact {
            Fact::Host => vec![HOST.as_str()],
            other => other.headers(),
        });
        let of_client = match &self.limits.forwarded_field {
            ForwardedField::Single(header) if facts.contains(&Fact::Ip) => {
                field_watch(&self.limits).map(|_| header.as_str())
            }
            _ => None,
        };
        let read: BTreeSet<&str> = headers.chain(of_client).collect();
        let OwnSettings { trust_headers, route_metadata, .. } = &self.own;
        unread("trust-headers", trust_headers, &read)?;
        unread("route-metadata", route_metadata.iter().map(|(header, _)| header), &read)?;
        if self.own.dynamic_metadata.as_ref().is_some_and(String::is_empty) {
            return Err("dynamic-metadata is empty: expected a namespace, such as tollgate.edge".to_owned());
        }
        if self.own.state.as_ref().is_some_and(|path| path.file_name().is_none()) {
            return Err("state names no file: expected a path, such as /var/lib/envoy/edge.state".to_owned());
        }
        Ok(self)
    }
}

/// Checks the headers of a setting.
///
/// # Errors
///
/// Returns an error if a header stands twice, or if neither a limit nor `except` reads it. Such a
/// header is most likely misspelled, and the header that was meant is then left to the clients.
fn unread<'h>(
    setting: &str,
    headers: impl IntoIterator<Item = &'h HeaderName>,
    read: &BTreeSet<&str>,
) -> Result<(), String> {
    let mut earlier = BTreeSet::new();
    for header in headers {
        if !earlier.insert(header.as_str()) {
            return Err(format!("{setting} has `{header}` twice, in any case: expected each header once"));
        }
        if !read.contains(header.as_str()) {
            let known = read.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() { "they read none".to_owned() } else { known };
            return Err(format!(
                "{setting} has `{header}`, which neither a limit nor `except` reads: expected a header that they read \
                 ({known}); correct the name, or leave it out"
            ));
        }
    }
    Ok(())
}

fn text<'t>(bytes: &'t [u8], name: &str) -> Result<&'t str, String> {
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|&byte| byte == b'\n').count();
        format!("{name}, line {line}: a byte that is not UTF-8: expected TOML or JSON in UTF-8")
    })
}

/// The content of a settings text.
struct Document {
    settings: Settings,
    file: Option<String>,
    /// Whether `file` is the only setting in the text.
    is_alone: bool,
}

impl Document {
    fn parse(text: &str, name: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('{') { Self::json(text, name) } else { Self::toml(text, name) }
    }

    fn json(text: &str, name: &str) -> Result<Self, String> {
        let wrong = |error: &dyn Display| format!("{name}: {error}");
        let document = serde_json::from_str(text).map_err(|error| wrong(&error))?;
        // The text begins with a brace.
        let StrictValue(serde_json::Value::Object(mut all)) = document else {
            return Err(wrong(&"expected a table"));
        };
        let field = all.get("forwarded-field").and_then(serde_json::Value::as_str).map(str::to_owned);
        if let Some(why) = all.keys().find_map(|setting| not_here(setting, field.as_deref())) {
            return Err(wrong(&why));
        }
        if let Some(why) = misfit(all.keys()) {
            return Err(wrong(&why));
        }
        let file = all.remove("file");
        let mut take = |names: &[&str]| -> serde_json::Map<_, _> {
            names.iter().filter_map(|&setting| all.remove_entry(setting)).collect()
        };
        let (own, store) = (take(&OWN), take(&program::SETTINGS));
        let is_alone = own.is_empty() && store.is_empty() && all.is_empty();
        type Table = serde_json::Map<String, serde_json::Value>;
        fn read<T: DeserializeOwned>(all: Table) -> Result<T, String> {
            let read = |all: Table| serde_json::from_value(whole(all.into()));
            read(all.clone()).map_err(|error| {
                // The error does not name the setting that it is about.
                let wrong = all.into_iter().find(|one| read(Table::from_iter([one.clone()])).is_err());
                wrong.map_or_else(|| error.to_string(), |(setting, _)| format!("`{setting}`: {error}"))
            })
        }
        let parsed = || {
            let file =
                file.map(|file| serde_json::from_value(file).map_err(|error| format!("`file`: {error}")));
            let (file, store) = (file.transpose()?, read::<RedisSettings>(store)?);
            let settings = Settings { limits: read(all)?, own: read(own)?, shared: store.store() };
            Ok(Self { settings, file, is_alone })
        };
        parsed().map_err(|error: String| wrong(&error))
    }

    fn toml(text: &str, name: &str) -> Result<Self, String> {
        let wrong = |error: &toml::de::Error, start: usize| {
            let at = error.span().map_or(start, |span| span.start).min(text.len());
            let line = text.as_bytes()[..at].split(|&byte| byte == b'\n').count();
            format!("{name}, line {line}: {}", error.message())
        };
        let document = DeTable::parse(text).map_err(|error| wrong(&error, 0))?;
        let span = document.span();
        let mut all = document.into_inner();
        let field = all.get("forwarded-field").and_then(|field| field.get_ref().as_str());
        let unknown =
            all.keys().find_map(|setting| Some((setting.span(), not_here(setting.get_ref(), field)?)));
        if let Some((span, why)) = unknown {
            let line = text.as_bytes()[..span.start].split(|&byte| byte == b'\n').count();
            return Err(format!("{name}, line {line}: {why}"));
        }
        if let Some(why) = misfit(all.keys().map(Spanned::get_ref)) {
            return Err(format!("{name}: {why}"));
        }
        let file = all.remove("file");
        let mut take = |names: &[&str]| {
            let mut taken = DeTable::new();
            for &setting in names {
                if let Some((key, value)) = all.remove_entry(setting) {
                    taken.insert(key, value);
                }
            }
            taken
        };
        let (own, store) = (take(&OWN), take(&program::SETTINGS));
        let is_alone = own.is_empty() && store.is_empty() && all.is_empty();
        fn read<T: DeserializeOwned>(value: Spanned<DeValue<'_>>) -> Result<T, toml::de::Error> {
            T::deserialize(ValueDeserializer::from(value))
        }
        let table = |table| Spanned::new(span.clone(), DeValue::Table(table));
        let parsed = || {
            let file = file.map(read).transpose()?;
            let store: RedisSettings = read(table(store))?;
            let settings =
                Settings { limits: read(table(all))?, own: read(table(own))?, shared: store.store() };
            Ok(Self { settings, file, is_alone })
        };
        parsed().map_err(|error| wrong(&error, 0))
    }
}

/// Returns why this module refuses a setting of `tollgate proxy`, or `None` if it accepts the
/// setting. `field` is the value of `forwarded-field`.
fn not_here(setting: &str, field: Option<&str>) -> Option<String> {
    if OF_PROXIES.contains(&setting) {
        let is_list =
            |field: &str| matches!(field.parse(), Ok(field) if !matches!(field, ForwardedField::Single(_)));
        return field.is_none_or(is_list).then(|| {
            format!(
                "`{setting}` is not for Envoy, which finds the address of the client itself: set use_remote_address \
                 and xff_num_trusted_hops of its connection manager, and leave `{setting}` out, except with a \
                 forwarded-field that has one address, such as cf-connecting-ip"
            )
        });
    }
    let shown = printable(setting.as_bytes());
    let known = || OF_LAYER.into_iter().chain(OWN).chain(program::SETTINGS).chain(OF_PROXIES);
    let is_known = known().any(|it| it == setting);
    (!is_known).then(|| {
        format!("unknown setting `{shown}`: expected one of {}", known().collect::<Vec<_>>().join(", "))
    })
}

/// A JSON value in which each key of a table stands once and has a value.
/// [`serde_json::Value`] would drop all but the last value of a key, and null would count as a
/// setting that is left out.
struct StrictValue(serde_json::Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = serde_json::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value in JSON")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(serde_json::Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(StrictValue(value)) = values.next_element()? {
            all.push(value);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut all = serde_json::Map::new();
        while let Some((key, StrictValue(value))) = entries.next_entry::<String, _>()? {
            let shown = printable(key.as_bytes());
            if value.is_null() {
                return Err(A::Error::custom(format!(
                    "`{shown}` has no value: give it one, or leave `{shown}` out"
                )));
            }
            if all.insert(key, value).is_some() {
                return Err(A::Error::custom(format!("`{shown}` stands twice: expected it once")));
            }
        }
        Ok(all.into())
    }
}

/// Converts whole numbers in a value to integers. A `google.protobuf.Struct` contains only
/// floating-point numbers.
fn whole(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(number) => {
            let float = number.as_f64().filter(|_| number.is_f64());
            #[allow(clippy::cast_possible_truncation)]
            let integer = float.filter(|it| it.fract() == 0.0 && it.abs() < 9e15).map(|it| it as i64);
            integer.map_or(Value::Number(number), Value::from)
        }
        Value::Array(values) => values.into_iter().map(whole).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (key, whole(value))).collect(),
        other => other,
    }
}
