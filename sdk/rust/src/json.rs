//! Reading and writing JSON without a crate. A [`Value`] is a piece of the text it stands in: nothing is copied or built, and a
//! look-up scans the text before it. Text that is not JSON reads as absent.

use std::borrow::Cow;
use std::fmt;

/// The text of one JSON value, without spaces around it; empty if there is none.
///
/// That it is UTF-8 is checked when a part of it is read as text: a check of whole objects would cost more than most handlers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Value<'a>(&'a [u8]);

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Value({:?})", self.raw())
    }
}

impl<'a> Value<'a> {
    /// No value.
    pub const ABSENT: Value<'static> = Value(b"");

    /// The value that a text holds.
    pub fn new(text: &'a str) -> Value<'a> {
        Value(text.trim_matches(SPACES).as_bytes())
    }

    /// The value of a part of a batch, which is JSON without spaces around it.
    pub(crate) fn of(bytes: &'a [u8]) -> Value<'a> {
        Value(bytes)
    }

    /// The text itself, for serde_json and the like; empty if it is not UTF-8.
    pub fn raw(self) -> &'a str {
        std::str::from_utf8(self.0).unwrap_or("")
    }

    pub fn is_absent(self) -> bool {
        self.0.is_empty()
    }

    pub fn is_null(self) -> bool {
        self.0 == b"null"
    }

    fn first(self) -> u8 {
        self.0.first().copied().unwrap_or(0)
    }

    /// The value of a member of an object.
    pub fn get(self, key: &str) -> Value<'a> {
        self.members().find(|(k, _)| k == key).map_or(Value::ABSENT, |(_, v)| v)
    }

    /// Follows keys: `at(&["metadata", "labels"])`.
    pub fn at(self, keys: &[&str]) -> Value<'a> {
        keys.iter().fold(self, |v, key| v.get(key))
    }

    /// Follows keys that are separated by dots: `path("metadata.labels")`. In a key, `\.` is a dot. For the objects of a delta
    /// [`crate::Delta::path`] is faster.
    pub fn path(self, path: &str) -> Value<'a> {
        let (mut v, mut rest) = (self, Some(path));
        while let (Some(text), false) = (rest, v.is_absent()) {
            let (key, after) = next_key(text);
            v = v.get(&key);
            rest = after;
        }
        v
    }

    /// A piece of the text; absent if it is out of bounds.
    pub(crate) fn piece(self, at: usize, size: usize) -> Value<'a> {
        self.0.get(at..).and_then(|text| text.get(..size)).map_or(Value::ABSENT, Value)
    }

    /// The members of an object; none if it is none.
    pub fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Value<'a>)> {
        let mut rest: &[u8] = if self.first() == b'{' { &self.0[1..] } else { b"" };
        std::iter::from_fn(move || {
            let (key, after) = next(rest)?;
            let (value, after) = next(trim_start(after).strip_prefix(b":")?)?;
            rest = after;
            Some((key.text()?, value))
        })
    }

    /// The elements of an array; none if it is none.
    pub fn items(self) -> impl Iterator<Item = Value<'a>> {
        let mut rest: &[u8] = if self.first() == b'[' { &self.0[1..] } else { b"" };
        std::iter::from_fn(move || {
            let (value, after) = next(rest)?;
            rest = after;
            Some(value)
        })
    }

    /// The content of a string, its escapes resolved; None if it is no string. Half a surrogate pair is U+FFFD.
    pub fn text(self) -> Option<Cow<'a, str>> {
        if self.0.len() < 2 || self.first() != b'"' || !self.0.ends_with(b"\"") {
            return None;
        }
        let inner = std::str::from_utf8(&self.0[1..self.0.len() - 1]).ok()?;
        Some(if inner.contains('\\') { Cow::Owned(unescape(inner)) } else { Cow::Borrowed(inner) })
    }

    /// [`Value::text`], or nothing.
    pub fn text_or_empty(self) -> Cow<'a, str> {
        self.text().unwrap_or_default()
    }

    /// A whole number that fits.
    pub fn int(self) -> Option<i64> {
        self.raw().parse().ok().filter(|_| self.first() != b'+')
    }

    pub fn float(self) -> Option<f64> {
        self.raw().parse().ok().filter(|_| matches!(self.first(), b'-' | b'0'..=b'9'))
    }

    pub fn bool(self) -> Option<bool> {
        self.raw().parse().ok()
    }
}

/// The first key of a path, and the path behind it. A backslash takes the character behind it literally.
fn next_key(path: &str) -> (Cow<'_, str>, Option<&str>) {
    match path.bytes().position(|b| b == b'.' || b == b'\\') {
        None => return (Cow::Borrowed(path), None),
        Some(end) if path.as_bytes()[end] == b'.' => return (Cow::Borrowed(&path[..end]), Some(&path[end + 1..])),
        _ => {}
    }
    let (mut key, mut escaped) = (String::new(), false);
    for (i, c) in path.char_indices() {
        match c {
            '.' if !escaped => return (Cow::Owned(key), Some(&path[i + 1..])),
            '\\' if !escaped && i + 1 < path.len() => escaped = true,
            _ => {
                key.push(c);
                escaped = false;
            }
        }
    }
    (Cow::Owned(key), None)
}

fn trim_start(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r')).count();
    &text[spaces..]
}

const SPACES: &[char] = &[' ', '\t', '\n', '\r'];

/// The element that a rest of an array or object begins with, and the rest behind it; a comma before it is skipped.
fn next(rest: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let rest = trim_start(rest);
    let rest = trim_start(rest.strip_prefix(b",").unwrap_or(rest));
    let end = value_end(rest);
    if end == 0 {
        return None;
    }
    Some((Value(&rest[..end]), &rest[end..]))
}

/// The length of the value at the start of a text. It counts brackets, so that depth costs no stack.
fn value_end(text: &[u8]) -> usize {
    let (mut depth, mut i) = (0u32, 0);
    while i < text.len() {
        match text[i] {
            b'"' => i = string_end(text, i),
            b'{' | b'[' => {
                depth += 1;
                i += 1;
                continue;
            }
            b'}' | b']' if depth == 0 => return i,
            b'}' | b']' => {
                depth -= 1;
                i += 1;
            }
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return i,
            _ => {
                i += 1;
                continue; // within a number or a word, or nested
            }
        }
        if depth == 0 {
            return i;
        }
    }
    text.len()
}

/// The text behind the string whose opening quote is at i.
fn string_end(text: &[u8], mut i: usize) -> usize {
    i += 1;
    while i < text.len() {
        match text[i] {
            b'"' => return i + 1,
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
    text.len()
}

fn unescape(inner: &str) -> String {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let escape = match rest.chars().next() {
            Some(c) => c,
            None => break,
        };
        rest = &rest[escape.len_utf8()..];
        match escape {
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => {
                let (c, used) = unicode(rest);
                out.extend(c);
                rest = &rest[used..];
            }
            other => out.push(other),
        }
    }
    out.push_str(rest);
    out
}

/// The character of the digits that follow `\u`, both halves of a pair, and their number of bytes.
fn unicode(text: &str) -> (Option<char>, usize) {
    let high = match unit(text) {
        Some(unit) => unit,
        None => return (None, 0),
    };
    if (0xd800..0xdc00).contains(&high) {
        if let Some(low) = text[4..].strip_prefix("\\u").and_then(unit).filter(|low| (0xdc00..0xe000).contains(low)) {
            return (char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 10);
        }
    }
    (Some(char::from_u32(high).unwrap_or('\u{fffd}')), 4)
}

fn unit(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok()
}

/// Writes one JSON value, and the commas in it.
#[derive(Clone, Debug, Default)]
pub struct Writer(String);

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    fn value(&mut self) -> &mut String {
        // Behind an opening bracket, a colon, or nothing, there is no comma. A text ends with its quote.
        if !matches!(self.0.as_bytes().last(), None | Some(b'{' | b'[' | b':')) {
            self.0.push(',');
        }
        &mut self.0
    }

    /// An object, whose members the function writes: each a [`Writer::key`] and a value.
    pub fn object(&mut self, members: impl FnOnce(&mut Writer)) -> &mut Writer {
        self.value().push('{');
        members(self);
        self.0.push('}');
        self
    }

    /// An array, whose elements the function writes.
    pub fn array(&mut self, elements: impl FnOnce(&mut Writer)) -> &mut Writer {
        self.value().push('[');
        elements(self);
        self.0.push(']');
        self
    }

    /// The key of the member whose value comes next.
    pub fn key(&mut self, key: &str) -> &mut Writer {
        self.string(key);
        self.0.push(':');
        self
    }

    pub fn string(&mut self, text: &str) -> &mut Writer {
        let out = self.value();
        out.push('"');
        let mut from = 0; // of the characters that are written as they are
        for (i, b) in text.bytes().enumerate() {
            if b >= b' ' && b != b'"' && b != b'\\' {
                continue;
            }
            out.push_str(&text[from..i]);
            from = i + 1;
            match b {
                b'"' | b'\\' => out.extend(['\\', char::from(b)]),
                8 => out.push_str("\\b"),
                12 => out.push_str("\\f"),
                b'\n' => out.push_str("\\n"),
                b'\r' => out.push_str("\\r"),
                b'\t' => out.push_str("\\t"),
                _ => {
                    let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or('0');
                    out.extend(['\\', 'u', '0', '0', digit(b >> 4), digit(b & 15)]);
                }
            }
        }
        out.push_str(&text[from..]);
        out.push('"');
        self
    }

    pub fn int(&mut self, v: i64) -> &mut Writer {
        let digits = v.to_string();
        self.raw(&digits)
    }

    pub fn bool(&mut self, v: bool) -> &mut Writer {
        self.raw(if v { "true" } else { "false" })
    }

    pub fn null(&mut self) -> &mut Writer {
        self.raw("null")
    }

    /// A value that is JSON already.
    pub fn raw(&mut self, json: &str) -> &mut Writer {
        self.value().push_str(json);
        self
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Writer> for String {
    fn from(w: Writer) -> String {
        w.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads() {
        let v = Value::new(r#" { "a" : [1, -2 ,"x}\"" ,{"b":[]}], "c\u0021": true,"d":{"e":"f"},"n":null } "#);
        assert_eq!(v.get("a").items().map(Value::raw).collect::<Vec<_>>(), ["1", "-2", "\"x}\\\"\"", "{\"b\":[]}"]);
        assert_eq!(v.get("c!").bool(), Some(true));
        assert_eq!(v.at(&["d", "e"]).text().as_deref(), Some("f"));
        assert_eq!(v.path("d.e").raw(), "\"f\"");
        assert!(v.path("d.e.f").is_absent() && v.path("d.x").is_absent() && v.path("").is_absent() && v.path(".").is_absent());
        let v2 = Value::new(r#"{"a.b":{"c\\":1,"d\u0065.":2},"":{"":3}}"#);
        assert_eq!([r"a\.b.c\\", r"a\.b.c\", r"a\.b.de\.", "."].map(|path| v2.path(path).raw()), ["1", "1", "2", "3"]);
        assert!(v.get("n").is_null() && v.at(&["d", "x", "y"]).is_absent());
        assert_eq!(v.members().map(|(k, _)| k.into_owned()).collect::<Vec<_>>(), ["a", "c!", "d", "n"]);
        assert_eq!(Value::new("[]").items().count() + Value::new("{}").members().count(), 0);
        let numbers = ["9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.5", "+1", "x", ""];
        let want = [Some(i64::MAX), Some(i64::MIN), None, None, None, None, None];
        assert_eq!(numbers.map(|n| Value::new(n).int()), want);
        assert_eq!(["1.5e3", "inf", "-0.5"].map(|n| Value::new(n).float()), [Some(1500.0), None, Some(-0.5)]);
    }

    #[test]
    fn unescapes() {
        let tests = [
            (r#""""#, ""),
            (r#""a\"\\\/\b\f\n\r\t""#, "a\"\\/\u{8}\u{c}\n\r\t"),
            (r#""\u00e9\ud83d\ude00é""#, "é😀é"),
            (r#""\ud83d \ude00\ud83d\u0041""#, "\u{fffd} \u{fffd}\u{fffd}A"),
            (r#""\u12""#, "12"),
        ];
        for (text, want) in tests {
            assert_eq!(Value::new(text).text().as_deref(), Some(want), "{}", text);
        }
    }

    /// Text that is not JSON causes neither a panic nor an endless loop.
    #[test]
    fn survives() {
        let text = r#"{"a":[1,{"é\u00e9\"":"\ud83d\ude00"}],"b":tr"#;
        for (i, _) in text.char_indices() {
            for (j, _) in text.char_indices().filter(|(j, _)| *j >= i) {
                let v = Value::new(&text[i..j]);
                let _ = (v.text(), v.int(), v.get("a").items().count(), v.items().count(), v.members().count());
            }
        }
        for bad in ["{\"a\"", "{\"a\":", "{:", "{,", "[,,]", "{1:2}", "[}", "{]", "\"\\", "\"\\u", "[\"\\"] {
            let v = Value::new(bad);
            let _ = (v.text(), v.items().count(), v.members().count(), v.get("a"));
        }
    }

    #[test]
    fn writes() {
        let mut w = Writer::new();
        w.object(|o| {
            o.key("a\n").array(|a| {
                a.int(i64::MIN).bool(true).null().string("\"{\u{1}\u{1f}é").array(|_| {}).object(|_| {});
            });
            o.key("b").raw("[1]");
        });
        assert_eq!(w.as_str(), "{\"a\\n\":[-9223372036854775808,true,null,\"\\\"{\\u0001\\u001fé\",[],{}],\"b\":[1]}");
    }
}
