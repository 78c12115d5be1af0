// The exports of a module, which its main file exports again. See docs/ABI.md for the layout.

import { Bytes, Delta, Result, Value, Writer, handle, start } from "./index";
import { log, Level } from "./host";

const maxMessage = 4096;

// The buffers that the router reads or writes must stay alive between calls.
let input: ArrayBuffer = new ArrayBuffer(0);
let reason: Bytes = new Bytes();
const records: Bytes = new Bytes();
const payload: Writer = new Writer();

export function rtr_abi_version(): i32 {
  return 1;
}

export function rtr_alloc(size: i32): usize {
  input = new ArrayBuffer(size + 8);
  return (changetype<usize>(input) + 7) & ~7;
}

export function rtr_init(config: usize, size: i32): usize {
  const message = start(new Value(config, size).copy());
  if (message.length == 0) return 0;
  reason.room(4);
  reason.text(message);
  store<u32>(reason.start, min(reason.size - 4, maxMessage));
  return reason.start;
}

export function rtr_handle(batch: usize, size: i32): u64 {
  assert(size >= 16 && load<u32>(batch) == 0x31525452, "not a batch");
  const count = load<u32>(batch, 8);
  records.clear();
  payload.bytes.clear();
  store<u32>(records.room(4), 0);
  for (let i: u32 = 0; i < count; i++) {
    const result = handle(new Delta(batch, i));
    if (result.verdict != 0 || result.events.length > 0) record(i, result);
  }
  const n = (records.size - 4) / 28;
  if (n == 0) return 0;
  store<u32>(records.start, n);
  const base: u32 = records.size; // offsets were into payload, which comes behind the records
  for (let i = 0; i < n; i++) {
    const at = records.start + 4 + 28 * <usize>i;
    if (load<u32>(at, 16) > 0) store<u32>(at, load<u32>(at, 12) + base, 12);
    if (load<u32>(at, 24) > 0) store<u32>(at, load<u32>(at, 20) + base, 20);
  }
  records.append(payload.bytes.start, payload.bytes.size);
  return (<u64>records.start << 32) | <u64>records.size;
}

// record writes the record of a delta, and its events or message.
function record(index: u32, result: Result): void {
  const bytes = payload.bytes;
  const from = bytes.size;
  const at = records.room(28);
  memory.fill(at, 0, 28);
  store<u32>(at, index);
  store<u8>(at, result.verdict, 4);
  if (result.verdict != 0) {
    bytes.text(result.message);
    bytes.size = min(bytes.size, from + maxMessage);
    store<u32>(at, result.after, 8);
    store<u32>(at, from, 12);
    store<u32>(at, bytes.size - from, 16);
    return;
  }
  assert(result.events.length <= 0xffff, "more than 65535 events for one delta");
  for (let i = 0; i < result.events.length; i++) {
    const start = bytes.size;
    bytes.room(4);
    result.events[i].write(payload);
    store<u32>(bytes.start + <usize>start, bytes.size - start - 4);
  }
  store<u16>(at, <u16>result.events.length, 6);
  store<u32>(at, from, 20);
  store<u32>(at, bytes.size - from, 24);
}

// abort takes the place of the runtime's: asc --use abort=deltarouter/assembly/exports/abort.
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const what = message ? message : "";
  const where = file ? file : "";
  log(Level.Error, "abort: " + what + " at " + where + ":" + line.toString() + ":" + column.toString());
  unreachable();
}
