// The host functions for deltarouter.h. Results below 0 are DR_NOTFOUND to DR_DEADLINE. A module that calls kv, lookup or http needs
// the grant in the handler's `allow`, else it is not loaded.
#ifndef DELTAROUTER_HOST_H
#define DELTAROUTER_HOST_H

#ifdef __wasm__
#define DR__IMPORT(name) __attribute__((import_module("rtr_v1"), import_name(#name)))
DR__IMPORT(log) int32_t dr__host_log(int32_t level, const char *text, uint32_t size);
DR__IMPORT(kv_get) int32_t dr__host_kv_get(const char *key, uint32_t key_size, char *buf, uint32_t limit);
DR__IMPORT(kv_set) int32_t dr__host_kv_set(const char *key, uint32_t key_size, const char *value, uint32_t size, int64_t ttl_ms);
DR__IMPORT(kv_del) int32_t dr__host_kv_del(const char *key, uint32_t key_size);
DR__IMPORT(lookup) int32_t dr__host_lookup(const char *request, uint32_t size, char *buf, uint32_t limit);
DR__IMPORT(emit) int32_t dr__host_emit(uint32_t delta, const char *event, uint32_t size);
DR__IMPORT(http) int32_t dr__host_http(const char *request, uint32_t size, char *buf, uint32_t limit);
DR__IMPORT(now_ns) int64_t dr__host_now_ns(void);
DR__IMPORT(random) int32_t dr__host_random(char *buf, uint32_t size);
DR__IMPORT(field) int64_t dr__host_field(uint32_t delta, uint32_t which, const char *path, uint32_t path_size);
#else
#include "deltarouter_fake.h"
#endif

// dr__first is the room for an answer of a host function; a longer one is requested again.
#define DR__FIRST 4096

static inline dr_json dr__field(const dr_delta *d, uint32_t which, dr_json object, const char *path) {
	int64_t place = dr__host_field(d->index, which, path, dr_z(path).n);
	if (place == DR_NOTFOUND) return (dr_json){0, 0};
	if (place < 0) return dr_path(object, path); // the host does not search
	uint32_t at = (uint32_t)(place >> 32), n = (uint32_t)place;
	if (at > object.n || n > object.n - at) __builtin_trap();
	return (dr_json){object.p + at, n};
}

// dr_field returns a field of the object: dr_field(d, "status.phase"). Dots separate the keys; \\. is a dot in a key. The router finds
// the field, which is several times faster than dr_path.
static inline dr_json dr_field(const dr_delta *d, const char *path) { return dr__field(d, 0, d->object, path); }

// dr_old_field is dr_field for the object before the change.
static inline dr_json dr_old_field(const dr_delta *d, const char *path) { return dr__field(d, 1, d->old_object, path); }

// dr_log writes a line into the router's log, at DR_DEBUG to DR_ERROR.
static inline void dr_log(int level, dr_str text) { dr__host_log(level, text.p, text.n); }

// dr__ask calls a function that reads. The router keeps an answer that did not fit: the second call reads it, and does not repeat the operation.
static inline int dr__ask(int32_t (*f)(const char *, uint32_t, char *, uint32_t), const char *p, uint32_t n, dr_str *answer) {
	for (uint32_t room = DR__FIRST;;) {
		char *buf = dr_alloc(room);
		int32_t size = f(p, n, buf, room);
		if (size < 0) return size;
		*answer = (dr_str){buf, (uint32_t)size};
		if ((uint32_t)size <= room) return 0;
		room = (uint32_t)size;
	}
}

// dr_kv_get reads the value of a key in the store of this handler. 0 or DR_NOTFOUND, …
static inline int dr_kv_get(dr_str key, dr_str *value) { return dr__ask(dr__host_kv_get, key.p, key.n, value); }

// dr_kv_set stores a value for some time, 0: for ever. It counts only if the call succeeds.
static inline int dr_kv_set(dr_str key, dr_str value, int64_t ttl_ms) {
	return dr__host_kv_set(key.p, key.n, value.p, value.n, ttl_ms);
}

static inline int dr_kv_del(dr_str key) { return dr__host_kv_del(key.p, key.n); }

static inline int dr__lookup(dr_buf request, const char *member, dr_json *answer) {
	int code = dr__ask(dr__host_lookup, request.p, request.n, answer);
	if (code < 0) return code;
	*answer = dr_get(*answer, member);
	return 0;
}

// dr_lookup finds the objects that an index has under a key: dr_lookup(DR("pods.byNode"), DR("n1"), &objects), a JSON array.
static inline int dr_lookup(dr_str index, dr_str key, dr_json *objects) {
	dr_buf r = {0};
	dr_open(&r, '{');
	dr_key(&r, "index"), dr_string(&r, index);
	dr_key(&r, "key"), dr_string(&r, key);
	dr_close(&r, '}');
	return dr__lookup(r, "objects", objects);
}

// dr_list gives all objects of a source.
static inline int dr_list(dr_str source, dr_json *objects) {
	dr_buf r = {0};
	dr_open(&r, '{');
	dr_key(&r, "list"), dr_string(&r, source);
	dr_close(&r, '}');
	return dr__lookup(r, "objects", objects);
}

// dr_count is the number of objects that dr_lookup finds, or an error.
static inline int64_t dr_count(dr_str index, dr_str key) {
	dr_buf r = {0};
	dr_json count;
	dr_open(&r, '{');
	dr_key(&r, "index"), dr_string(&r, index);
	dr_key(&r, "key"), dr_string(&r, key);
	dr_key(&r, "count"), dr_bool(&r, true);
	dr_close(&r, '}');
	int code = dr__lookup(r, "count", &count);
	return code < 0 ? code : dr_int(count, DR_INVALID);
}

// dr_lookup_one gets an object of a source; DR_NOTFOUND if there is none.
static inline int dr_lookup_one(dr_str source, dr_str ns, dr_str name, dr_json *object) {
	dr_buf r = {0};
	dr_json objects;
	dr_open(&r, '{');
	dr_key(&r, "get"), dr_string(&r, source);
	dr_key(&r, "namespace"), dr_string(&r, ns);
	dr_key(&r, "name"), dr_string(&r, name);
	dr_close(&r, '}');
	int code = dr__lookup(r, "objects", &objects);
	if (code < 0) return code;
	dr_iter it = dr_each(objects);
	if (!dr_next(&it)) return DR_NOTFOUND;
	*object = it.value;
	return 0;
}

// dr_emit emits an event at once, beside those of dr_event: the JSON object {"type", "subject", "data"}. It counts only if the call
// succeeds.
static inline int dr_emit(const dr_delta *d, dr_json event) { return dr__host_emit(d->index, event.p, event.n); }

// dr_http sends a request {"method", "url", "headers", "body"} and gives the answer {"status", "headers", "body"}; see docs/ABI.md for
// bodies that are not UTF-8, and for the meaning of the status 0.
static inline int dr_http(dr_json request, dr_json *answer) {
	return dr__ask(dr__host_http, request.p, request.n, answer);
}

// dr_now_ns is the time since 1970.
static inline int64_t dr_now_ns(void) { return dr__host_now_ns(); }

// dr_random fills a buffer with random bytes.
static inline int dr_random(void *buf, uint32_t size) { return dr__host_random(buf, size); }

#endif
