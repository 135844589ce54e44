//! Keys in a file, through serde: `["api",[{"ip":"192.0.2.1"},{"text":"k-7f3a"}]]`.

use super::parts::{Key, KeyPart};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::net::IpAddr;

/// A part of a key in a file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredPart<'a> {
    Ip(IpAddr),
    Text(Cow<'a, str>),
    /// Bytes that are not UTF-8.
    Bytes(Cow<'a, [u8]>),
    Number(u64),
    Alternative(u8),
    Missing,
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts = self.parts().iter().map(|part| match part {
            KeyPart::Address(address) => StoredPart::Ip(*address),
            KeyPart::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => StoredPart::Text(text.into()),
                Err(_) => StoredPart::Bytes(bytes.as_ref().into()),
            },
            KeyPart::Number(number) => StoredPart::Number(*number),
            KeyPart::Alternative(which) => StoredPart::Alternative(*which),
            KeyPart::Missing => StoredPart::Missing,
        });
        (self.limit_name(), parts.collect::<Vec<_>>()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (limit, parts) = <(Cow<'_, str>, Vec<StoredPart<'_>>)>::deserialize(deserializer)?;
        let parts = parts.into_iter().map(|part| match part {
            StoredPart::Ip(address) => KeyPart::from(address),
            StoredPart::Text(text) => KeyPart::from(text.into_owned()),
            StoredPart::Bytes(bytes) => KeyPart::from(bytes),
            StoredPart::Number(number) => KeyPart::Number(number),
            StoredPart::Alternative(which) => KeyPart::Alternative(which),
            StoredPart::Missing => KeyPart::Missing,
        });
        Ok(Self::new(&limit, parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_each_kind_comes_back() {
        let parts = [
            KeyPart::Alternative(3),
            IpAddr::from([192, 0, 2, 1]).into(),
            "2001:db8::".parse::<IpAddr>().unwrap().into(),
            "".into(),
            "grüß \"dich\"\n".into(),
            (&b"\xff\0"[..]).into(),
            u64::MAX.into(),
            KeyPart::Missing,
        ];
        for length in 0..=parts.len() {
            let key = Key::new("a \"limit\"", parts[..length].iter().cloned());
            let stored = serde_json::to_string(&key).unwrap();
            assert_eq!(serde_json::from_str::<Key>(&stored).unwrap(), key, "{stored}");
        }
        let key = Key::new("api", [KeyPart::from(IpAddr::from([192, 0, 2, 1])), "k-7f3a".into()]);
        assert_eq!(serde_json::to_string(&key).unwrap(), r#"["api",[{"ip":"192.0.2.1"},{"text":"k-7f3a"}]]"#);
    }
}
