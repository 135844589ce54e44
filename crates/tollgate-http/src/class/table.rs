//! A table of keys and networks with their classes. It is built from a list, or from a file with
//! lines such as `k-7f3a,paid` and `203.0.113.0/24,blocked`.
//!
//! A row contains a value for each part of the key, followed by the class. The parts are stored in
//! the same form as in a request's key, so that one lookup finds a key. Finding a network takes one
//! lookup for each prefix length in the table, starting with the longest.

use crate::client::address;
use crate::client::forwarded::network;
use crate::error::Fault;
use crate::key::by::How;
use crate::key::known::{self, MAX_FILE};
use crate::key::parts::KeyPart;
use crate::text::printable::printable;
use csv_core::{ReadRecordResult, Reader};
use ipnet::IpNet;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

/// The maximum number of values in a row.
const MAX_VALUES: usize = 32;

/// The class of each key and of each network.
pub(crate) struct Table {
    names: Vec<String>,
    keys: HashMap<Box<[KeyPart<'static>]>, usize>,
    /// The networks for each alternative of the key, grouped by prefix length.
    networks: Vec<Lengths>,
    /// The values of each part of each alternative, as written in the rows.
    values: Vec<Vec<Vec<Box<[u8]>>>>,
}

/// Networks of one family, the longest prefixes first.
type Lengths = Vec<(u8, HashMap<IpNet, usize>)>;

/// A row's key, in the same form as a request's key.
enum Target {
    Key(Box<[KeyPart<'static>]>),
    Network(IpNet),
}

impl Table {
    /// Creates a table of keys that have one part.
    ///
    /// # Errors
    ///
    /// Returns an error if keys of this kind cannot be listed, if the list is empty, or if a key is
    /// listed twice.
    pub(super) fn list(how: &How, pairs: impl Iterator<Item = (Box<[u8]>, String)>) -> Result<Self, Fault> {
        let mut table = Self::new(how)?;
        for (number, (key, class)) in (1..).zip(pairs) {
            table
                .add(how, &[&key], class)
                .map_err(|why| refused(format!("key {number} of the list {why}")))?;
        }
        table.checked("the list")
    }

    /// Reads a file of keys and classes. `how` specifies how a request's key is found.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or contains no key, if a line is not a valid
    /// row, or if a key is listed twice.
    pub(crate) fn read(path: &Path, how: &How) -> Result<Self, Fault> {
        let name = format!("the file `{}`", printable(path.as_os_str().as_encoded_bytes()));
        let mut table = Self::new(how)?;
        let text = known::read(path).map_err(|error| {
            refused(format!("{name} cannot be read ({error}): expected a text with lines `key,class`"))
        })?;
        if text.len() as u64 > MAX_FILE {
            let most = MAX_FILE >> 20;
            return Err(refused(format!(
                "{name} is larger than {most} MiB: expected lines `key,class`; leave keys out that have the default class"
            )));
        }
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii)) {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let row = |why: String| refused(format!("line {number} of {name} {why}"));
            let mut values = values(line).map_err(row)?;
            let class = values.pop().and_then(|class| String::from_utf8(class).ok()).unwrap_or_default();
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            if class.is_empty() || values.iter().any(|value| value.is_empty()) {
                // The message omits the key, which is a secret.
                return Err(row(
                    "is not `key,class`: expected a key, a comma, and a class or a quota; `default` is the class of \
                     all that are not listed"
                        .to_owned(),
                ));
            }
            table.add(how, &values, class).map_err(row)?;
        }
        table.checked(&name)
    }

    fn new(how: &How) -> Result<Self, Fault> {
        let alternatives = alternatives(how);
        if let Some(how) = alternatives.iter().flatten().find(|how| !has_values(how)) {
            return Err(refused(format!(
                "the class of a key by {how:?}: expected a key by address, header, query parameter, path or \
                 method, whose values a list can have"
            )));
        }
        let values = alternatives.iter().map(|parts| vec![Vec::new(); parts.len()]).collect();
        let networks = alternatives.iter().map(|_| Vec::new()).collect();
        Ok(Self { names: Vec::new(), keys: HashMap::new(), networks, values })
    }

    /// Adds a row. Returns an error that describes the mistake if the row is not valid.
    fn add(&mut self, how: &How, values: &[&[u8]], class: String) -> Result<(), String> {
        let alternatives = alternatives(how);
        // If a part of the key is an address, a value that can be parsed as an address belongs to
        // that part.
        let addresses = |parts: &[&How]| parts.iter().filter(|part| part.ipv6_prefix().is_some()).count();
        let fits = alternatives.iter().enumerate().filter(|(_, parts)| parts.len() == values.len());
        let best = fits.max_by_key(|(number, parts)| {
            (target(parts, None, values).is_ok(), addresses(parts), usize::MAX - number)
        });
        let Some((number, parts)) = best else {
            let counts: BTreeSet<usize> = alternatives.iter().map(Vec::len).collect();
            let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
            return Err(format!(
                "has {} values before its class: expected {}, one for each part of the key; a value that has a \
                 comma stands in double quotes",
                values.len(),
                counts.join(" or ")
            ));
        };
        let which = u8::try_from(number).ok().filter(|_| alternatives.len() > 1).map(KeyPart::Alternative);
        let class = match self.names.iter().position(|name| *name == class) {
            Some(place) => place,
            None => {
                self.names.push(class);
                self.names.len() - 1
            }
        };
        let earlier = match target(parts, which, values)? {
            Target::Key(key) => self.keys.insert(key, class),
            Target::Network(network) => {
                let lengths = &mut self.networks[number];
                let length = network.prefix_len();
                let place = match lengths.binary_search_by(|(other, _)| length.cmp(other)) {
                    Ok(place) => place,
                    Err(place) => {
                        lengths.insert(place, (length, HashMap::new()));
                        place
                    }
                };
                lengths[place].1.insert(network, class)
            }
        };
        if earlier.is_some() {
            return Err(
                "is there twice, so its class is not known: expected each key once; leave one of them out"
                    .to_owned(),
            );
        }
        for (place, value) in values.iter().enumerate() {
            self.values[number][place].push((*value).into());
        }
        Ok(())
    }

    fn checked(self, name: &str) -> Result<Self, Fault> {
        if self.names.is_empty() {
            return Err(refused(format!(
                "{name} has 0 keys, so all requests would be of the default class: expected at least 1"
            )));
        }
        Ok(self)
    }

    /// Returns the class of a key with these parts.
    pub(super) fn class<'k>(&self, key: &[KeyPart<'k>]) -> Option<&str> {
        let keys: &HashMap<Box<[KeyPart<'k>]>, usize> = &self.keys;
        let class = match *key {
            [KeyPart::Address(address)] => self.class_of_address(0, address),
            [KeyPart::Alternative(number), KeyPart::Address(address)] => {
                self.class_of_address(number.into(), address)
            }
            _ => keys.get(key).copied(),
        };
        class.map(|class| self.names[class].as_str())
    }

    fn class_of_address(&self, alternative: usize, address: IpAddr) -> Option<usize> {
        let lengths = self.networks.get(alternative)?;
        lengths.iter().find_map(|(length, networks)| {
            let network = IpNet::new(address, *length).ok()?;
            networks.get(&network.trunc()).copied()
        })
    }

    /// Returns the names of the classes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Returns all values for one part of one of the key's alternatives.
    pub(crate) fn values(&self, alternative: usize, part: usize) -> Vec<Box<[u8]>> {
        self.values[alternative][part].clone()
    }
}

/// Returns the parts of each alternative of a key.
fn alternatives(how: &How) -> Vec<Vec<&How>> {
    fn parts(how: &How) -> Vec<&How> {
        match how {
            How::And(hows) => hows.iter().collect(),
            how => vec![how],
        }
    }
    match how {
        How::Or(hows) => hows.iter().map(parts).collect(),
        how => vec![parts(how)],
    }
}

/// Returns whether values of this part can be written in a list.
fn has_values(how: &How) -> bool {
    !matches!(how, How::Extension { .. } | How::Closure(_) | How::Or(_) | How::And(_))
}

/// Parses a row into a key or a network. Returns an error that describes the mistake if the row is
/// not valid.
fn target(parts: &[&How], which: Option<KeyPart<'static>>, values: &[&[u8]]) -> Result<Target, String> {
    let only = if let [part] = parts { part.ipv6_prefix() } else { None };
    if let (Some(prefix), [value]) = (only, values) {
        return network_of(value, prefix).map(Target::Network);
    }
    let part = |(part, value): (&&How, &&[u8])| match part.ipv6_prefix() {
        Some(prefix) => {
            let address = std::str::from_utf8(value).ok().and_then(address::parse_node);
            let is_network = value.contains(&b'/');
            address.map(|address| KeyPart::address(address, prefix)).ok_or_else(|| {
                let found = printable(value);
                if is_network {
                    format!(
                        "has the network `{found}` in a key of several parts: expected an address; only a key by \
                         address alone can be a network"
                    )
                } else {
                    format!("has `{found}` where the key has an address: expected an address such as 192.0.2.1")
                }
            })
        }
        None => Ok(KeyPart::from(Cow::Owned(part.listed((*value).into()).into_vec()))),
    };
    let parts: Result<Vec<_>, String> = parts.iter().zip(values).map(part).collect();
    Ok(Target::Key(which.into_iter().chain(parts?).collect()))
}

/// Parses a value as a network. An IPv6 address stands for its client's whole network.
fn network_of(value: &[u8], ipv6_prefix: u8) -> Result<IpNet, String> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    let shown = || printable(value);
    if let Some(address) = address::parse_node(text) {
        let length = if address.is_ipv4() { 32 } else { ipv6_prefix };
        return IpNet::new(address, length).map(|network| network.trunc()).map_err(|error| error.to_string());
    }
    let network = network(text).map_err(|_| {
        format!(
            "has `{}` where the key is an address: expected an address, or a network such as 203.0.113.0/24",
            shown()
        )
    })?;
    match network {
        IpNet::V6(v6) if v6.prefix_len() > ipv6_prefix => Err(format!(
            "has the network `{}`, but clients are told apart by the first {ipv6_prefix} bits of an IPv6 address: \
             expected a prefix of at most {ipv6_prefix}",
            shown()
        )),
        network => Ok(network.trunc()),
    }
}

/// Returns the values of a line, without the spaces around them.
fn values(line: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut reader = Reader::new();
    let (mut output, mut ends) = (vec![0; line.len() + 1], [0; MAX_VALUES + 1]);
    let mut written = 0;
    let mut count = 0;
    let mut input = line;
    loop {
        let (result, read, wrote, found) =
            reader.read_record(input, &mut output[written..], &mut ends[count..]);
        input = &input[read..];
        written += wrote;
        count += found;
        match result {
            // An empty input ends the record.
            ReadRecordResult::InputEmpty => {}
            ReadRecordResult::Record => break,
            ReadRecordResult::OutputEndsFull | ReadRecordResult::OutputFull | ReadRecordResult::End => {
                return Err(format!("has more than {MAX_VALUES} values"));
            }
        }
    }
    if !input.is_empty() {
        return Err("has a line break within a value: expected one row a line".to_owned());
    }
    let mut from = 0;
    Ok(ends[..count]
        .iter()
        .map(|&end| {
            let value = output[from..end].trim_ascii().to_vec();
            from = end;
            value
        })
        .collect())
}

fn refused(why: String) -> Fault {
    Fault::KeyClasses { why }
}

/// Keys are secrets, so only their number is shown.
impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks = self.networks.iter().flatten().map(|(_, networks)| networks.len());
        write!(f, "{} keys", self.keys.len() + networks.sum::<usize>())
    }
}
