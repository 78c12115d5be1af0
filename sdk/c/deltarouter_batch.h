// The two ends of the ABI for deltarouter.h: memory, batches in, answers out. See docs/ABI.md for the layout.
#ifndef DELTAROUTER_BATCH_H
#define DELTAROUTER_BATCH_H

// dr__state is the one of this instance, which runs one call at a time.
typedef struct dr__chunk {
	struct dr__chunk *next;
	uint32_t size, used;
} dr__chunk;

static struct {
	dr__chunk *first, *last; // of the memory that is valid until the handler returns
	dr_buf records;
	dr_out out;
} dr__state;

#if defined(__wasm__) && !defined(__wasi__)
extern unsigned char __heap_base; // of the linker: the end of data and stack

static inline void *dr_keep(uint32_t size) {
	static uintptr_t next;
	if (!next) next = ((uintptr_t)&__heap_base + 7) & ~(uintptr_t)7;
	uintptr_t at = next, limit = __builtin_wasm_memory_size(0) * 65536ul;
	size = (size + 7) & ~7u;
	if (limit - at < size && __builtin_wasm_memory_grow(0, (size - (limit - at) + 65535) / 65536) == (unsigned long)-1) __builtin_trap();
	next += size;
	return (void *)at;
}
#else
#include <stdlib.h>

static inline void *dr_keep(uint32_t size) {
	void *p = malloc(size ? size : 1);
	if (!p) __builtin_trap();
	return p;
}
#endif

static inline void *dr_alloc(uint32_t size) {
	size = (size + 7) & ~7u;
	dr__chunk *c = dr__state.last;
	while (c && c->size - c->used < size && c->next) c = c->next;
	if (!c || c->size - c->used < size) {
		uint32_t room = size > 64000 ? size : 64000;
		dr__chunk *fresh = dr_keep(sizeof(dr__chunk) + 8 + room);
		*fresh = (dr__chunk){NULL, room, 0};
		if (c) c->next = fresh;
		else dr__state.first = fresh;
		c = fresh;
	}
	dr__state.last = c;
	char *start = (char *)(((uintptr_t)(c + 1) + 7) & ~(uintptr_t)7);
	c->used += size;
	return start + c->used - size;
}

static inline void dr__reset(void) {
	for (dr__chunk *c = dr__state.first; c; c = c->next) c->used = 0;
	dr__state.last = dr__state.first;
}

// dr__init returns NULL, or {size, message}.
static inline void *dr__init(dr_setup_fn setup, dr_str config) {
	char *kept = dr_keep(config.n);
	dr_copy(kept, config.p, config.n);
	const char *why = setup ? setup((dr_json){kept, config.n}) : NULL;
	dr__state.first = dr__state.last = NULL; // the memory that setup took stays
	if (!why) return NULL;
	dr_str text = dr_z(why);
	if (text.n > 4096) text.n = 4096;
	char *reason = dr_keep(4 + text.n);
	dr__put32(reason, text.n);
	dr_copy(reason + 4, text.p, text.n);
	return reason;
}

static inline dr_str dr__piece(dr_str in, uint32_t at) {
	if (in.n < 8 || at > in.n - 8) __builtin_trap();
	uint32_t off = dr__get32(in.p + at), n = dr__get32(in.p + at + 4);
	if (n == 0) return (dr_str){0, 0};
	if (off > in.n || n > in.n - off) __builtin_trap();
	return (dr_str){in.p + off, n};
}

// dr__read reads a record. What is out of bounds traps.
static inline dr_delta dr__read(dr_str in, uint32_t i) {
	uint32_t rec = 16 + 32 * i, meta = dr__get32(in.p + rec + 28);
	uint8_t flags = (uint8_t)in.p[rec + 10];
	dr_delta d = {(uint8_t)in.p[rec + 8], flags & 1, flags & 2, flags & 4, flags & 8, flags & 16, .index = i};
	d.object = dr__piece(in, rec + 12), d.old_object = dr__piece(in, rec + 20);
	if (!d.object.n) d.object = d.old_object;
	uint32_t flags_of_batch = dr__get32(in.p + 4) >> 16, count = dr__get32(in.p + 8), refs = 16 + 32 * count;
	if (flags_of_batch & 1) d.traceparent = dr__piece(in, refs + 8 * i), refs += 8 * count;
	if (flags_of_batch & 2) d.with = dr__piece(in, refs + 8 * i);
	if (meta > in.n - 4) __builtin_trap();
	uint32_t fields = dr__get32(in.p + meta);
	dr_str *to[] = {&d.source, &d.cluster, &d.resource, &d.kind, &d.ns, &d.name, &d.uid, &d.resource_version};
	for (uint32_t f = 0; f < 8 && f < fields; f++) *to[f] = dr__piece(in, meta + 4 + 8 * f);
	int64_t *numbers[] = {&d.seen_ns, &d.since_ns, &d.suppressed};
	for (uint32_t f = 8; f < 11 && f < fields; f++) {
		dr_str number = dr__piece(in, meta + 4 + 8 * f);
		if (number.n == 8) *numbers[f - 8] = (int64_t)((uint64_t)dr__get32(number.p + 4) << 32 | dr__get32(number.p));
	}
	if (fields > 17) {
		dr_str *texts[] = {&d.event.id, &d.event.type, &d.event.source, &d.event.subject, &d.event.route};
		for (uint32_t f = 0; f < 5; f++) *texts[f] = dr__piece(in, meta + 4 + 8 * (11 + f));
		dr_str time = dr__piece(in, meta + 4 + 8 * 16);
		if (time.n == 8) d.event.time_ns = (int64_t)((uint64_t)dr__get32(time.p + 4) << 32 | dr__get32(time.p));
		d.event.data = dr__piece(in, meta + 4 + 8 * 17);
	}
	return d;
}

// dr__one handles a delta and writes its record, if it needs one.
static inline uint32_t dr__one(dr_handle_fn handle, const dr_delta *d) {
	dr_out *out = &dr__state.out;
	uint32_t from = out->bytes.n;
	out->events = 0, out->retry_ms = 0, out->message = DR(""), out->open = false;
	int verdict = handle(d, out);
	dr__end(out);
	if (verdict != DR_OK) out->bytes.n = from, out->events = 0;
	if (verdict == DR_OK && out->events == 0) return 0;
	char rec[28] = {0};
	dr__put32(rec, d->index);
	rec[4] = (char)verdict;
	rec[6] = (char)out->events, rec[7] = (char)(out->events >> 8);
	dr__put32(rec + 8, out->retry_ms);
	if (verdict == DR_RETRY || verdict == DR_FAIL) {
		uint32_t n = out->message.n > 4096 ? 4096 : out->message.n;
		dr_append(&out->bytes, out->message.p, n);
		dr__put32(rec + 12, from), dr__put32(rec + 16, n);
	} else {
		dr__put32(rec + 20, from), dr__put32(rec + 24, out->bytes.n - from);
	}
	dr_append(&dr__state.records, rec, sizeof rec);
	return 1;
}

// dr__answer handles a batch and returns the answer, empty if all is ok and there are no events.
static inline dr_str dr__answer(dr_handle_fn handle, dr_str in) {
	dr_buf *records = &dr__state.records;
	if (in.n < 16 || dr__get32(in.p) != 0x31525452) __builtin_trap();
	uint32_t count = dr__get32(in.p + 8), n = 0;
	if (count > (in.n - 16) / 32) __builtin_trap();
	records->kept = dr__state.out.bytes.kept = true;
	records->n = dr__state.out.bytes.n = 0;
	dr_append(records, "\0\0\0\0", 4);
	for (uint32_t i = 0; i < count; i++) {
		dr_delta d = dr__read(in, i);
		n += dr__one(handle, &d);
		dr__reset();
	}
	if (n == 0) return DR("");
	dr__put32(records->p, n);
	uint32_t base = records->n; // offsets were into bytes, which come behind the records
	for (char *rec = records->p + 4; rec < records->p + base; rec += 28) {
		if (dr__get32(rec + 16)) dr__put32(rec + 12, dr__get32(rec + 12) + base);
		if (dr__get32(rec + 24)) dr__put32(rec + 20, dr__get32(rec + 20) + base);
	}
	dr_append(records, dr__state.out.bytes.p, dr__state.out.bytes.n);
	return (dr_str){records->p, records->n};
}

static inline uint64_t dr__handle(dr_handle_fn handle, dr_str in) {
	dr_str answer = dr__answer(handle, in);
	return answer.n ? (uint64_t)(uintptr_t)answer.p << 32 | answer.n : 0;
}

#endif
