//! The router's side for native tests of a handler:
//!
//! ```
//! # use deltarouter::{json, Delta, Event, Verdict};
//! # fn setup(_: json::Value) -> Result<impl FnMut(&Delta) -> Verdict, String> {
//! #     Ok(|d: &Delta| Ok(vec![Event::new(format!("\"{}\"", d.name))]))
//! # }
//! use deltarouter::{test, Op};
//!
//! let mut handle = setup(json::Value::new(r#"{"threshold": 3}"#)).unwrap();
//! let events = handle(&test::delta(Op::Added, "", r#"{"metadata": {"name": "a"}}"#));
//! assert_eq!(test::describe(events), r#"{"events":[{"data":"a"}]}"#);
//! ```
//!
//! The answers of the host functions are in [`HOST`], one for each test, because each test is a thread.

use crate::{json, Delta, Op, RouteEvent, Stop, Verdict};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A delta of JSON; an empty old object is none. Source, cluster and resource are "test".
pub fn delta<'a>(op: Op, old_object: &'a str, object: &'a str) -> Delta<'a> {
    let object = json::Value::new(object);
    let text = |keys: &[&str]| match object.at(keys).text() {
        Some(std::borrow::Cow::Borrowed(text)) => text,
        _ => "",
    };
    let mut old_object = json::Value::new(old_object);
    if old_object.is_absent() && matches!(op, Op::Deleted | Op::Deselected) {
        old_object = object;
    }
    Delta {
        op,
        source: "test",
        cluster: "test",
        resource: "test",
        kind: text(&["kind"]),
        namespace: text(&["metadata", "namespace"]),
        name: text(&["metadata", "name"]),
        uid: text(&["metadata", "uid"]),
        resource_version: text(&["metadata", "resourceVersion"]),
        object,
        old_object,
        initial: false,
        stale: false,
        redelivered: false,
        late: false,
        repeat: false,
        since_ns: 0,
        suppressed: 0,
        traceparent: "",
        with: json::Value::ABSENT,
        event: None,
        seen_ns: 0,
        index: 0,
    }
}

/// Runs a golden file, as the examples of the router have them: a text with the sections `-- config.json --` (JSON),
/// `-- deltas.json --` ({"op", "object", "oldObject"} one after the other) and `-- results.json --` (a line of [`describe`] for each;
/// spaces between tokens do not count). It panics with the difference.
pub fn golden<H: FnMut(&Delta) -> Verdict>(file: &str, setup: impl FnOnce(json::Value) -> Result<H, String>) {
    let section = |name: &str| {
        let marker = format!("-- {} --\n", name);
        let text = file.split(&marker).nth(1).unwrap_or("");
        text.split("\n-- ").next().unwrap_or("").to_string()
    };
    let config = section("config.json");
    let mut handle = setup(json::Value::new(if config.is_empty() { "null" } else { &config })).expect("setup");
    let deltas = format!("[{}]", section("deltas.json"));
    let got: Vec<String> = json::Value::new(&deltas)
        .items()
        .map(|d| {
            let op = Op::parse(&d.get("op").text_or_empty()).expect("op");
            let mut delta = delta(op, d.get("oldObject").raw(), d.get("object").raw());
            delta.late = d.get("late").raw() == "true";
            delta.repeat = d.get("repeat").int().unwrap_or(0) > 0;
            delta.suppressed = d.get("suppressed").int().unwrap_or(0);
            delta.since_ns = nanoseconds(&d.get("since").text_or_empty());
            let traceparent = d.get("traceparent").text_or_empty();
            delta.traceparent = &traceparent;
            delta.with = d.get("with");
            let made = d.get("event");
            let text = |name: &str| made.get(name).text_or_empty();
            let (id, kind, source) = (text("id"), text("type"), text("source"));
            let (subject, route) = (text("subject"), text("route"));
            if !made.is_absent() {
                delta.event = Some(RouteEvent {
                    id: &id,
                    kind: &kind,
                    source: &source,
                    subject: &subject,
                    route: &route,
                    time_ns: nanoseconds(&text("time")),
                    data: made.get("data"),
                });
            }
            describe(handle(&delta))
        })
        .collect();
    let results = format!("[{}]", section("results.json"));
    let want: Vec<String> = json::Value::new(&results).items().map(|r| compact(r.raw())).collect();
    assert!(got == want, "got\n{}\nwant\n{}", got.join("\n"), want.join("\n"));
}

/// The time that a text like 2026-01-02T03:04:05Z names, in nanoseconds since 1970; 0: none.
fn nanoseconds(text: &str) -> i64 {
    let n: Vec<i64> = text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    if n.len() < 6 {
        return 0;
    }
    let (year, month) = if n[1] > 2 { (n[0], n[1] - 3) } else { (n[0] - 1, n[1] + 9) }; // years that begin with March
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + n[2] - 719_469;
    (((days * 24 + n[3]) * 60 + n[4]) * 60 + n[5]) * 1_000_000_000
}

fn compact(text: &str) -> String {
    let (mut quoted, mut escaped) = (false, false);
    text.chars()
        .filter(|c| {
            let keep = quoted || !c.is_ascii_whitespace();
            if *c == '"' && !escaped {
                quoted = !quoted;
            }
            escaped = quoted && *c == '\\' && !escaped;
            keep
        })
        .collect()
}

/// Writes a verdict as the results of golden files have it: `{"events":[…]}`, `{"error":"…"}`, `{"retry":"…"}`, `{"drop":true}`, `{}`.
pub fn describe(verdict: Verdict) -> String {
    let mut w = json::Writer::new();
    w.object(|o| match verdict {
        Ok(events) if events.is_empty() => {}
        Ok(events) => {
            o.key("events").array(|a| {
                for event in &events {
                    a.raw(&event.to_json());
                }
            });
        }
        Err(Stop::Fail(message)) => {
            o.key("error").string(&message);
        }
        Err(Stop::Retry(message, _)) => {
            o.key("retry").string(&message);
        }
        Err(Stop::Drop) => {
            o.key("drop").bool(true);
        }
    });
    w.into()
}

/// The answers of the host functions, and the lines and events that the handler passed to them.
#[derive(Default)]
pub struct Host {
    /// None: not granted. A ttl is ignored.
    pub kv: Option<BTreeMap<String, Vec<u8>>>,
    /// Answers a request of lookup (docs/ABI.md) with JSON; None: not granted.
    pub lookup: Option<fn(json::Value) -> Option<String>>,
    /// Answers a request of http.
    pub http: Option<fn(json::Value) -> Option<String>>,
    pub now_ns: i64,
    pub logged: Vec<String>,
    /// Events of [`crate::host::emit`].
    pub emitted: Vec<String>,
}

thread_local! {
    /// The host of this test: `HOST.with(|h| h.borrow_mut().now_ns = 5)`.
    pub static HOST: RefCell<Host> = RefCell::new(Host::default());
}

pub(crate) mod sys {
    use super::{Host, HOST};
    use crate::json;

    fn with<T>(f: impl FnOnce(&mut Host) -> T) -> T {
        HOST.with(|h| f(&mut h.borrow_mut()))
    }

    fn give(value: Option<&[u8]>, buf: &mut [u8]) -> i32 {
        let value = match value {
            Some(value) => value,
            None => return -1,
        };
        if let Some(room) = buf.get_mut(..value.len()) {
            room.copy_from_slice(value);
        }
        value.len() as i32
    }

    fn name(key: &[u8]) -> String {
        String::from_utf8_lossy(key).into_owned()
    }

    pub fn log(level: i32, text: &str) -> i32 {
        with(|h| h.logged.push(format!("{} {}", level, text)));
        0
    }
    pub fn kv_get(key: &[u8], buf: &mut [u8]) -> i32 {
        with(|h| h.kv.as_ref().map_or(-2, |kv| give(kv.get(&name(key)).map(Vec::as_slice), buf)))
    }
    pub fn kv_set(key: &[u8], value: &[u8], _ttl_ms: i64) -> i32 {
        with(|h| {
            h.kv.as_mut().map_or(-2, |kv| {
                kv.insert(name(key), value.to_vec());
                0
            })
        })
    }
    pub fn kv_del(key: &[u8]) -> i32 {
        with(|h| h.kv.as_mut().map_or(-2, |kv| if kv.remove(&name(key)).is_some() { 0 } else { -1 }))
    }
    fn ask(f: Option<fn(json::Value) -> Option<String>>, request: &[u8], buf: &mut [u8]) -> i32 {
        let request = std::str::from_utf8(request).unwrap_or("");
        f.map_or(-2, |f| give(f(json::Value::new(request)).as_ref().map(String::as_bytes), buf))
    }
    pub fn lookup(request: &[u8], buf: &mut [u8]) -> i32 {
        ask(with(|h| h.lookup), request, buf)
    }
    pub fn http(request: &[u8], buf: &mut [u8]) -> i32 {
        ask(with(|h| h.http), request, buf)
    }
    pub fn emit(_delta: u32, event: &[u8]) -> i32 {
        with(|h| h.emitted.push(String::from_utf8_lossy(event).into_owned()));
        0
    }
    pub fn now_ns() -> i64 {
        with(|h| h.now_ns)
    }
    /// The SDK searches itself.
    pub fn field(_delta: u32, _which: u32, _path: &str) -> i64 {
        -2
    }
    pub fn random(buf: &mut [u8]) -> i32 {
        for (i, b) in buf.iter_mut().enumerate() {
            *b = (i * 151 + 7) as u8; // a test wants the same every time
        }
        0
    }
}
