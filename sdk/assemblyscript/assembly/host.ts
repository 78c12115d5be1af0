// The host functions. A module that calls kvGet and its like, lookup or http needs the grant in the handler's `allow`, else it is not
// loaded; a function that is not called is not imported.

import { Bytes } from "./bytes";
import { Value, Writer } from "./json";
import { Delta, Event } from "./index";

// Errno is the status of a host function that failed.
export namespace Errno {
  export const NotFound: i32 = -1;
  export const Denied: i32 = -2;
  export const Quota: i32 = -3;
  export const Invalid: i32 = -4;
  export const Deadline: i32 = -5;
}

export enum Level {
  Debug,
  Info,
  Warn,
  Error,
}

// @ts-ignore: decorator
@external("rtr_v1", "log") declare function hostLog(level: i32, text: usize, size: i32): i32;
// @ts-ignore: decorator
@external("rtr_v1", "kv_get") declare function hostKVGet(key: usize, keySize: i32, buf: usize, limit: i32): i32;
// @ts-ignore: decorator
@external("rtr_v1", "kv_set") declare function hostKVSet(key: usize, keySize: i32, value: usize, size: i32, ttl: i64): i32;
// @ts-ignore: decorator
@external("rtr_v1", "kv_del") declare function hostKVDel(key: usize, keySize: i32): i32;
// @ts-ignore: decorator
@external("rtr_v1", "lookup") declare function hostLookup(request: usize, size: i32, buf: usize, limit: i32): i32;
// @ts-ignore: decorator
@external("rtr_v1", "emit") declare function hostEmit(delta: u32, event: usize, size: i32): i32;
// @ts-ignore: decorator
@external("rtr_v1", "http") declare function hostHTTP(request: usize, size: i32, buf: usize, limit: i32): i32;
// @ts-ignore: decorator
@external("rtr_v1", "now_ns") declare function hostNow(): i64;
// @ts-ignore: decorator
@external("rtr_v1", "random") declare function hostRandom(buf: usize, size: i32): i32;

// @ts-ignore: decorator
@external("rtr_v1", "field") declare function hostField(delta: u32, which: u32, path: usize, pathSize: i32): i64;

// field finds a field of an object of the batch, for Delta.path: the router reads the text that the guest has, too.
export function field(delta: u32, which: u32, object: usize, size: i32, path: string): Value {
  let place: i64;
  if (path.length <= 341) {
    const utf8 = memory.data(1023); // 3 bytes per unit are enough
    place = hostField(delta, which, utf8, <i32>String.UTF8.encodeUnsafe(changetype<usize>(path), path.length, utf8));
  } else {
    const utf8 = String.UTF8.encode(path);
    place = hostField(delta, which, changetype<usize>(utf8), utf8.byteLength);
  }
  if (place == Errno.NotFound) return Value.absent();
  if (place < 0) return new Value(object, size).path(path); // the host does not search
  const at = <u32>(place >> 32), length = <u32>place;
  if (at > <u32>size || length > <u32>size - at) return Value.absent();
  return new Value(object + <usize>at, length);
}

// Answer is the answer of a host function that reads. The status is 0, or one of Errno.
export class Answer {
  constructor(public status: i32, public buffer: ArrayBuffer) {}

  get ok(): bool { return this.status == 0; }
  // text is the answer as UTF-8.
  get text(): string { return String.UTF8.decode(this.buffer); }
  // value is the answer as JSON.
  get value(): Value { return Value.of(this.buffer); }
}

// take makes an answer of a result: n bytes in buffer.
function take(n: i32, buffer: ArrayBuffer): Answer {
  return n < 0 ? new Answer(n, new ArrayBuffer(0)) : new Answer(0, buffer.slice(0, n));
}

// log writes a line into the router's log.
export function log(level: Level, text: string): void {
  const utf8 = String.UTF8.encode(text);
  hostLog(level, changetype<usize>(utf8), utf8.byteLength);
}

// kvGet reads the value of a key in the store of this handler.
export function kvGet(key: string): Answer {
  const k = String.UTF8.encode(key);
  let buffer = new ArrayBuffer(4096);
  let n = hostKVGet(changetype<usize>(k), k.byteLength, changetype<usize>(buffer), buffer.byteLength);
  while (n > buffer.byteLength) {
    buffer = new ArrayBuffer(n);
    n = hostKVGet(changetype<usize>(k), k.byteLength, changetype<usize>(buffer), buffer.byteLength);
  }
  return take(n, buffer);
}

// kvSet stores a text for some milliseconds, 0: for ever. It counts only if the call succeeds. The result is 0, or one of Errno.
export function kvSet(key: string, value: string, ttl: i64 = 0): i32 {
  const k = String.UTF8.encode(key);
  const v = String.UTF8.encode(value);
  return hostKVSet(changetype<usize>(k), k.byteLength, changetype<usize>(v), v.byteLength, ttl);
}

// kvDelete removes a key.
export function kvDelete(key: string): i32 {
  const k = String.UTF8.encode(key);
  return hostKVDel(changetype<usize>(k), k.byteLength);
}

function ask(request: Writer): Answer {
  const b: Bytes = request.bytes;
  let buffer = new ArrayBuffer(4096);
  let n = hostLookup(b.start, b.size, changetype<usize>(buffer), buffer.byteLength);
  while (n > buffer.byteLength) {
    buffer = new ArrayBuffer(n);
    n = hostLookup(b.start, b.size, changetype<usize>(buffer), buffer.byteLength);
  }
  return take(n, buffer);
}

// lookup finds the objects that an index has under a key: lookup("pods.byNode", "n1").value.get("objects").items().
export function lookup(index: string, key: string): Answer {
  return ask(new Writer().open("{").key("index").text(index).key("key").text(key).close("}"));
}

// list gives all objects of a source.
export function list(source: string): Answer {
  return ask(new Writer().open("{").key("list").text(source).close("}"));
}

// count is the number of objects that lookup finds, or one of Errno.
export function count(index: string, key: string): i64 {
  const answer = ask(new Writer().open("{").key("index").text(index).key("key").text(key).key("count").bool(true).close("}"));
  return answer.ok ? answer.value.get("count").int(Errno.Invalid) : answer.status;
}

// get finds one object of a source, absent if there is none.
export function get(source: string, namespace: string, name: string): Value {
  const request = new Writer().open("{").key("get").text(source).key("namespace").text(namespace).key("name").text(name).close("}");
  const objects = ask(request).value.get("objects").items();
  return objects.length > 0 ? objects[0] : Value.absent();
}

// emit emits an event at once, beside those that the handler returns. It counts only if the call succeeds.
export function emit(d: Delta, event: Event): i32 {
  const w = new Writer();
  event.write(w);
  return hostEmit(d.index, w.bytes.start, w.bytes.size);
}

// http sends a request, a JSON object {"method", "url", "headers", "body"}, to a host that the handler is granted; the answer is
// {"status", "headers", "body"}. See docs/ABI.md for bodies that are not UTF-8, and for the meaning of the status 0.
export function http(request: Writer): Answer {
  const b: Bytes = request.bytes;
  let buffer = new ArrayBuffer(4096);
  let n = hostHTTP(b.start, b.size, changetype<usize>(buffer), buffer.byteLength);
  // The router keeps an answer that did not fit: the second call reads it, and sends no second request.
  while (n > buffer.byteLength) {
    buffer = new ArrayBuffer(n);
    n = hostHTTP(b.start, b.size, changetype<usize>(buffer), buffer.byteLength);
  }
  return take(n, buffer);
}

// now is the time, in nanoseconds since 1970.
export function now(): i64 {
  return hostNow();
}

// random fills a buffer.
export function random(buffer: ArrayBuffer): i32 {
  return hostRandom(changetype<usize>(buffer), buffer.byteLength);
}
