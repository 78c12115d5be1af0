//! The two ends of the ABI: batches in, answers out. See docs/ABI.md for the layout.

use crate::{host, json, Delta, Op, RouteEvent, Stop, Verdict};

const MAX_MESSAGE: usize = 4096;

type Handler = Box<dyn FnMut(&Delta) -> Verdict>;

/// One instance: its buffers and its handler. Only the exports of [`crate::handler!`] use it.
#[derive(Default)]
pub struct Server {
    input: Vec<u64>, // words, so that it starts at an address divisible by 8
    handler: Option<Handler>,
    records: Vec<u8>,
    payload: Vec<u8>,
    reason: Vec<u32>,
}

impl Server {
    pub fn new() -> Server {
        Server::default()
    }

    /// rtr_alloc.
    pub fn reserve(&mut self, size: u32) -> u32 {
        self.input = Vec::new(); // before there is a larger one
        self.input = vec![0; (size as usize + 7) / 8];
        self.input.as_ptr() as usize as u32
    }

    /// rtr_init.
    pub fn init(&mut self, config: u32, size: u32, start: impl FnOnce(json::Value) -> Result<Handler, String>) -> u32 {
        std::panic::set_hook(Box::new(|info| host::log(host::Level::Error, &info.to_string())));
        let handler = {
            let config = self.written(config, size);
            start(json::Value::new(text(config)))
        };
        match handler {
            Ok(handler) => {
                self.handler = Some(handler);
                0
            }
            Err(message) => {
                let message = &message.as_bytes()[..message.len().min(MAX_MESSAGE)];
                self.reason = vec![0; 1 + (message.len() + 3) / 4];
                self.reason[0] = (message.len() as u32).to_le();
                for (i, b) in message.iter().enumerate() {
                    self.reason[1 + i / 4] |= u32::from(*b) << (8 * (i % 4));
                }
                self.reason.as_ptr() as usize as u32
            }
        }
    }

    /// rtr_handle.
    pub fn handle(&mut self, batch: u32, size: u32) -> u64 {
        let mut handler = self.handler.take().expect("rtr_init was not called");
        let (mut records, mut payload) = (std::mem::take(&mut self.records), std::mem::take(&mut self.payload));
        serve(self.written(batch, size), &mut handler, &mut records, &mut payload);
        self.handler = Some(handler);
        self.records = records;
        self.payload = payload;
        if self.records.is_empty() {
            return 0;
        }
        (self.records.as_ptr() as usize as u64) << 32 | self.records.len() as u64
    }

    /// The bytes that the host wrote into the input buffer.
    fn written(&self, at: u32, size: u32) -> &[u8] {
        let start = self.input.as_ptr() as usize;
        let from = (at as usize).wrapping_sub(start);
        let bytes = unsafe { std::slice::from_raw_parts(self.input.as_ptr() as *const u8, 8 * self.input.len()) };
        bytes.get(from..).and_then(|b| b.get(..size as usize)).expect("the batch is not in the input buffer")
    }
}

/// Names are UTF-8, because the API server ensures it. Other text is treated as empty.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("")
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// The piece of the input that an offset and a length refer to.
fn piece(input: &[u8], at: usize) -> &[u8] {
    match u32_at(input, at + 4) as usize {
        0 => &[],
        n => &input[u32_at(input, at) as usize..][..n],
    }
}

/// Handles a batch; the answer is left in records, empty if all is ok and there are no events. An offset out of bounds panics.
fn serve(input: &[u8], handler: &mut Handler, records: &mut Vec<u8>, payload: &mut Vec<u8>) {
    assert!(u32_at(input, 0) == 0x3152_5452, "not a batch");
    records.clear();
    payload.clear();
    records.extend([0; 4]);
    let mut answers = 0u32;
    for index in 0..u32_at(input, 8) {
        let delta = read(input, index);
        if let Some(record) = judge(index, handler(&delta), payload) {
            records.extend(record);
            answers += 1;
        }
    }
    if answers == 0 {
        records.clear();
        return;
    }
    records[..4].copy_from_slice(&answers.to_le_bytes());
    let base = records.len() as u32; // offsets were into the payload, which comes behind the records
    for record in records[4..].chunks_exact_mut(28) {
        for at in [12, 20] {
            if u32_at(record, at + 4) > 0 {
                let moved = u32_at(record, at) + base;
                record[at..at + 4].copy_from_slice(&moved.to_le_bytes());
            }
        }
    }
    records.append(payload);
}

/// The record of a delta, None if it needs none.
fn judge(index: u32, verdict: Verdict, payload: &mut Vec<u8>) -> Option<[u8; 28]> {
    let from = payload.len() as u32;
    let mut record = [0; 28];
    let mut put = |at: usize, v: u32| record[at..at + 4].copy_from_slice(&v.to_le_bytes());
    put(0, index);
    let (code, message) = match verdict {
        Ok(events) if events.is_empty() => return None,
        Ok(events) if events.len() > usize::from(u16::MAX) => (3, "more than 65535 events for one delta".to_string()),
        Ok(events) => {
            for event in &events {
                let start = payload.len();
                payload.extend([0; 4]);
                event.append(payload);
                let size = payload.len() - start - 4;
                payload[start..start + 4].copy_from_slice(&(size as u32).to_le_bytes());
            }
            put(4, (events.len() as u32) << 16);
            put(20, from);
            put(24, payload.len() as u32 - from);
            return Some(record);
        }
        Err(Stop::Retry(message, after)) => {
            put(8, u32::try_from(after.as_millis()).unwrap_or(u32::MAX));
            (1, message)
        }
        Err(Stop::Drop) => (2, String::new()),
        Err(Stop::Fail(message)) => (3, message),
    };
    let message = &message.as_bytes()[..message.len().min(MAX_MESSAGE)];
    payload.extend(message);
    put(4, code);
    put(12, from);
    put(16, message.len() as u32);
    Some(record)
}

/// The event that another route made, from the fields of a meta table.
fn event<'a>(field: impl Fn(usize) -> &'a [u8]) -> RouteEvent<'a> {
    RouteEvent {
        id: text(field(11)),
        kind: text(field(12)),
        source: text(field(13)),
        subject: text(field(14)),
        route: text(field(15)),
        time_ns: field(16).try_into().map_or(0, i64::from_le_bytes),
        data: json::Value::of(field(17)),
    }
}

fn read(input: &[u8], index: u32) -> Delta<'_> {
    let record = 16 + 32 * index as usize;
    let meta = u32_at(input, record + 28) as usize;
    let fields = u32_at(input, meta) as usize;
    let field = |i: usize| if i < fields { piece(input, meta + 4 + 8 * i) } else { &[] }; // an older host has fewer
    let flags = input[record + 10];
    let old_object = json::Value::of(piece(input, record + 20));
    let object = json::Value::of(piece(input, record + 12));
    let traced = input[6] & 1 != 0; // a flag of the batch
    let traceparent = if traced { text(piece(input, 16 + 32 * u32_at(input, 8) as usize + 8 * index as usize)) } else { "" };
    let refs = 16 + 32 * u32_at(input, 8) as usize + if traced { 8 * u32_at(input, 8) as usize } else { 0 };
    let with = if input[6] & 2 != 0 { text(piece(input, refs + 8 * index as usize)) } else { "" };
    let number = |i: usize| field(i).try_into().map_or(0, i64::from_le_bytes);
    Delta {
        op: match input[record + 8] {
            1 => Op::Added,
            2 => Op::Updated,
            3 => Op::Deleted,
            4 => Op::Deselected,
            6 => Op::Entered,
            7 => Op::Left,
            _ => Op::Sync,
        },
        source: text(field(0)),
        cluster: text(field(1)),
        resource: text(field(2)),
        kind: text(field(3)),
        namespace: text(field(4)),
        name: text(field(5)),
        uid: text(field(6)),
        resource_version: text(field(7)),
        object: if object.is_absent() { old_object } else { object },
        old_object,
        initial: flags & 1 != 0,
        stale: flags & 2 != 0,
        redelivered: flags & 4 != 0,
        late: flags & 8 != 0,
        repeat: flags & 16 != 0,
        since_ns: number(9),
        suppressed: number(10),
        traceparent,
        with: json::Value::new(with),
        event: if fields > 17 { Some(event(field)) } else { None },
        seen_ns: number(8),
        index,
    }
}
