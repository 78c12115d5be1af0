// Reading and writing JSON. A Value is a piece of the text it stands in: nothing is copied or built, and a look-up scans the text
// before it. Text that is not JSON reads as absent. No read leaves the text, whatever its content is.

import { Bytes, decode } from "./bytes";

// @ts-ignore: decorator
@inline function isSpace(c: u8): bool {
  return c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09;
}

function skipSpace(p: usize, end: usize): usize {
  while (p < end && isSpace(load<u8>(p))) p++;
  return p;
}

// skipString returns the text behind the string whose opening quote is at p.
function skipString(p: usize, end: usize): usize {
  for (p++; p < end; p++) {
    const c = load<u8>(p);
    if (c == 0x22) return p + 1;
    if (c == 0x5c) p++;
  }
  return end;
}

// skipValue returns the text behind the value at p. It counts brackets, so that depth costs no stack.
function skipValue(p: usize, end: usize): usize {
  let depth = 0;
  while (p < end) {
    const c = load<u8>(p);
    if (c == 0x22) {
      p = skipString(p, end);
    } else if (c == 0x7b || c == 0x5b) { // { [
      depth++;
      p++;
      continue;
    } else if (c == 0x7d || c == 0x5d) { // } ]
      if (depth == 0) return p;
      depth--;
      p++;
    } else if (depth == 0 && (c == 0x2c || c == 0x3a || isSpace(c))) { // , :
      return p;
    } else {
      p++;
      continue; // within a number or a word, or nested
    }
    if (depth == 0) return p;
  }
  return end;
}

// Member is one member of an object.
export class Member {
  constructor(public key: string, public value: Value) {}
}

// Value is the text of one JSON value, without spaces around it; its size is 0 if there is none.
export class Value {
  // The owner keeps the text alive; null: the router's buffer, which is valid until the handler returns.
  constructor(public start: usize, public size: i32, private owner: ArrayBuffer | null = null) {}

  static absent(): Value {
    return new Value(0, 0);
  }

  // parse is the value that a text holds.
  static parse(text: string): Value {
    return Value.of(String.UTF8.encode(text));
  }

  // of is the value that a buffer holds, in UTF-8.
  static of(buffer: ArrayBuffer): Value {
    let p = changetype<usize>(buffer);
    let end = p + <usize>buffer.byteLength;
    p = skipSpace(p, end);
    while (end > p && isSpace(load<u8>(end - 1))) end--;
    return new Value(p, <i32>(end - p), buffer);
  }

  // copy is the same value in memory of its own, to be kept.
  copy(): Value {
    const buffer = new ArrayBuffer(this.size);
    memory.copy(changetype<usize>(buffer), this.start, this.size);
    return new Value(changetype<usize>(buffer), this.size, buffer);
  }

  private first(): u8 {
    return this.size > 0 ? load<u8>(this.start) : 0;
  }

  get isAbsent(): bool {
    return this.size == 0;
  }

  get isNull(): bool {
    return this.first() == 0x6e;
  }

  get isText(): bool {
    return this.size >= 2 && this.first() == 0x22 && load<u8>(this.start + <usize>this.size - 1) == 0x22;
  }

  // raw is the text itself.
  raw(): string {
    return decode(this.start, this.size);
  }

  // get returns the value of a member of an object.
  get(key: string): Value {
    const wanted = String.UTF8.encode(key);
    const it = new Walk(this, true);
    while (it.next()) {
      if (it.keyIs(key, wanted)) return it.value(this.owner);
    }
    return Value.absent();
  }

  // path follows keys that are separated by dots: path("metadata.labels"). In a key, \\. is a dot. For the objects of a delta
  // Delta.path is faster.
  path(keys: string): Value {
    let v: Value = this;
    let key = "";
    for (let i = 0; i <= keys.length && !v.isAbsent; i++) {
      if (i == keys.length || keys.charCodeAt(i) == 0x2e) {
        v = v.get(key);
        key = "";
        continue;
      }
      if (keys.charCodeAt(i) == 0x5c && i + 1 < keys.length) i++; // a backslash takes the next character literally
      key += keys.charAt(i);
    }
    return v;
  }

  // piece is a part of the text; absent if it is out of bounds.
  piece(at: i32, size: i32): Value {
    if (<u32>at > <u32>this.size || <u32>size > <u32>(this.size - at)) return Value.absent();
    return new Value(this.start + <usize>at, size, this.owner);
  }

  // members of an object; none if it is none.
  members(): Member[] {
    const all: Member[] = [];
    const it = new Walk(this, true);
    while (it.next()) all.push(new Member(it.key(), it.value(this.owner)));
    return all;
  }

  // items are the elements of an array; none if it is none.
  items(): Value[] {
    const all: Value[] = [];
    const it = new Walk(this, false);
    while (it.next()) all.push(it.value(this.owner));
    return all;
  }

  // text returns the content of a string, its escapes resolved; empty if it is no string.
  text(): string {
    if (!this.isText) return "";
    const inner = decode(this.start + 1, this.size - 2);
    for (let i = 1; i < this.size - 1; i++) {
      if (load<u8>(this.start + <usize>i) == 0x5c) return unescape(inner);
    }
    return inner;
  }

  // int returns a whole number that fits; otherwise if it is none.
  int(otherwise: i64 = 0): i64 {
    const negative = this.first() == 0x2d;
    const most: u64 = <u64>i64.MAX_VALUE + (negative ? 1 : 0);
    let sum: u64 = 0;
    let i: i32 = negative ? 1 : 0;
    if (i == this.size) return otherwise;
    for (; i < this.size; i++) {
      const digit = <u64>load<u8>(this.start + <usize>i) - 0x30;
      if (digit > 9 || sum > (most - digit) / 10) return otherwise;
      sum = sum * 10 + digit;
    }
    return negative ? <i64>(0 - sum) : <i64>sum;
  }

  // float returns a number, NaN if it is none.
  float(): f64 {
    return parseFloat(this.raw());
  }

  get isTrue(): bool {
    return this.first() == 0x74;
  }
}

// Walk goes through the members of an object or the elements of an array.
class Walk {
  private p: usize;
  private end: usize;
  private keyStart: usize = 0;
  private keySize: i32 = 0;
  private at: usize = 0;

  constructor(v: Value, private object: bool) {
    const opens: u8 = object ? 0x7b : 0x5b;
    const fits = v.size > 0 && load<u8>(v.start) == opens;
    this.p = v.start + (fits ? 1 : 0);
    this.end = fits ? v.start + <usize>v.size : this.p;
  }

  next(): bool {
    let p = skipSpace(this.p, this.end);
    if (p < this.end && load<u8>(p) == 0x2c) p = skipSpace(p + 1, this.end);
    if (this.object) {
      if (p >= this.end || load<u8>(p) != 0x22) return false;
      this.keyStart = p;
      p = skipString(p, this.end);
      this.keySize = <i32>(p - this.keyStart);
      p = skipSpace(p, this.end);
      if (p >= this.end || load<u8>(p) != 0x3a) return false;
      p = skipSpace(p + 1, this.end);
    }
    this.at = p;
    this.p = skipValue(p, this.end);
    return this.p > p;
  }

  key(): string {
    return new Value(this.keyStart, this.keySize).text();
  }

  keyIs(key: string, utf8: ArrayBuffer): bool {
    const n = this.keySize - 2;
    if (n == utf8.byteLength && memory.compare(this.keyStart + 1, changetype<usize>(utf8), n) == 0) return true;
    for (let i = 0; i < n; i++) {
      if (load<u8>(this.keyStart + 1 + <usize>i) == 0x5c) return this.key() == key;
    }
    return false;
  }

  value(owner: ArrayBuffer | null): Value {
    return new Value(this.at, <i32>(this.p - this.at), owner);
  }
}

function unescape(s: string): string {
  let out = "";
  let from = 0;
  for (let i = s.indexOf("\\"); i >= 0 && i + 1 < s.length; i = s.indexOf("\\", from)) {
    out += s.substring(from, i);
    const c = s.charCodeAt(i + 1);
    from = i + 2;
    if (c == 0x75) { // u
      const digits = s.substr(from, 4);
      const code = digits.length == 4 ? parseInt(digits, 16) : NaN;
      if (!isNaN(code)) {
        out += String.fromCharCode(<i32>code);
        from += 4;
      }
    } else {
      const at = "bfnrt".indexOf(String.fromCharCode(c));
      out += at < 0 ? String.fromCharCode(c) : "\b\f\n\r\t".charAt(at);
    }
  }
  return out + s.substring(from);
}

// Writer writes one JSON value, and the commas in it.
export class Writer {
  bytes: Bytes = new Bytes();

  // Behind an opening bracket, a colon, or nothing, there is no comma. A text ends with its quote.
  private comma(): void {
    if (this.bytes.size == 0) return;
    const last = load<u8>(this.bytes.start + <usize>this.bytes.size - 1);
    if (last != 0x7b && last != 0x5b && last != 0x3a) this.bytes.byte(0x2c);
  }

  // open begins an object with "{" or an array with "[", close ends it with "}" or "]".
  open(bracket: string): Writer {
    this.comma();
    return this.close(bracket);
  }

  close(bracket: string): Writer {
    this.bytes.text(bracket);
    return this;
  }

  // key writes the key of the member whose value comes next.
  key(key: string): Writer {
    this.text(key);
    this.bytes.byte(0x3a);
    return this;
  }

  text(s: string): Writer {
    this.comma();
    const n = s.length;
    const at = this.bytes.room(n + 1);
    store<u8>(at, 0x22);
    let i = 0;
    for (; i < n; i++) { // until the first character that is not written as it is
      const unit = load<u16>(changetype<usize>(s) + (<usize>i << 1));
      if (unit >= 0x80 || unit < 0x20 || unit == 0x22 || unit == 0x5c) break;
      store<u8>(at + 1 + <usize>i, <u8>unit);
    }
    this.bytes.size -= n - i;
    for (; i < n; i++) {
      const c = s.charCodeAt(i);
      if (c == 0x22 || c == 0x5c) {
        this.bytes.byte(0x5c);
        this.bytes.byte(<u8>c);
      } else if (c >= 0x20) {
        i += this.bytes.char(s, i);
      } else if (c >= 8 && c <= 13 && c != 11) {
        this.bytes.byte(0x5c);
        this.bytes.byte(<u8>"btn?fr".charCodeAt(c - 8));
      } else {
        this.bytes.text("\\u00");
        this.bytes.byte(<u8>"0123456789abcdef".charCodeAt(c >> 4));
        this.bytes.byte(<u8>"0123456789abcdef".charCodeAt(c & 15));
      }
    }
    this.bytes.byte(0x22);
    return this;
  }

  int(v: i64): Writer {
    return this.raw(v.toString());
  }

  bool(v: bool): Writer {
    return this.raw(v ? "true" : "false");
  }

  null(): Writer {
    return this.raw("null");
  }

  // raw writes a value that is JSON already.
  raw(json: string): Writer {
    this.comma();
    this.bytes.text(json);
    return this;
  }

  // value writes a value as it stands.
  value(v: Value): Writer {
    this.comma();
    this.bytes.append(v.start, v.size);
    return this;
  }

  toString(): string {
    return decode(this.bytes.start, this.bytes.size);
  }
}
