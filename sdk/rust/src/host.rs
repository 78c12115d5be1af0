//! The host functions. A module that calls [`kv_get`] and its like, [`lookup`] or [`http`] needs the grant in the handler's `allow`,
//! else it is not loaded. A function that is not called is not imported.

use crate::json;
use std::fmt;
use std::time::Duration;

/// The reason why a host function failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    NotFound,
    Denied,
    Quota,
    Invalid,
    Deadline,
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Errno::NotFound => "there is none",
            Errno::Denied => "not granted to this handler",
            Errno::Quota => "over the handler's quota",
            Errno::Invalid => "the request is not valid",
            Errno::Deadline => "too late",
        })
    }
}

impl std::error::Error for Errno {}

fn check(code: i32) -> Result<usize, Errno> {
    match code {
        0.. => Ok(code as usize),
        -1 => Err(Errno::NotFound),
        -2 => Err(Errno::Denied),
        -3 => Err(Errno::Quota),
        -5 => Err(Errno::Deadline),
        _ => Err(Errno::Invalid),
    }
}

/// The level of a line of the router's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Writes a line into the router's log.
pub fn log(level: Level, text: &str) {
    sys::log(level as i32, text);
}

/// Reads an answer of unknown length: if it does not fit into the buffer, it is requested again.
fn read(mut ask: impl FnMut(&mut [u8]) -> i32) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0; 4096];
    loop {
        let n = check(ask(&mut buf))?;
        let fits = n <= buf.len();
        buf.resize(n, 0);
        if fits {
            return Ok(buf);
        }
    }
}

/// The value of a key in the store of this handler.
pub fn kv_get(key: &str) -> Result<Option<Vec<u8>>, Errno> {
    match read(|buf| sys::kv_get(key.as_bytes(), buf)) {
        Err(Errno::NotFound) => Ok(None),
        other => other.map(Some),
    }
}

/// Stores a value for some time, with None for ever. It counts only if the call succeeds.
pub fn kv_set(key: &str, value: &[u8], ttl: Option<Duration>) -> Result<(), Errno> {
    let ttl = ttl.map_or(0, |t| i64::try_from(t.as_millis()).unwrap_or(i64::MAX).max(1));
    check(sys::kv_set(key.as_bytes(), value, ttl)).map(drop)
}

/// Removes a key, which may be absent.
pub fn kv_delete(key: &str) -> Result<(), Errno> {
    match check(sys::kv_del(key.as_bytes())) {
        Err(Errno::NotFound) => Ok(()),
        other => other.map(drop),
    }
}

fn ask(request: impl FnOnce(&mut json::Writer)) -> Result<String, Errno> {
    let mut w = json::Writer::new();
    w.object(request);
    let answer = read(|buf| sys::lookup(w.as_str().as_bytes(), buf))?;
    String::from_utf8(answer).map_err(|_| Errno::Invalid)
}

fn objects(answer: &str) -> Vec<String> {
    json::Value::new(answer).get("objects").items().map(|o| o.raw().to_string()).collect()
}

/// The JSON of the objects that an index has under a key: `lookup("pods.byNode", "n1")`.
pub fn lookup(index: &str, key: &str) -> Result<Vec<String>, Errno> {
    let answer = ask(|r| {
        r.key("index").string(index).key("key").string(key);
    })?;
    Ok(objects(&answer))
}

/// The JSON of all objects of a source.
pub fn list(source: &str) -> Result<Vec<String>, Errno> {
    let answer = ask(|r| {
        r.key("list").string(source);
    })?;
    Ok(objects(&answer))
}

/// The number of objects that [`lookup`] finds.
pub fn count(index: &str, key: &str) -> Result<u64, Errno> {
    let answer = ask(|r| {
        r.key("index").string(index).key("key").string(key).key("count").bool(true);
    })?;
    let count = json::Value::new(&answer).get("count").int();
    count.and_then(|n| u64::try_from(n).ok()).ok_or(Errno::Invalid)
}

/// The JSON of one object of a source.
pub fn get(source: &str, namespace: &str, name: &str) -> Result<Option<String>, Errno> {
    let answer = ask(|r| {
        r.key("get").string(source).key("namespace").string(namespace).key("name").string(name);
    });
    match answer {
        Err(Errno::NotFound) => Ok(None),
        other => Ok(objects(&other?).into_iter().next()),
    }
}

/// Emits an event at once, beside those that the handler returns. It counts only if the call succeeds.
pub fn emit(delta: &crate::Delta, event: &crate::Event) -> Result<(), Errno> {
    check(sys::emit(delta.index, event.to_json().as_bytes())).map(drop)
}

/// A field of an object of the batch: the router finds it in the text that the guest has, too.
pub(crate) fn field<'a>(delta: u32, which: u32, object: json::Value<'a>, path: &str) -> json::Value<'a> {
    match sys::field(delta, which, path) {
        -1 => json::Value::ABSENT,
        place if place < 0 => object.path(path), // the host does not search
        place => object.piece((place >> 32) as usize, place as u32 as usize),
    }
}

/// A request to one of the hosts that the handler is granted.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// 0: there is no answer, and error has the reason.
    pub status: u16,
    pub error: String,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Sends a request. The router keeps an answer that did not fit: the second call reads it, and sends no second request.
pub fn http(request: &Request) -> Result<Response, Errno> {
    let mut w = json::Writer::new();
    w.object(|r| {
        r.key("method").string(&request.method).key("url").string(&request.url);
        r.key("headers").object(|h| {
            for (name, value) in &request.headers {
                h.key(name).string(value);
            }
        });
        match std::str::from_utf8(&request.body) {
            Ok(text) => r.key("body").string(text),
            Err(_) => r.key("bodyBase64").string(&base64::encode(&request.body)),
        };
    });
    let answer = read(|buf| sys::http(w.as_str().as_bytes(), buf))?;
    let answer = json::Value::new(std::str::from_utf8(&answer).map_err(|_| Errno::Invalid)?);
    let encoded = answer.get("bodyBase64");
    Ok(Response {
        status: answer.get("status").int().and_then(|s| u16::try_from(s).ok()).ok_or(Errno::Invalid)?,
        error: answer.get("error").text_or_empty().into_owned(),
        headers: answer.get("headers").members().map(|(k, v)| (k.into_owned(), v.text_or_empty().into_owned())).collect(),
        body: match encoded.is_absent() {
            true => answer.get("body").text_or_empty().into_owned().into_bytes(),
            false => base64::decode(&encoded.text_or_empty()).ok_or(Errno::Invalid)?,
        },
    })
}

mod base64 {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    pub fn encode(bytes: &[u8]) -> String {
        let mut out = String::new();
        for three in bytes.chunks(3) {
            let word = three.iter().fold(0u32, |w, b| w << 8 | u32::from(*b)) << (8 * (3 - three.len()));
            for i in 0..4 {
                let digit = DIGITS[(word >> (18 - 6 * i)) as usize & 63];
                out.push(if i <= three.len() { char::from(digit) } else { '=' });
            }
        }
        out
    }

    pub fn decode(text: &str) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let (mut word, mut bits) = (0u32, 0);
        for c in text.trim_end_matches('=').bytes() {
            word = word << 6 | DIGITS.iter().position(|d| *d == c)? as u32;
            bits += 6;
            if bits >= 8 {
                bits -= 8;
                out.push((word >> bits) as u8);
            }
        }
        Some(out)
    }
}

/// The time, in nanoseconds since 1970.
pub fn now_ns() -> i64 {
    sys::now_ns()
}

/// Fills a buffer with random bytes.
pub fn random(buf: &mut [u8]) -> Result<(), Errno> {
    check(sys::random(buf)).map(drop)
}

#[cfg(target_arch = "wasm32")]
mod sys {
    mod raw {
        #[link(wasm_import_module = "rtr_v1")]
        extern "C" {
            pub fn log(level: i32, text: *const u8, size: usize) -> i32;
            pub fn kv_get(key: *const u8, key_size: usize, buf: *mut u8, limit: usize) -> i32;
            pub fn kv_set(key: *const u8, key_size: usize, value: *const u8, size: usize, ttl_ms: i64) -> i32;
            pub fn kv_del(key: *const u8, key_size: usize) -> i32;
            pub fn lookup(request: *const u8, size: usize, buf: *mut u8, limit: usize) -> i32;
            pub fn emit(delta: u32, event: *const u8, size: usize) -> i32;
            pub fn http(request: *const u8, size: usize, buf: *mut u8, limit: usize) -> i32;
            pub fn now_ns() -> i64;
            pub fn random(buf: *mut u8, size: usize) -> i32;
            pub fn field(delta: u32, which: u32, path: *const u8, path_size: usize) -> i64;
        }
    }

    pub fn log(level: i32, text: &str) -> i32 {
        unsafe { raw::log(level, text.as_ptr(), text.len()) }
    }
    pub fn kv_get(key: &[u8], buf: &mut [u8]) -> i32 {
        unsafe { raw::kv_get(key.as_ptr(), key.len(), buf.as_mut_ptr(), buf.len()) }
    }
    pub fn kv_set(key: &[u8], value: &[u8], ttl_ms: i64) -> i32 {
        unsafe { raw::kv_set(key.as_ptr(), key.len(), value.as_ptr(), value.len(), ttl_ms) }
    }
    pub fn kv_del(key: &[u8]) -> i32 {
        unsafe { raw::kv_del(key.as_ptr(), key.len()) }
    }
    pub fn lookup(request: &[u8], buf: &mut [u8]) -> i32 {
        unsafe { raw::lookup(request.as_ptr(), request.len(), buf.as_mut_ptr(), buf.len()) }
    }
    pub fn emit(delta: u32, event: &[u8]) -> i32 {
        unsafe { raw::emit(delta, event.as_ptr(), event.len()) }
    }
    pub fn http(request: &[u8], buf: &mut [u8]) -> i32 {
        unsafe { raw::http(request.as_ptr(), request.len(), buf.as_mut_ptr(), buf.len()) }
    }
    pub fn now_ns() -> i64 {
        unsafe { raw::now_ns() }
    }
    pub fn random(buf: &mut [u8]) -> i32 {
        unsafe { raw::random(buf.as_mut_ptr(), buf.len()) }
    }
    pub fn field(delta: u32, which: u32, path: &str) -> i64 {
        unsafe { raw::field(delta, which, path.as_ptr(), path.len()) }
    }
}

#[cfg(not(target_arch = "wasm32"))]
use crate::test::sys;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{delta, Host, HOST};
    use crate::{Event, Op};

    fn answer(request: json::Value) -> Option<String> {
        if !request.get("count").is_absent() {
            return Some("{\"count\":3}".to_string());
        }
        if request.get("name").text_or_empty() == "none" {
            return Some("{\"objects\":[]}".to_string());
        }
        Some(format!("{{\"objects\":[{{\"a\":1}},\"{}\"]}}", "x".repeat(9000)))
    }

    fn echo(request: json::Value) -> Option<String> {
        let body =
            ["body", "bodyBase64"].map(|k| format!("\"{}\":{}", k, if request.get(k).is_absent() { "\"\"" } else { request.get(k).raw() }));
        let body = if request.get("body").is_absent() { &body[1] } else { &body[0] };
        Some(format!("{{\"status\":201,\"headers\":{},{}}}", request.get("headers").raw(), body))
    }

    #[test]
    fn denied() {
        assert_eq!(kv_get("a"), Err(Errno::Denied));
        assert_eq!(lookup("pods.byNode", "n1"), Err(Errno::Denied));
        assert_eq!(http(&Request::default()), Err(Errno::Denied));
    }

    #[test]
    fn asks() {
        HOST.with(|h| {
            *h.borrow_mut() = Host { kv: Some(Default::default()), lookup: Some(answer), http: Some(echo), now_ns: 5, ..Host::default() }
        });
        assert_eq!(kv_get("a"), Ok(None));
        assert_eq!(kv_set("a", &[b'x'; 9000], Some(Duration::from_secs(1))), Ok(()));
        assert_eq!(kv_get("a").unwrap().map(|v| v.len()), Some(9000));
        assert_eq!((kv_delete("a"), kv_delete("a"), kv_get("a")), (Ok(()), Ok(()), Ok(None)));
        assert_eq!(lookup("pods.byNode", "n1").unwrap()[0], "{\"a\":1}");
        assert_eq!(list("pods").unwrap().len(), 2);
        assert_eq!(count("pods.byNode", "n1"), Ok(3));
        assert_eq!(get("pods", "d", "none"), Ok(None));
        assert_eq!(get("pods", "d", "a"), Ok(Some("{\"a\":1}".to_string())));
        for body in [&b"text"[..], b"", b"\xff", b"\xff\xfe", b"\xff\xfe\xfd", &[0xff; 9000]] {
            let request = Request { headers: vec![("a".to_string(), "b".to_string())], body: body.to_vec(), ..Request::default() };
            let response = http(&request).unwrap();
            assert_eq!((response.status, response.headers, response.body), (201, request.headers, request.body));
        }
        let mut bytes = [0; 4];
        assert_eq!((random(&mut bytes), now_ns()), (Ok(()), 5));
        assert_ne!(bytes, [0; 4]);
        assert_eq!(emit(&delta(Op::Added, "", "{}"), &Event::new("1").with_type("t")), Ok(()));
        HOST.with(|h| assert_eq!(h.borrow().emitted, ["{\"type\":\"t\",\"data\":1}"]));
    }
}
