// The router's side of the ABI rtr_v1 for tests in node: it loads a module, of any language that imports nothing else, and hands it
// deltas.
//
//   import { load } from "deltarouter/host";
//   const guest = await load("handler.wasm", { config: { threshold: 3 } });
//   const [result] = guest.handle([{ op: "added", object: { metadata: { name: "a" } } }]);

import { readFile } from "node:fs/promises";

const ops = ["added", "updated", "deleted", "deselected", "sync", "entered", "left"];
const verdicts = [null, "retry", "drop", "error"];
const [notFound, denied, invalid] = [-1, -2, -4];
const utf8 = new TextEncoder();
const text = new TextDecoder("utf-8", { fatal: true });

// load starts a module. Of the options, each may be absent: config is the handler's configuration; kv a Map of texts; lookup and
// http are functions from the request to the answer, undefined for none; log gets level and text.
export async function load(file, options = {}) {
  const guest = new Guest(options);
  const { instance } = await WebAssembly.instantiate(await readFile(file), guest.imports());
  guest.start(instance.exports);
  return guest;
}

// Guest is an instance of a module.
export class Guest {
  emitted = []; // by the host function emit

  constructor(options) {
    this.options = { config: null, log: () => {}, ...options };
  }

  imports() {
    const o = this.options;
    const say = (ptr, size) => text.decode(this.bytes(ptr, size));
    // A function that is not granted is not there, as on the router.
    const rtr_v1 = {
      log: (level, ptr, size) => (o.log(level, say(ptr, size)), 0),
      emit: (index, ptr, size) => (this.emitted.push(JSON.parse(say(ptr, size))), 0),
      field: () => BigInt(denied), // the SDK searches itself
      now_ns: () => BigInt(o.now ?? 0),
      random: (ptr, size) => (this.bytes(ptr, size).forEach((_, i, b) => (b[i] = i + 1)), 0),
      config_get: (key, keySize, buf, limit) => {
        const value = keySize ? (o.config ?? {})[say(key, keySize)] : o.config;
        return this.give(value === undefined ? undefined : JSON.stringify(value), buf, limit);
      },
    };
    if (o.kv) {
      rtr_v1.kv_get = (key, keySize, buf, limit) => this.give(o.kv.get(say(key, keySize)), buf, limit);
      rtr_v1.kv_set = (key, keySize, ptr, size, ttl) => (ttl < 0n ? invalid : (o.kv.set(say(key, keySize), say(ptr, size)), 0));
      rtr_v1.kv_del = (key, keySize) => (o.kv.delete(say(key, keySize)) ? 0 : notFound);
    }
    for (const name of ["lookup", "http"]) {
      if (o[name]) rtr_v1[name] = (ptr, size, buf, limit) => this.ask(o[name](JSON.parse(say(ptr, size))), buf, limit);
    }
    return { rtr_v1 };
  }

  ask(answer, buf, limit) {
    return answer === undefined ? denied : this.give(JSON.stringify(answer), buf, limit);
  }

  give(value, buf, limit) {
    if (value === undefined) return notFound;
    const b = utf8.encode(value);
    if (b.length <= limit) this.bytes(buf, b.length).set(b);
    return b.length;
  }

  bytes(ptr, size) {
    return new Uint8Array(this.exports.memory.buffer, ptr >>> 0, size);
  }

  start(exports) {
    this.exports = exports;
    exports._initialize?.();
    if (exports.rtr_abi_version() !== 1) throw new Error("another version of the ABI");
    const config = utf8.encode(JSON.stringify(this.options.config));
    const code = exports.rtr_init?.(this.write(config), config.length) ?? 0;
    if (code !== 0) throw new Error(`rtr_init: ${text.decode(this.bytes(code + 4, this.u32(code)))}`);
  }

  write(bytes) {
    const ptr = this.exports.rtr_alloc(bytes.length);
    if (ptr === 0 || ptr % 8 !== 0) throw new Error(`rtr_alloc returned ${ptr}`);
    this.bytes(ptr, bytes.length).set(bytes);
    return ptr;
  }

  u32(ptr) {
    return new DataView(this.exports.memory.buffer).getUint32(ptr >>> 0, true);
  }

  // handle returns a result per delta {op, object, oldObject, source, cluster, resource, initial, stale, redelivered, late,
  // repeat, since, suppressed, traceparent, with, event: {id, type, source, subject, route, time, data}}; since and time are texts
  // that Date reads. Objects are values, or texts of JSON. A result is {events}, {error}, {retry}, {drop: true} or {}.
  handle(deltas) {
    const first = deltas[0]; // all of a batch have a traceparent, or none has, and the same is true of with
    const end = deltas.findIndex((d) => !d.traceparent !== !first.traceparent || (d.with === undefined) !== (first.with === undefined));
    if (end > 0) return [...this.handle(deltas.slice(0, end)), ...this.handle(deltas.slice(end))];
    const batch = encode(deltas);
    const ret = BigInt.asUintN(64, this.exports.rtr_handle(this.write(batch), batch.length));
    const results = deltas.map(() => ({}));
    if (ret < 4n) return ret === 0n ? results : deltas.map(() => ({ [verdicts[Number(ret)]]: true }));
    const at = Number(ret >> 32n);
    for (let i = 0, rec = at + 4; i < this.u32(at); i++, rec += 28) results[this.u32(rec)] = this.result(at, rec);
    return results;
  }

  result(at, rec) {
    const [verdict, , low, high] = this.bytes(rec + 4, 4);
    if (verdict === 2) return { drop: true };
    if (verdict !== 0) return { [verdicts[verdict]]: text.decode(this.bytes(at + this.u32(rec + 12), this.u32(rec + 16))) };
    const events = [];
    let from = at + this.u32(rec + 20);
    for (let n = low | (high << 8); n > 0; n--) {
      const size = this.u32(from);
      events.push(JSON.parse(text.decode(this.bytes(from + 4, size))));
      from += 4 + size;
    }
    return { events };
  }
}

// encode writes a batch.
function encode(deltas) {
  const pieces = [];
  const traced = deltas[0]?.traceparent !== undefined;
  const extended = deltas.some((d) => d.with !== undefined);
  let size = 16 + (32 + (traced ? 8 : 0) + (extended ? 8 : 0)) * deltas.length;
  const put = (bytes) => {
    const off = size;
    pieces.push([off, bytes]);
    size = (size + bytes.length + 7) & ~7;
    return off;
  };
  const out = deltas.map((d) => encodeOne(d, put));
  const traces = traced ? deltas.map((d) => utf8.encode(d.traceparent)).map((b) => [put(b), b.length]) : [];
  const values = extended ? deltas.map((d) => utf8.encode(JSON.stringify(d.with ?? {}))).map((b) => [put(b), b.length]) : [];
  const batch = new Uint8Array(size);
  const view = new DataView(batch.buffer);
  [0x31525452, ((traced ? 1 : 0) | (extended ? 2 : 0)) << 16 | 1, deltas.length, size].forEach((v, i) => view.setUint32(4 * i, v, true));
  out.forEach((d, i) => {
    const rec = 16 + 32 * i;
    view.setUint32(rec, i, true);
    view.setUint8(rec + 8, d.op);
    view.setUint16(rec + 10, d.flags, true);
    [...d.new, ...d.old, d.meta].forEach((v, j) => view.setUint32(rec + 12 + 4 * j, v, true));
  });
  [...traces, ...values].flat().forEach((v, j) => view.setUint32(16 + 32 * deltas.length + 4 * j, v, true));
  for (const [off, bytes] of pieces) batch.set(bytes, off);
  return batch;
}

function encodeOne(d, put) {
  const json = (v) => (v === undefined ? "" : typeof v === "string" ? v : JSON.stringify(v));
  const object = typeof d.object === "string" ? JSON.parse(d.object) : d.object;
  const gone = d.op === "deleted" || d.op === "deselected";
  const ref = (s) => {
    const b = utf8.encode(s);
    return b.length === 0 ? [0, 0] : [put(b), b.length];
  };
  const m = object.metadata ?? {};
  const meta = ["source", "cluster", "resource"].map((name) => d[name] ?? "test");
  meta.push(object.kind ?? "", m.namespace ?? "", m.name ?? "", m.uid ?? "", m.resourceVersion ?? "");
  const refs = meta.map(ref);
  const number = (n) => [put(new Uint8Array(new BigInt64Array([n]).buffer)), 8];
  refs.push(number(0n));
  const time = (text) => number(BigInt(Date.parse(text)) * 1000000n);
  if (d.since || d.suppressed || d.event) refs.push(d.since ? time(d.since) : [0, 0]);
  if (d.suppressed || d.event) refs.push(d.suppressed ? number(BigInt(d.suppressed)) : [0, 0]);
  if (d.event) {
    const e = d.event;
    refs.push(...["id", "type", "source", "subject", "route"].map((name) => ref(e[name] ?? "")), time(e.time), ref(json(e.data)));
  }
  return {
    op: ops.indexOf(d.op) + 1,
    flags: (d.initial ? 1 : 0) | (d.stale ? 2 : 0) | (d.redelivered ? 4 : 0) | (d.late ? 8 : 0) | (d.repeat ? 16 : 0),
    new: ref(gone ? "" : json(d.object)),
    old: ref(gone ? json(d.oldObject ?? d.object) : json(d.oldObject)),
    meta: put(new Uint8Array(new Uint32Array([refs.length, ...refs.flat()]).buffer)),
  };
}
