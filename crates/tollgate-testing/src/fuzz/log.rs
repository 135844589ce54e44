//! Tests the log reader of `tollgate replay` with arbitrary bytes as a log. The reader must count
//! every line exactly once.

use super::input::Input;
use tollgate_cli::failure::Failure;
use tollgate_cli::replay::progress::Progress;
use tollgate_cli::replay::report::write_text;
use tollgate_cli::replay::{Cost, Format, Replay, Settings, TimeUnit, Wanted};

/// Uses the first bytes as the arguments and the remaining bytes as the log.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let keys = ["ip", "path", "user", "user-agent", "status", "nonsense"];
    let arguments = input.byte();
    let key = match input.below(keys.len() + 1) {
        6 => vec!["ip".to_owned(), "path".to_owned()],
        one => vec![keys[one].to_owned()],
    };
    let names = match arguments & 1 {
        0 => Vec::new(),
        _ => vec![("ip".to_owned(), "remote_addr".to_owned()), ("time".to_owned(), "ts".to_owned())],
    };
    let unit = [TimeUnit::Seconds, TimeUnit::Millis, TimeUnit::Micros, TimeUnit::Nanos][input.below(4)];
    let wanted = Wanted {
        key,
        ipv6_prefix: 64,
        trust_hops: (arguments & 64 != 0).then_some(2),
        templates: None,
        cost: if arguments & 4 == 0 { Cost::One } else { Cost::Bytes },
        names,
        unit,
    };
    let mut settings =
        Settings::of_quota("3/s burst 5".parse().expect("a quota"), 4, wanted).expect("a limit");
    settings.compare = arguments & 2 != 0;
    settings.log.format = Format::ALL.get(input.below(Format::ALL.len() + 1)).map(|(format, _)| *format);
    settings.sort = arguments & 8 != 0;
    settings.log.strict = arguments & 16 != 0;
    settings.top = 3;
    let mut progress = Progress::new(None);
    let mut read = || -> Result<_, Failure> {
        let mut replay = Replay::new(&settings)?;
        replay.read(0, input.0, &mut progress)?;
        replay.finish(&mut progress)
    };
    match read() {
        Ok(report) => {
            let figures = serde_json::to_value(&report).expect("a report is JSON");
            let count = |name: &str| figures["log"]["files"][0][name].as_u64().expect(name);
            let kinds = ["requests", "unparsable", "blank", "header"].map(count);
            assert_eq!(count("lines"), kinds.iter().sum::<u64>(), "{figures}");
            let mut text = Vec::new();
            write_text(&report, &mut text).expect("memory can be written");
            assert!(
                !text.contains(&0x1b) && String::from_utf8(text).is_ok(),
                "what a log says is made printable"
            );
        }
        Err(Failure::Refused(message)) => assert!(!message.is_empty()),
        Err(Failure::ReaderLeft | Failure::Logged) => panic!("nobody reads"),
    }
}
