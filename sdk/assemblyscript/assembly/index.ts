// The SDK for handlers in AssemblyScript. A handler is a function that gets a change of a Kubernetes object and returns the
// events to deliver; it runs in a sandbox inside the router:
//
//   import { Delta, Event, Result, Writer, onDelta } from "deltarouter";
//   export { rtr_abi_version, rtr_alloc, rtr_init, rtr_handle } from "deltarouter/assembly/exports";
//
//   onDelta((d: Delta): Result => {
//     const data = new Writer().open("{").key("pod").text(d.name).close("}");
//     return Result.ok([new Event(data)]);
//   });

import { Bytes } from "./bytes";
import { Value, Writer } from "./json";

import { field } from "./host";

export { Value, Writer, Member } from "./json";
export * from "./host";

// Op is the type of a change. Deleted means gone; an object that merely left a source's selector is Deselected. With Sync
// nothing happened: a resync repeats every object. Entered and Left are of a route with a condition (when): it holds, or it was
// reported as Entered and holds no longer.
export enum Op {
  Added = 1,
  Updated,
  Deleted,
  Deselected,
  Sync,
  Entered,
  Left,
}

// opName returns the op as the router's configuration spells it.
export function opName(op: Op): string {
  switch (op) {
    case Op.Added: return "added";
    case Op.Updated: return "updated";
    case Op.Deleted: return "deleted";
    case Op.Deselected: return "deselected";
    case Op.Entered: return "entered";
    case Op.Left: return "left";
  }
  return "sync";
}

function piece(batch: usize, at: usize): Value {
  return new Value(batch + <usize>load<u32>(at), load<i32>(at, 4));
}

// Delta is one change of one object. Its values are valid until the handler returns; its strings may be kept.
export class Delta {
  private record: usize;

  // The index is that in the batch, at whose address it is.
  constructor(private batch: usize, public index: u32) {
    this.record = batch + 16 + 32 * <usize>index;
  }

  get op(): Op { return <Op>load<u8>(this.record, 8); }

  // initial: the object was there before the router was, and is delivered for the first time.
  get initial(): bool { return (load<u16>(this.record, 10) & 1) != 0; }
  // stale: the change was inferred from a list; oldObject is the last state known.
  get stale(): bool { return (load<u16>(this.record, 10) & 2) != 0; }
  // redelivered: from the dead letters; the object may have changed since.
  get redelivered(): bool { return (load<u16>(this.record, 10) & 4) != 0; }

  // late: Entered was due while the router was down.
  get late(): bool { return (load<u16>(this.record, 10) & 8) != 0; }
  // repeat: a reminder, Entered was reported before.
  get repeat(): bool { return (load<u16>(this.record, 10) & 16) != 0; }

  // object is the state after the change; for Deleted and Deselected the last one.
  get object(): Value {
    const object = piece(this.batch, this.record + 12);
    return object.isAbsent ? this.oldObject : object;
  }

  // oldObject is the state before the change; absent for Added and Sync, and where the source keeps no objects.
  get oldObject(): Value { return piece(this.batch, this.record + 20); }

  // path returns a field of the object: path("status.phase"). Dots separate the keys; in a key, \\. is a dot. The router finds
  // the field, which is several times faster than object.path.
  path(path: string): Value {
    const at = this.record + (load<i32>(this.record, 16) != 0 ? 12 : 20); // of the reference to the object
    return field(this.index, 0, this.batch + <usize>load<u32>(at), load<i32>(at, 4), path);
  }

  // oldPath is path for the object before the change.
  oldPath(path: string): Value {
    return field(this.index, 1, this.batch + <usize>load<u32>(this.record, 20), load<i32>(this.record, 24), path);
  }

  get source(): string { return this.text(0); }
  get cluster(): string { return this.text(1); }
  // resource is [group/]version/resource, such as v1/pods.
  get resource(): string { return this.text(2); }
  // kind is such as Pod; it may be empty.
  get kind(): string { return this.text(3); }
  // namespace is empty for a cluster-scoped object.
  get namespace(): string { return this.text(4); }
  get name(): string { return this.text(5); }
  get uid(): string { return this.text(6); }
  get resourceVersion(): string { return this.text(7); }
  // seenNs is when the router saw the change, in nanoseconds since 1970.
  get seenNs(): i64 { return this.number(8); }
  // sinceNs is when the condition of the route began to hold, likewise; 0: unknown.
  get sinceNs(): i64 { return this.number(9); }
  // suppressed is the number of deltas that the limit of the route suppressed before this one.
  get suppressed(): i64 { return this.number(10); }

  // traceparent identifies the span of the delta in its route, in the form of W3C Trace Context, for the requests of the
  // handler. It is empty if the router exports no traces.
  get traceparent(): string {
    if ((load<u16>(this.batch, 6) & 1) == 0) return "";
    return piece(this.batch, this.batch + 16 + 32 * <usize>load<u32>(this.batch, 8) + 8 * <usize>this.index).raw();
  }

  // withValues has the values of the route's with, an object; absent if the route has none.
  get withValues(): Value {
    const flags = load<u16>(this.batch, 6), count = <usize>load<u32>(this.batch, 8);
    if ((flags & 2) == 0) return Value.absent();
    return piece(this.batch, this.batch + 16 + ((flags & 1) != 0 ? 40 : 32) * count + 8 * <usize>this.index);
  }

  // isEvent: an upstream route made an event of the delta, which the other fields describe. Else the delta comes from its
  // source.
  get isEvent(): bool { return this.field(16).size == 8; }
  get eventId(): string { return this.text(11); }
  get eventType(): string { return this.text(12); }
  get eventSource(): string { return this.text(13); }
  get eventSubject(): string { return this.text(14); }
  // eventRoute is the route that made it.
  get eventRoute(): string { return this.text(15); }
  get eventTimeNs(): i64 { return this.number(16); }
  get eventData(): Value { return this.field(17); }

  private number(i: u32): i64 {
    const number = this.field(i);
    return number.size == 8 ? load<i64>(number.start) : 0;
  }

  private field(i: u32): Value {
    const meta = this.batch + <usize>load<u32>(this.record, 28);
    return i < load<u32>(meta) ? piece(this.batch, meta + 4 + 8 * <usize>i) : Value.absent(); // an older router has fewer
  }

  private text(i: u32): string {
    return this.field(i).raw();
  }
}

// Event is one event to deliver. Without a type it is io.deltarouter.<op>, without a subject namespace/name of the object.
export class Event {
  constructor(public data: Writer, public type: string = "", public subject: string = "") {}

  // write appends the event in the form of the ABI.
  write(w: Writer): void {
    w.close("{"); // without a comma before it
    if (this.type.length > 0) w.key("type").text(this.type);
    if (this.subject.length > 0) w.key("subject").text(this.subject);
    w.key("data");
    w.bytes.append(this.data.bytes.start, this.data.bytes.size);
    w.close("}");
  }
}

// Result is the result of a handler. A message must not contain parts of the object, because it is logged.
export class Result {
  private constructor(public verdict: u8, public events: Event[], public message: string, public after: u32) {}

  // ok delivers events; none if there is nothing to deliver.
  static ok(events: Event[] = []): Result { return new Result(0, events, "", 0); }
  // retry retries the delta, not before after milliseconds; 0: according to the route's retry.
  static retry(message: string, after: u32 = 0): Result { return new Result(1, [], message, after); }
  // drop is done, counted as dropped.
  static drop(): Result { return new Result(2, [], "", 0); }
  // fail lets the route's retry and onFailure decide.
  static fail(message: string): Result { return new Result(3, [], message, 0); }
}

let handler: ((d: Delta) => Result) | null = null;
let setup: ((config: Value) => string) | null = null;

// onDelta registers the handler, in the outermost scope. As there are no closures, its state is in global variables.
export function onDelta(f: (d: Delta) => Result): void {
  handler = f;
}

// onSetup registers a function that is called once per instance with the handler's `config` (null if there is none), which may be
// kept. It returns an empty text, or the reason why the router must not start.
export function onSetup(f: (config: Value) => string): void {
  setup = f;
}

// start and handle are for exports.ts.
export function start(config: Value): string {
  const f = setup;
  return f ? f(config) : "";
}

export function handle(d: Delta): Result {
  const f = handler;
  return f ? f(d) : Result.fail("no handler is registered: call onDelta in the outermost scope");
}

export { Bytes };
