//! Tests the log formats that `tollgate replay` supports. A log's first lines determine its format,
//! even if the lines are wrapped. The samples are in the form that each server documents. A client
//! must not be able to keep its request out of a report.

use crate::program::{LOG, cri, json, json_of, refusal_of, replay_stdin, text_of};
use proptest::prelude::*;
use std::fs;
use tollgate_cli::replay::progress::Progress;
use tollgate_cli::replay::{Cost, Replay, Settings, TimeUnit, Wanted};

/// A format, a log of two requests in this format, and the values of further fields in the first
/// request. The first request is from 192.0.2.17 for /a?b=c at 10:05:03 on 17 May 2015.
type Sample = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const SAMPLES: [Sample; 16] = [
    (
        "common",
        "192.0.2.17 - frank [17/May/2015:10:05:03 +0000] \"GET /a?b=c HTTP/1.1\" 200 2326\n\
            192.0.2.18 - - [17/May/2015:10:05:04 +0000] \"GET / HTTP/1.1\" 304 -\n",
        &[("user", "frank"), ("protocol", "HTTP/1.1"), ("status", "200"), ("bytes", "2326")],
    ),
    (
        "combined",
        "192.0.2.17 - - [17/May/2015:10:05:03 +0000] \"GET /a?b=c HTTP/1.1\" 200 2326 \"https://a.example/\" \
            \"Mozilla/5.0 (X11)\"\n192.0.2.18 - - [17/May/2015:10:05:04 +0000] \"GET / HTTP/1.1\" 304 - \"-\" \"-\"\n",
        &[("referer", "https://a.example/"), ("user-agent", "Mozilla/5.0 (X11)")],
    ),
    // The text format of Traefik.
    (
        "combined",
        "192.0.2.17 - - [17/May/2015:10:05:03 +0000] \"GET /a?b=c HTTP/1.1\" 200 2326 \"-\" \"-\" 1 \"web@docker\" \
            \"http://10.0.0.2:80\" 3ms\n192.0.2.18 - - [17/May/2015:10:05:04 +0000] \"GET / HTTP/1.1\" 304 0 \"-\" \"-\" 2 \
            \"web@docker\" \"http://10.0.0.2:80\" 1ms\n",
        &[("status", "200")],
    ),
    (
        "nginx-main",
        "192.0.2.17 - - [17/May/2015:10:05:03 +0000] \"GET /a?b=c HTTP/1.1\" 200 2326 \"-\" \"curl/8\" \
            \"203.0.113.9, 10.0.0.1\"\n192.0.2.18 - - [17/May/2015:10:05:04 +0000] \"GET / HTTP/1.1\" 304 0 \"-\" \"-\" \
            \"-\"\n",
        &[("forwarded", "203.0.113.9, 10.0.0.1"), ("user-agent", "curl/8")],
    ),
    (
        "vhost-combined",
        "a.example:443 192.0.2.17 - - [17/May/2015:10:05:03 +0000] \"GET /a?b=c HTTP/1.1\" 200 2326 \"-\" \"curl\"\n\
            b.example:443 192.0.2.18 - - [17/May/2015:10:05:04 +0000] \"GET / HTTP/1.1\" 304 - \"-\" \"-\"\n",
        &[("host", "a.example:443"), ("user-agent", "curl")],
    ),
    (
        "vhost-common",
        "a.example 192.0.2.17 - - [17/May/2015:10:05:03 +0000] \"GET /a?b=c HTTP/1.1\" 200 2326\n\
            b.example 192.0.2.18 - - [17/May/2015:10:05:04 +0000] \"GET / HTTP/1.1\" 304 -\n",
        &[("host", "a.example"), ("bytes", "2326")],
    ),
    (
        "alb",
        "https 2015-05-17T10:05:03.000000Z app/web/50dc6c495c0c9188 192.0.2.17:2817 10.0.0.1:80 0.086 0.048 0.037 200 \
            200 0 57 \"GET https://www.example.com:443/a?b=c HTTP/1.1\" \"curl/7.46.0\" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 \
            arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/web/73e2d6bc24d8a067 \
            \"Root=1-58337281-1d84f3d73c47ec4e58577259\" \"www.example.com\" \"arn:aws:acm:us-east-2:123456789012:certificate/1\" \
            1 2015-05-17T10:05:02.364000Z \"forward\" \"-\" \"-\" \"10.0.0.1:80\" \"200\" \"-\" \"-\"\n\
            http 2015-05-17T10:05:04.186641Z app/web/50dc6c495c0c9188 192.0.2.18:2817 - -1 -1 -1 502 - 34 366 \
            \"GET http://www.example.com:80/ HTTP/1.1\" \"-\" - - - \"-\" \"-\" \"-\" 0 2015-05-17T10:05:04Z \"forward\" \"-\" \"-\" \
            \"-\" \"-\" \"-\" \"-\"\n",
        &[("status", "200"), ("bytes", "57"), ("user-agent", "curl/7.46.0"), ("type", "https")],
    ),
    (
        "haproxy",
        "192.0.2.17:33317 [17/May/2015:10:05:03.000] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 \
            {a.example|Mozilla/5.0 (X11)} {} \"GET /a?b=c HTTP/1.1\"\n\
            192.0.2.18:34548 [17/May/2015:10:05:04.655] px-http px-http/<NOSRV> -1/-1/-1/-1/+8490 400 +187 - - CR-- 2/2/2/0/0 \
            0/0 \"<BADREQ>\"\n",
        &[("status", "200"), ("bytes", "2750"), ("frontend", "http-in"), ("duration", "109")],
    ),
    // CloudFront.
    (
        "w3c",
        "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status \
            cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type x-host-header time-taken x-forwarded-for\n\
            2015-05-17\t10:05:03\tLAX1\t2390282\t192.0.2.17\tGET\td111111abcdef8.cloudfront.net\t/a\t200\t-\t\
            Mozilla/5.0%20(X11)\tb=c\t-\tHit\twww.example.com\t0.001\t-\n\
            2015-05-17\t10:05:04\tLAX1\t2390282\t192.0.2.18\tGET\td111111abcdef8.cloudfront.net\t/\t200\t-\t-\t-\t-\tHit\t\
            www.example.com\t0.001\t-\n",
        &[
            ("host", "www.example.com"),
            ("bytes", "2390282"),
            ("x-edge-result-type", "Hit"),
            ("duration", "0.001"),
        ],
    ),
    // IIS.
    (
        "w3c",
        "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n#Date: 2015-05-17 10:05:03\n\
            #Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) \
            sc-status sc-substatus sc-win32-status time-taken\n\
            2015-05-17 10:05:03 10.0.0.5 GET /a b=c 443 - 192.0.2.17 Mozilla/5.0+(Windows+NT+10.0) - 200 0 0 46\n\
            #Software: Microsoft Internet Information Services 10.0\n#Fields: date time c-ip cs-method cs-uri-stem cs-uri-query \
            sc-status cs-username cs(User-Agent) sc-substatus time-taken\n\
            2015-05-17 10:05:04 192.0.2.18 GET / - 200 - - 0 1\n",
        &[("user-agent", "Mozilla/5.0+(Windows+NT+10.0)"), ("sc-substatus", "0"), ("duration", "46")],
    ),
    (
        "envoy",
        "[2015-05-17T10:05:03.000Z] \"GET /a?b=c HTTP/2\" 204 - 154 0 226 100 \"10.0.35.28\" \"nsq2http\" \
            \"cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2\" \"locations\" \"tcp://10.0.2.1:80\"\n\
            [2015-05-17T10:05:04.310Z] \"- - HTTP/1.1\" 0 DC 0 0 1 - \"-\" \"-\" \"-\" \"-\" \"-\"\n",
        &[
            ("forwarded", "10.0.35.28"),
            ("host", "locations"),
            ("user-agent", "nsq2http"),
            ("duration", "226"),
        ],
    ),
    (
        "caddy",
        "{\"level\":\"info\",\"ts\":1431857100,\"logger\":\"tls\",\"msg\":\"cleaning storage unit\"}\n\
            {\"level\":\"info\",\"ts\":1431857103.000,\"logger\":\"http.log.access\",\"msg\":\"handled request\",\"request\":\
            {\"remote_ip\":\"10.0.0.9\",\"remote_port\":\"41342\",\"client_ip\":\"192.0.2.17\",\"proto\":\"HTTP/2.0\",\
            \"method\":\"GET\",\"host\":\"localhost\",\"uri\":\"/a?b=c\",\"headers\":{\"User-Agent\":[\"curl/7.82.0\"],\
            \"Accept\":[\"*/*\"]},\"tls\":{\"resumed\":false}},\"bytes_read\":0,\"user_id\":\"\",\"duration\":0.000929675,\
            \"size\":10900,\"status\":200,\"resp_headers\":{\"Server\":[\"Caddy\"]}}\n\
            {\"level\":\"info\",\"ts\":1431857104.1,\"logger\":\"http.log.access\",\"msg\":\"handled request\",\"request\":\
            {\"remote_ip\":\"10.0.0.9\",\"client_ip\":\"192.0.2.18\",\"method\":\"GET\",\"uri\":\"/\",\"headers\":{}},\"size\":0,\
            \"duration\":0,\"status\":200}\n",
        &[("host", "localhost"), ("bytes", "10900"), ("user-agent", "curl/7.82.0"), ("status", "200")],
    ),
    // The log format before version 2.5.
    (
        "caddy",
        "{\"level\":\"info\",\"ts\":1431857103,\"logger\":\"http.log.access\",\"msg\":\"handled request\",\"request\":\
            {\"remote_addr\":\"192.0.2.17:41342\",\"proto\":\"HTTP/2.0\",\"method\":\"GET\",\"host\":\"localhost\",\
            \"uri\":\"/a?b=c\",\"headers\":{\"User-Agent\":[\"curl/7.82.0\"]}},\"common_log\":\"192.0.2.17 - -\",\
            \"duration\":0.0009,\"size\":10900,\"status\":200}\n\
            {\"level\":\"info\",\"ts\":1431857104,\"request\":{\"remote_addr\":\"192.0.2.18:1\",\"method\":\"GET\",\
            \"uri\":\"/\"},\"size\":0,\"status\":200}\n",
        &[("host", "localhost"), ("user-agent", "curl/7.82.0"), ("protocol", "HTTP/2.0")],
    ),
    (
        "traefik",
        "{\"ClientAddr\":\"192.0.2.17:49236\",\"ClientHost\":\"192.0.2.17\",\"ClientPort\":\"49236\",\"ClientUsername\":\"-\",\
            \"DownstreamContentSize\":19,\"DownstreamStatus\":404,\"Duration\":98234,\"OriginContentSize\":0,\
            \"RequestAddr\":\"localhost\",\"RequestContentSize\":0,\"RequestHost\":\"localhost\",\"RequestMethod\":\"GET\",\
            \"RequestPath\":\"/a?b=c\",\"RequestPort\":\"-\",\"RequestProtocol\":\"HTTP/1.1\",\
            \"StartLocal\":\"2015-05-17T12:05:03+02:00\",\"StartUTC\":\"2015-05-17T10:05:03Z\",\"entryPointName\":\"web\",\
            \"level\":\"info\",\"msg\":\"\",\"request_User-Agent\":\"curl/8\",\"time\":\"2015-05-17T10:05:04Z\"}\n\
            {\"ClientHost\":\"192.0.2.18\",\"RequestMethod\":\"GET\",\"RequestPath\":\"/\",\"StartUTC\":\"2015-05-17T10:05:04Z\"}\n",
        &[("host", "localhost"), ("bytes", "19"), ("user-agent", "curl/8"), ("status", "404")],
    ),
    // The log of Istio.
    (
        "envoy-json",
        "{\"authority\":\"web.example\",\"bytes_received\":0,\"bytes_sent\":2326,\"downstream_local_address\":\"10.0.0.1:80\",\
            \"downstream_remote_address\":\"192.0.2.17:53910\",\"duration\":1,\"method\":\"GET\",\"path\":\"/a?b=c\",\
            \"protocol\":\"HTTP/1.1\",\"request_id\":\"1\",\"response_code\":200,\"response_flags\":\"-\",\
            \"start_time\":\"2015-05-17T10:05:03.000Z\",\"upstream_host\":\"10.0.0.2:80\",\"user_agent\":\"curl/8\",\
            \"x_forwarded_for\":null}\n\
            {\"start_time\":\"2015-05-17T10:05:04.000Z\",\"downstream_remote_address\":\"192.0.2.18:1\",\"method\":\"GET\",\
            \"path\":\"/\",\"response_code\":200}\n",
        &[("host", "web.example"), ("bytes", "2326"), ("user-agent", "curl/8"), ("status", "200")],
    ),
    // The log of Envoy Gateway.
    (
        "envoy-json",
        "{\"start_time\":\"2015-05-17T10:05:03.000Z\",\"method\":\"GET\",\"x-envoy-origin-path\":\"/a?b=c\",\
            \"protocol\":\"HTTP/1.1\",\"response_code\":\"200\",\"bytes_sent\":\"2326\",\"duration\":\"1\",\
            \"x-forwarded-for\":\"10.0.0.3\",\"user-agent\":\"curl/8\",\":authority\":\"web.example\",\
            \"downstream_remote_address\":\"192.0.2.17:53910\"}\n\
            {\"start_time\":\"2015-05-17T10:05:04.000Z\",\"method\":\"GET\",\"x-envoy-origin-path\":\"/\",\
            \"response_code\":\"200\",\"downstream_remote_address\":\"192.0.2.18:1\"}\n",
        &[("host", "web.example"), ("bytes", "2326"), ("forwarded", "10.0.0.3"), ("status", "200")],
    ),
];

/// Returns the log of a sample.
fn sample(format: &str) -> &'static str {
    SAMPLES.iter().find(|sample| sample.0 == format).expect("it is there").1
}

/// Returns the recognized format, and the keys of the requests.
#[track_caller]
fn keys(log: &[u8], key: &str, more: &[&str]) -> (String, Vec<String>) {
    let args = [&["--limit", "1/h", "--key", key][..], more].concat();
    let report = json_of(&args[..], log);
    let format = report["log"]["files"][0]["format"].as_str().unwrap_or_default().to_owned();
    let rows = text_of(&[&args[..], &["--decisions", "-"]].concat(), log);
    let mut reader = csv::Reader::from_reader(rows.as_bytes());
    (format, reader.records().map(|row| row.expect("a row")[1].to_owned()).collect())
}

/// Returns a report without its line ends.
fn flat(report: &str) -> String {
    report.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the name of the field that contains the address. Envoy's default format contains only a
/// forwarded address.
fn address_field(format: &str) -> &'static str {
    if format == "envoy" { "forwarded" } else { "ip" }
}

#[test]
fn each_format_is_recognized_by_its_first_lines_in_its_documented_form() {
    for (format, log, fields) in SAMPLES {
        let address = if format == "envoy" { "10.0.35.28" } else { "192.0.2.17" };
        let usual = [(address_field(format), address), ("path", "/a"), ("uri", "/a?b=c"), ("method", "GET")];
        for &(field, value) in usual.iter().chain(fields) {
            let (found, keys) = keys(log.as_bytes(), field, &[]);
            let value = match (format, field) {
                ("alb", "uri") => "https://www.example.com:443/a?b=c",
                _ => value,
            };
            assert_eq!((found.as_str(), keys[0].as_str()), (format, value), "{field} of {log}");
            assert_eq!(keys.len(), 2, "{field} of {log}");
        }
        // If the format is specified by name, the first request's time is parsed in the same way.
        let args =
            ["--limit", "1/h", "--key", address_field(format), "--log-format", format, "--format", "json"];
        let report = json(&replay_stdin(&args, log.as_bytes()));
        let first = report["log"]["first"].as_str().expect("a time");
        assert!(first.starts_with("2015-05-17T10:05:03"), "{first}: {log}");
    }
}

#[test]
fn limits_with_names_find_what_each_format_has() {
    for (format, log, _) in SAMPLES {
        let limit = match format {
            "envoy" => "a=1/h by header x-forwarded-for else allow for GET /a",
            _ => "a=1/h by ip for GET /a",
        };
        let report = json_of(&["--limit", limit], &log);
        assert_eq!(report["limits"][0]["classes"][0]["passed"], 1, "{log}: {report}");
    }
    let of = |format: &str| sample(format).as_bytes();
    for (format, limit) in [
        ("haproxy", "a=1 at once by ip"),
        ("envoy", "a=1 at once by path"),
        ("traefik", "a=1 at once by ip for host localhost"),
        ("caddy", "a=1/h by header user-agent else allow"),
        ("vhost-combined", "a=1/h by ip for host a.example"),
    ] {
        let report = json_of(&["--limit", limit], of(format));
        assert!(report["limits"][0]["classes"][0]["passed"].as_u64() >= Some(1), "{format}: {report}");
    }
    let message = refusal_of(&["--limit", "a=1/h by header x-key"], of("haproxy"));
    assert!(
        message.contains("--limit 'a' needs the header `x-key`") && message.contains("haproxy"),
        "{message}"
    );
    let message = refusal_of(&["--limit", "1/h"], of("envoy"));
    assert!(
        message.contains("unknown field 'ip': this envoy log has") && message.contains("forwarded"),
        "{message}"
    );
}

/// A wrapping's name, and a function that wraps a line.
type Wrapping = (&'static str, fn(&str) -> String);

/// Returns the wrappings of Docker, Kubernetes and syslog servers.
fn wrappings() -> [Wrapping; 6] {
    [
        ("docker", |line| {
            let line = serde_json::to_string(&format!("{line}\n")).expect("it is text");
            format!("{{\"log\":{line},\"stream\":\"stdout\",\"time\":\"2015-05-17T10:05:03.1Z\"}}\n")
        }),
        ("cri", |line| format!("2016-10-06T00:17:09.669794202Z stdout F {line}\n")),
        ("syslog", |line| format!("<190>Feb  6 12:14:14 web-1 nginx: {line}\n")),
        ("syslog file", |line| format!("Feb 16 12:14:14 localhost haproxy[14389]: {line}\n")),
        ("syslog iso", |line| format!("2015-05-17T10:05:03.123456+02:00 web-1 nginx[7]: {line}\n")),
        ("rfc 5424", |line| {
            format!("<165>1 2003-10-11T22:14:15.003Z web-1 nginx 7 ID47 [a@1 b=\"c\"] {line}\n")
        }),
    ]
}

#[test]
fn lines_that_docker_kubernetes_or_syslog_wrapped_are_unwrapped() {
    for (format, sample, _) in SAMPLES {
        let expected = keys(sample.as_bytes(), address_field(format), &[]);
        for (name, wrap) in wrappings() {
            let log: String = sample.lines().map(wrap).collect();
            assert_eq!(keys(log.as_bytes(), address_field(format), &[]), expected, "{name}: {log}");
        }
    }
    // In a wrapped log, an unwrapped line is a bad line, for which the report states the reason.
    let (_, wrap) = wrappings()[1];
    let log = SAMPLES[0].1.lines().map(wrap).collect::<String>() + SAMPLES[0].1;
    let report = text_of(&["--limit", "1/h"], &log);
    assert!(
        flat(&report).contains("as common: it does not begin with a time, a stream and a tag of CRI"),
        "{report}"
    );
}

#[test]
fn the_json_log_of_the_proxy_is_recognized_in_every_wrapping() {
    let line = |(second, key): (u64, &str)| {
        format!(
            "{{\"time_ns\":{second}000000000,\"duration_ns\":1,\"ip\":\"192.0.2.1\",\"method\":\"GET\",\"host\":null,\
             \"path\":\"/\",\"status\":200,\"bytes\":0,\"refused_by\":null,\"limits\":[{{\"limit\":\"a\",\"class\":null,\
             \"key\":\"{key}\",\"outcome\":\"allowed\"}}]}}\n"
        )
    };
    // The replay sorts the log of the proxy, so the last line is judged first.
    let log: String = [(7, "00"), (8, "01"), (6, "00")].into_iter().map(line).collect();
    let args = ["--limit", "a=1/h by header x-key", "--decisions", "-"];
    let expected = "line,key,allowed,remaining,retry_after_ns,refused_by,outcome\n3,00,true,0,0,,\n\
        1,00,false,0,3599000000000,a,denied\n2,01,true,0,0,,\n";
    for format in ["auto", "tollgate", "json"] {
        let args = [&args[..], &["--log-format", format]].concat();
        assert_eq!(text_of(&args, &log), expected, "{format}");
    }
    for (name, wrap) in wrappings() {
        let wrapped: String = log.lines().map(wrap).collect();
        assert_eq!(text_of(&args, &wrapped), expected, "{name}: {wrapped}");
    }
}

#[test]
fn parts_of_a_long_line_are_joined() {
    let agent = "x".repeat(40_000);
    let line =
        format!("192.0.2.17 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"{agent}\"");
    let short = line.replace(&agent, "y");
    let docker = |line: &str| -> String {
        let line = format!("{line}\n");
        let part = |part: &[u8]| {
            let part = serde_json::to_string(str::from_utf8(part).expect("ASCII")).expect("it is text");
            format!("{{\"log\":{part},\"stream\":\"stdout\",\"time\":\"2015-05-17T10:05:03.1Z\"}}\n")
        };
        line.as_bytes().chunks(16_384).map(part).collect()
    };
    let error = "2016-10-06T00:17:09.6Z stderr F an error\n";
    let mixed = cri(&line).replacen(
        "stdout P",
        &format!("stderr F an error\n{} stdout P", "2016-10-06T00:17:09.6Z"),
        2,
    );
    for (log, bad) in [
        (cri(&short) + &cri(&line), 0),
        (docker(&short) + &docker(&line), 0),
        (cri(&short) + error + &mixed, 3),
    ] {
        let report = json_of(&["--limit", "1/h", "--key", "user-agent"], &log);
        let count = |name: &str| report["log"][name].as_u64().expect("a count");
        assert_eq!((count("requests"), count("unparsable")), (2, bad), "{report}");
        assert_eq!(report["limits"][0]["keys"], 2, "{report}");
        let top = report["log"]["lines"].as_u64().expect("a count");
        assert_eq!(top, log.lines().count() as u64);
    }
}

/// Each part after the first begins in this user agent, and most of them with what could be the
/// address and the time of a record.
#[test]
fn a_client_that_writes_a_time_into_a_long_line_is_counted() {
    let short = "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"x\"";
    let first = format!("2016-10-06T00:17:09.6Z stdout F {short}\n");
    for shift in 0..35 {
        let agent = "x".repeat(shift) + &"x - - [17/May/2015:10:05:03 +0000] ".repeat(1_000);
        let line =
            format!("192.0.2.17 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"{agent}\"");
        let log = first.clone() + &cri(&line);
        let report = json_of(&["--limit", "1/h"], &log);
        assert_eq!(report["log"]["requests"], 2, "{shift} {report}");
        assert_eq!(report["log"]["unparsable"], 0, "{shift}");
    }
}

#[test]
fn a_split_line_whose_rest_is_missing_is_a_bad_line() {
    let clf = "192.0.2.17 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"";
    let object =
        "{\"ts\":1,\"request\":{\"remote_ip\":\"192.0.2.17\",\"method\":\"GET\",\"uri\":\"/\"},\"size\":0";
    let proxy = "{\"time_ns\":1,\"duration_ns\":1,\"ip\":\"192.0.2.1\",\"method\":\"GET\",\"host\":null,\"path\":\"/\",\
        \"refused_by\":null,\"limits\":[]";
    let part_of = |text: &str| cri(text).replace(" F ", " P ");
    let docker = |tag: &str, text: &str| {
        let end = if tag == "P" { "" } else { "\n" };
        let line = serde_json::to_string(&format!("{text}{end}")).expect("it is text");
        format!("{{\"log\":{line},\"stream\":\"stdout\",\"time\":\"2015-05-17T10:05:03.1Z\"}}\n")
    };
    let error = "2016-10-06T00:17:09.6Z stderr F an error\n";
    for (part, rest) in [(clf, "x\""), (object, ",\"a\":1}"), (proxy, ",\"a\":1}")] {
        let whole = format!("{part}{rest}");
        let [cri_whole, docker_whole] = [cri(&whole), docker("F", &whole)];
        let (cri_part, docker_part) = (part_of(part), docker("P", part));
        for (log, requests, bad) in [
            // The log ends before the rest of a line.
            (cri_whole.clone() + &cri_part, 1, 1),
            (docker_whole.clone() + &docker_part, 1, 1),
            (cri_whole.clone() + &cri_part + error, 1, 2),
            // Another line follows a part.
            (cri_whole.clone() + &cri_part + &cri_whole, 1, 1),
            (docker_whole.clone() + &docker_part + &docker_whole + &docker_whole, 2, 1),
            (cri_whole.clone() + &cri_part + &cri(rest), 2, 0),
        ] {
            let run = |args: &[&str]| {
                replay_stdin(
                    &[&["--limit", "a=9/h by ip", "--format", "json"], args].concat(),
                    log.as_bytes(),
                )
            };
            let report = json(&run(&[]));
            let count = |name: &str| report["log"][name].as_u64().expect("a count");
            assert_eq!((count("requests"), count("unparsable")), (requests, bad), "{log}: {report}");
            if bad > 0 {
                assert_eq!(run(&["--strict"]).status.code(), Some(2), "{log}");
            }
        }
    }
    let log = cri(&format!("{clf}x\"")) + &part_of(clf);
    let report = json_of(&["--limit", "9/h"], &log);
    let file = &report["log"]["files"][0];
    assert_eq!((&file["header"], &file["unparsable"]), (&0.into(), &1.into()), "{report}");
}

#[test]
fn a_list_of_addresses_counts_as_it_is_or_by_the_hops_that_are_trusted() {
    let line =
        |ip: &str| format!("{ip} - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"-\"\n");
    let log: String =
        ["203.0.113.9, 192.0.2.17, 10.0.0.1", "192.0.2.17", "evil text, 192.0.2.17, 10.0.0.1", "evil text"]
            .map(line)
            .concat();
    let whole =
        ["203.0.113.9, 192.0.2.17, 10.0.0.1", "192.0.2.17", "evil text, 192.0.2.17, 10.0.0.1", "evil text"];
    assert_eq!(keys(log.as_bytes(), "ip", &[]).1, whole);
    assert_eq!(
        keys(log.as_bytes(), "ip", &["--trust-hops", "2"]).1,
        ["192.0.2.17", "192.0.2.17", "192.0.2.17", "-"]
    );
    let limit = ["--limit", "a=1/h by ip", "--format", "json"];
    let report = json(&replay_stdin(&[&limit[..], &["--trust-hops", "2"]].concat(), log.as_bytes()));
    assert_eq!(
        (&report["log"]["unparsable"], &report["log"]["requests"]),
        (&0.into(), &4.into()),
        "{report}"
    );
    let report = json(&replay_stdin(&limit, log.as_bytes()));
    assert!(
        report["bad_lines"].to_string().contains("--trust-hops")
            || report.to_string().contains("--trust-hops"),
        "{report}"
    );
    // Limits use the forwarded address of nginx as the address.
    let main = sample("nginx-main");
    assert_eq!(keys(main.as_bytes(), "forwarded", &["--trust-hops", "2"]).1, ["203.0.113.9", "-"]);
    assert_eq!(keys(main.as_bytes(), "ip", &["--fields", "ip=forwarded"]).1[0], "203.0.113.9, 10.0.0.1");
}

#[test]
fn a_log_that_cannot_be_read_says_what_would_help() {
    let combined = SAMPLES[1].1;
    let compose: String = combined.lines().map(|line| format!("web-1  | {line}\n")).collect();
    let message = refusal_of(&["--limit", "1/h"], &compose);
    assert!(
        message.contains("behind its first 3 words it is combined: unwrap its lines, as with sed"),
        "{message}"
    );
    let journal = "{\"__REALTIME_TIMESTAMP\":\"1\",\"MESSAGE\":\"192.0.2.17 - -\"}\n";
    let message = refusal_of(&["--limit", "1/h"], &journal);
    assert!(message.contains("journalctl -o cat"), "{message}");
    let packed: [(&[u8], &str); 4] = [
        (b"\x28\xb5\x2f\xfdrest", "pipe it through zstd, as in zstd -dc"),
        (b"\xfd7zXZ\0rest", "pipe it through xz, as in xz -dc"),
        (b"BZh9rest", "pipe it through bzip2, as in bzip2 -dc"),
        (b"PK\x03\x04rest", "funzip"),
    ];
    for (log, part) in packed {
        let message = refusal_of(&["--limit", "1/h"], log);
        assert!(message.contains(part), "{message}");
    }
    let report =
        text_of(&["--limit", "1/h", "--key", "user-agent"], &format!("{combined}{}", &combined[..90]));
    assert!(
        flat(&report).contains("standard input:3: as combined: its referer is not in quotes to its end"),
        "{report}"
    );
}

/// How a server writes the bytes that a client sent.
type Writes = fn(&[u8]) -> Vec<u8>;

fn hex(byte: u8, prefix: &str) -> Vec<u8> {
    format!("{prefix}{byte:02X}").into_bytes()
}

fn each(text: &[u8], write: impl Fn(u8) -> Vec<u8>) -> Vec<u8> {
    text.iter().flat_map(|&byte| write(byte)).collect()
}

fn nginx(text: &[u8]) -> Vec<u8> {
    each(
        text,
        |byte| if matches!(byte, b'"' | b'\\' | 0..=0x1f | 0x7f..) { hex(byte, "\\x") } else { vec![byte] },
    )
}

fn apache(text: &[u8]) -> Vec<u8> {
    each(text, |byte| match byte {
        b'"' | b'\\' => vec![b'\\', byte],
        0..=0x1f | 0x7f.. => hex(byte, "\\x"),
        _ => vec![byte],
    })
}

fn haproxy(text: &[u8]) -> Vec<u8> {
    each(text, |byte| {
        if matches!(byte, b'"' | b'#' | b'{' | b'|' | b'}' | 0..=0x1f | 0x7f..) {
            hex(byte, "#")
        } else {
            vec![byte]
        }
    })
}

fn as_json(text: &[u8]) -> Vec<u8> {
    let quoted = serde_json::to_string(&String::from_utf8_lossy(text)).expect("it is text");
    quoted.as_bytes()[1..quoted.len() - 1].to_vec()
}

fn percent(text: &[u8]) -> Vec<u8> {
    each(text, |byte| if byte.is_ascii_graphic() && byte != b'"' { vec![byte] } else { hex(byte, "%") })
}

fn iis(text: &[u8]) -> Vec<u8> {
    each(text, |byte| vec![if byte <= b' ' || byte == 0x7f { b'+' } else { byte }])
}

/// Writes bytes as they are, except those that would end a JSON string or escape its end.
fn no_quotes(text: &[u8]) -> Vec<u8> {
    each(text, |byte| if b"\"\\".contains(&byte) { b"'".to_vec() } else { vec![byte] })
}

fn doubled_quotes(text: &[u8]) -> Vec<u8> {
    each(text, |byte| if byte == b'"' { b"\"\"".to_vec() } else { vec![byte] })
}

fn as_it_is(text: &[u8]) -> Vec<u8> {
    text.to_vec()
}

/// What a log begins with, a line that a server writes, how the server writes the bytes that a
/// client sends, and whether the path is found regardless of what the client sends in `%any`.
///
/// `%ip`, `%path` and `%any` stand for such bytes. If the server does not accept spaces in a path,
/// `%path` contains none.
type Server = (&'static str, &'static str, Writes, bool);

const CLF: &str = r#"%ip - %any [17/May/2015:10:05:03 +0000] "GET %path HTTP/1.1" 200 1 "%any" "%any""#;

const SERVERS: [Server; 16] = [
    ("", CLF, nginx, true),
    ("", CLF, apache, true),
    (
        "",
        r#"a.example:80 %ip - %any [17/May/2015:10:05:03 +0000] "GET %path HTTP/1.1" 200 1 "%any" "%any""#,
        apache,
        true,
    ),
    ("", r#"%ip - - [17/May/2015:10:05:03 +0000] "GET %path HTTP/1.1" 200 1 "-" "%any" "%any""#, nginx, true),
    // This server escapes nothing.
    ("", r#"%ip - - [17/May/2015:10:05:03 +0000] "GET %path HTTP/1.1" 200 1 "%any" "%any""#, as_it_is, false),
    (
        "",
        r#"http 2015-05-17T10:05:03.1Z app/a/1 %ip:2817 10.0.0.1:80 0.0 0.0 0.0 200 200 34 366 "GET %path HTTP/1.1" "%any" - - a "Root" "-" "-" 0"#,
        nginx,
        true,
    ),
    (
        "",
        r#"%ip:33317 [06/Feb/2009:12:14:14.655] in b/s 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {%any|%any} {} "GET %path HTTP/1.1""#,
        haproxy,
        true,
    ),
    (
        "#Version: 1.0\n#Fields: date time sc-bytes c-ip cs-method cs-uri-stem sc-status cs(Referer) cs(User-Agent)\n",
        "2015-05-17\t10:05:03\t1\t%ip\tGET\t%path\t200\t%any\t%any",
        percent,
        true,
    ),
    (
        "#Fields: date time cs-method cs-uri-stem cs(User-Agent) c-ip sc-status\n",
        "2015-05-17 10:05:03 GET %path %any %ip 200",
        iis,
        true,
    ),
    (
        "",
        r#"{"level":"info","ts":1.5,"request":{"remote_ip":"%ip","method":"GET","uri":"%path","headers":{"User-Agent":["%any"],"%any":[]}},"size":1,"status":200}"#,
        as_json,
        true,
    ),
    (
        "",
        r#"{"ClientHost":"%ip","RequestMethod":"GET","RequestPath":"%path","request_User-Agent":"%any","StartUTC":"2015-05-17T10:05:03Z"}"#,
        as_json,
        true,
    ),
    (
        "",
        r#"{"start_time":"2015-05-17T10:05:03Z","user_agent":"%any","path":"%path","response_code":200,"downstream_remote_address":"%ip:1"}"#,
        as_json,
        true,
    ),
    // log_format of nginx, with the default escaping and without escaping.
    ("", r#"{"time":1,"agent":"%any","ip":"%ip","path":"%path"}"#, nginx, true),
    ("", r#"{"time":1,"agent":"%any","ip":"%ip","path":"%path"}"#, no_quotes, true),
    ("", r#"{"time":1,"ip":"%ip","path":"%path","agent":"%any"}"#, as_it_is, false),
    ("time,ip,path,agent\n", r#"1,%ip,"%path","%any""#, doubled_quotes, true),
];

/// Returns a line of a server for a request.
fn line_of((_, line, writes, _): Server, ip: &str, path: &[u8], any: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut parts = line.split('%');
    out.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let name = part.find(|letter: char| !letter.is_ascii_lowercase()).unwrap_or(part.len());
        match &part[..name] {
            "ip" => out.extend_from_slice(ip.as_bytes()),
            "path" => out.extend(writes(&[b"/", path].concat())),
            _ => out.extend(writes(any)),
        }
        out.extend_from_slice(&part.as_bytes()[name..]);
    }
    out.push(b'\n');
    out
}

/// Returns the number of requests, the number of lines that were not counted, and the key that was
/// denied most often.
fn replayed(log: &[u8], key: &str) -> (u64, u64, String) {
    let wanted = Wanted {
        key: vec![key.to_owned()],
        ipv6_prefix: 64,
        trust_hops: None,
        templates: None,
        cost: Cost::One,
        names: Vec::new(),
        unit: TimeUnit::Seconds,
    };
    let settings = Settings::of_quota("1/h".parse().expect("a quota"), 100, wanted).expect("a limit");
    let mut progress = Progress::new(None);
    let mut replay = Replay::new(&settings).expect("the quota is valid");
    replay.read(0, log, &mut progress).expect("a log can be read");
    let report =
        serde_json::to_value(replay.finish(&mut progress).expect("there are requests")).expect("it is JSON");
    let count = |name: &str| report["log"][name].as_u64().expect("a count");
    let top = report["limits"][0]["top_refused"][0]["key"].as_str().unwrap_or_default().to_owned();
    (count("requests"), count("unparsable"), top)
}

const HOSTILE: &[u8] = b"\"\\ []{}|#,-%'<>\t\x1b\x7f\xff\xc3a0x:=/";

fn hostile() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(HOSTILE), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_client_can_write_itself_out_of_a_report(path in hostile(), any in hostile(), server in 0..SERVERS.len()) {
        let server = SERVERS[server];
        let (header, .., finds_path) = server;
        let plain = line_of(server, "192.0.2.1", b"plain", b"agent");
        let sent = line_of(server, "203.0.113.66", &path, &any);
        let log = [header.as_bytes(), &plain, &sent, &sent, &plain[..]].concat();
        let shown = String::from_utf8_lossy(&sent).into_owned();
        let (requests, unparsable, top) = replayed(&log, "ip");
        prop_assert_eq!((requests, unparsable), (4, 0), "{}", shown);
        prop_assert!(top == "203.0.113.66" || top == "192.0.2.1", "{}: {}", top, shown);
        let (_, _, of_sent) = replayed(&[header.as_bytes(), &plain, &sent, &sent].concat(), "ip");
        prop_assert_eq!(of_sent, "203.0.113.66", "{}", shown);
        // The replay finds the path that the client sent, regardless of what else the client sent.
        if finds_path {
            let quiet = line_of(server, "203.0.113.66", &path, b"agent");
            let log = |line: &[u8]| [header.as_bytes(), &plain, line, line].concat();
            prop_assert_eq!(replayed(&log(&sent), "path"), replayed(&log(&quiet), "path"), "{}", shown);
        }
    }
}

#[test]
fn a_request_line_in_a_field_is_split_as_in_a_text_log() {
    let lines = [
        "GET /a?x=1 HTTP/1.1",
        "GET /a HTTP/1.1",
        "POST //a HTTP/2.0",
        "GET /b c HTTP/1.1",
        "/a HTTP/1.1",
        "/a",
    ];
    let json_log: String = lines
        .iter()
        .map(|line| format!("{{\"time\":1,\"ip\":\"192.0.2.1\",\"request\":\"{line}\"}}\n"))
        .collect();
    let csv: String = lines.iter().map(|line| format!("1,192.0.2.1,{line}\n")).collect();
    for log in [json_log, format!("time,ip,request\n{csv}")] {
        let keys = |fields: &str, key: &str| -> Vec<String> {
            let args = ["--limit", "9/h", "--key", key, "--fields", fields, "--decisions", "-"];
            let rows = text_of(&args, &log);
            rows.lines().skip(1).map(|row| row.split(',').nth(1).unwrap_or_default().to_owned()).collect()
        };
        let paths = keys("path=request", "path");
        assert_eq!(paths, ["/a", "/a", "/a", "/b%20c", "/a%20HTTP/1.1", "/a"]);
        assert_eq!(keys("uri=request", "uri")[..3], ["/a?x=1", "/a", "//a"]);
        assert_eq!(keys("method=request", "method")[..3], ["GET", "GET", "POST"]);
        assert_eq!(keys("protocol=request", "protocol")[..3], ["HTTP/1.1", "HTTP/1.1", "HTTP/2.0"]);
        for (limit, refused) in
            [("a=1/h by path for /a", 3), ("a=1/h by ip for POST /a", 0), ("a=1/h by query x else allow", 0)]
        {
            let fields = "path=request,uri=request,method=request";
            let args = ["--limit", limit, "--fields", fields, "--format", "json"];
            let report = json(&replay_stdin(&args, log.as_bytes()));
            assert_eq!(report["results"][0]["denied"], refused, "{limit}: {report}");
        }
    }
}

#[test]
fn a_carriage_return_alone_ends_lines_where_no_line_feed_does() {
    let lf = fs::read_to_string(LOG).expect("the log is there");
    let log = lf.replace('\n', "\r");
    let decisions = |log: &str, threads: &str| {
        let args = ["--limit", "30/min burst 10", "--threads", threads, "--decisions", "-"];
        text_of(&args, &log)
    };
    assert_eq!(decisions(&log, "1"), decisions(&lf, "1"));
    // This log is longer than a line may be, and long enough for several threads.
    let (long, long_lf) = (log.repeat(30), lf.repeat(30));
    for threads in ["1", "3"] {
        assert!(decisions(&long, threads) == decisions(&long_lf, threads), "{threads}");
    }
}
