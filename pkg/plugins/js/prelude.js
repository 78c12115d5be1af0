// The environment of a handler, evaluated before its code. The host calls the result with its
// functions, and gets the functions that it calls. The code of the handler cannot reach these.
(function (hostLog, hostLookup, hostHTTP, hostLoad, hostStore, hostRemove, hostSeed, config, largeIntegers) {
  'use strict';
  const { parse: parseJSON, stringify } = JSON;
  const { defineProperty, freeze, keys: members } = Object;
  const { isArray } = Array;
  const text = String;

  // A number of JavaScript has no integer beyond 2^53 exactly.
  const { isSafeInteger } = Number;
  const token = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
  const quoted = (number) => (/^-?\d{16,}$/.test(number) && !isSafeInteger(+number) ? '"' + number + '"' : number);
  const exact = (json) => parseJSON(/\d{16}/.test(json) ? json.replace(token, quoted) : json);
  const parse = largeIntegers === 'text' ? exact : parseJSON;

  // An answer of the host is '+' and a text, or the number of an error.
  const errors = {
    '-1': 'there is none',
    '-3': 'a limit was exceeded',
    '-4': 'an argument is not valid',
    '-5': 'no answer in time',
  };
  function answer(name, grant, reply) {
    if (reply[0] === '+') return reply.slice(1);
    if (reply === '-2') throw new Error(name + ': not granted: see ' + grant);
    throw new Error(name + ': ' + (errors[reply] ?? reply));
  }

  const look = (name, request) => parse(answer(name, 'allow.lookup', hostLookup(stringify(request))));
  const kv = freeze({
    get(key) {
      const reply = hostLoad(text(key));
      return reply === '-1' ? undefined : parse(answer('kv.get', 'allow.kv', reply));
    },
    set(key, value, options) {
      const json = stringify(value);
      if (json === undefined) throw new TypeError('kv.set: the value cannot be written as JSON');
      answer('kv.set', 'allow.kv', hostStore(text(key), json, text(options?.ttlMs ?? 0)));
    },
    delete(key) {
      const reply = hostRemove(text(key));
      if (reply === '-1') return false;
      answer('kv.delete', 'allow.kv', reply);
      return true;
    },
  });

  class Retry extends Error {
    constructor(message, afterMs) {
      super(message);
      this.afterMs = afterMs;
    }
  }
  const drop = Symbol('drop');
  const ctx = freeze({
    config: parse(config),
    drop,
    retry: (message, afterMs) => new Retry(text(message), afterMs),
    lookup: (index, key) => look('lookup', { index, key }).objects,
    list: (source) => look('list', { list: source }).objects,
    get: (source, namespace, name) => look('get', { get: source, namespace, name }).objects[0],
    count: (index, key) => look('count', index.includes('.') ? { index, key, count: true } : { list: index, count: true }).count,
    http: (request) => parse(answer('http', 'allow.http', hostHTTP(stringify(request)))),
    kv,
  });

  // console
  function shown(value) {
    if (typeof value === 'string') return value;
    if (value instanceof Error) return value.stack ? value + '\n' + value.stack : text(value);
    try {
      return stringify(value) ?? text(value);
    } catch {
      return text(value);
    }
  }
  const print = (level) => (...values) => {
    let line = '';
    for (let i = 0; i < values.length; i++) line += (i ? ' ' : '') + shown(values[i]);
    hostLog(level, line);
  };
  globalThis.console = { debug: print('0'), log: print('1'), info: print('1'), warn: print('2'), error: print('3') };

  // Math.random is sfc32, and begins again with each delta.
  let a, b, c, d;
  let seeded = false;
  Math.random = function random() {
    if (!seeded) {
      const seed = hostSeed();
      [a, b, c, d] = [0, 8, 16, 24].map((at) => parseInt(seed.slice(at, at + 8), 16) | 0);
      seeded = true;
    }
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + t) | 0;
    return (t >>> 0) / 4294967296;
  };

  // An object is parsed when the handler reads it.
  function lazy(delta, name, json) {
    const set = (value) => defineProperty(delta, name, { value, enumerable: true, configurable: true, writable: true });
    if (!json) return;
    defineProperty(delta, name, {
      enumerable: true,
      configurable: true,
      get() {
        const value = parse(json);
        set(value);
        return value;
      },
      set,
    });
  }

  function checked(event, i) {
    if (event === null || typeof event !== 'object' || isArray(event)) throw new TypeError('event ' + i + ' is not an object {type, subject, data}');
    const own = members(event);
    for (let k = 0; k < own.length; k++) {
      const key = own[k];
      if (key !== 'type' && key !== 'subject' && key !== 'data') throw new TypeError('event ' + i + ' has the member ' + key + ': an event is {type, subject, data}');
    }
    if (event.data === undefined) throw new TypeError('event ' + i + ' has no data');
    return { type: event.type, subject: event.subject, data: event.data };
  }
  function done(result) {
    if (result === undefined || result === null) return '';
    if (result === drop) return '{"v":2}';
    if (!isArray(result)) throw new TypeError('the handler returned neither an array of events nor nothing');
    const e = [];
    for (let i = 0; i < result.length; i++) e[i] = checked(result[i], i);
    return e.length ? stringify({ v: 0, e }) : '';
  }
  function failed(error) {
    if (error instanceof Retry) return stringify({ v: 1, m: error.message, a: error.afterMs });
    if (error instanceof Error) return stringify({ v: 3, m: text(error), s: text(error.stack) });
    return stringify({ v: 3, m: 'threw ' + shown(error) });
  }
  function attempt(f, value) {
    try {
      return f(value);
    } catch (error) {
      return failed(error);
    }
  }

  let handler, settled;
  return {
    // setup takes the module of the handler.
    setup(module) {
      handler = module.default;
      if (typeof handler !== 'function') throw new TypeError('it has no default export that is a function: export default function (delta, ctx) { … }');
    },
    // handle returns the answer for a delta. If the handler is async, its jobs have to run, and
    // settle returns the answer.
    handle(meta, object, oldObject) {
      seeded = false;
      return attempt(() => {
        const delta = parse(meta);
        lazy(delta, 'object', object);
        lazy(delta, 'oldObject', oldObject);
        const result = handler(delta, ctx);
        if (!(result instanceof Promise)) return done(result);
        settled = '{"v":3,"m":"the promise of the handler is never settled"}';
        result.then((value) => (settled = attempt(done, value)), (error) => (settled = failed(error)));
        return 'async';
      });
    },
    settle: () => settled,
  };
})
