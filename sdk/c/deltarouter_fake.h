// The host functions of deltarouter.h in a program for this machine: see deltarouter_test.h.
#ifndef DELTAROUTER_FAKE_H
#define DELTAROUTER_FAKE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// dr_test has the answers of the host functions in a test. lookup and http get the request; their answer is JSON, NULL is DR_NOTFOUND.
static struct {
	const char *(*lookup)(dr_json request);
	const char *(*http)(dr_json request);
	dr_str keys[64], values[64]; // kv; a ttl is ignored
	int kept;
	dr_buf emitted; // events of dr_emit, one per line
	int64_t now_ns;
	int failures;
} dr_test;

static inline int32_t dr__host_log(int32_t level, const char *text, uint32_t size) {
	static const char *const names[] = {"debug", "info", "warn", "error"};
	fprintf(stderr, "%s: %.*s\n", names[level & 3], (int)size, text);
	return 0;
}

static inline dr_str dr__test_copy(const char *p, uint32_t n) {
	char *copy = dr_keep(n);
	if (n) memcpy(copy, p, n);
	return (dr_str){copy, n};
}

static inline int dr__test_find(const char *key, uint32_t size) {
	for (int i = 0; i < dr_test.kept; i++)
		if (dr_eq(dr_test.keys[i], (dr_str){key, size})) return i;
	return -1;
}

static inline int32_t dr__test_give(dr_str value, char *buf, uint32_t limit) {
	if (value.n && value.n <= limit) memcpy(buf, value.p, value.n);
	return (int32_t)value.n;
}

static inline int32_t dr__host_kv_get(const char *key, uint32_t key_size, char *buf, uint32_t limit) {
	int i = dr__test_find(key, key_size);
	return i < 0 ? DR_NOTFOUND : dr__test_give(dr_test.values[i], buf, limit);
}

static inline int32_t dr__host_kv_set(const char *key, uint32_t key_size, const char *value, uint32_t size, int64_t ttl_ms) {
	int i = dr__test_find(key, key_size);
	if (ttl_ms < 0) return DR_INVALID;
	if (i < 0 && dr_test.kept == 64) return DR_QUOTA;
	if (i < 0) dr_test.keys[i = dr_test.kept++] = dr__test_copy(key, key_size);
	dr_test.values[i] = dr__test_copy(value, size);
	return 0;
}

static inline int32_t dr__host_kv_del(const char *key, uint32_t key_size) {
	int i = dr__test_find(key, key_size);
	if (i < 0) return DR_NOTFOUND;
	dr_test.kept--;
	dr_test.keys[i] = dr_test.keys[dr_test.kept], dr_test.values[i] = dr_test.values[dr_test.kept];
	return 0;
}

static inline int32_t dr__test_ask(const char *(*f)(dr_json), const char *request, uint32_t size, char *buf, uint32_t limit) {
	if (!f) return DR_DENIED;
	const char *answer = f((dr_json){request, size});
	return answer ? dr__test_give(dr_z(answer), buf, limit) : DR_NOTFOUND;
}

static inline int32_t dr__host_lookup(const char *request, uint32_t size, char *buf, uint32_t limit) {
	return dr__test_ask(dr_test.lookup, request, size, buf, limit);
}

static inline int32_t dr__host_http(const char *request, uint32_t size, char *buf, uint32_t limit) {
	return dr__test_ask(dr_test.http, request, size, buf, limit);
}

static inline int32_t dr__host_emit(uint32_t delta, const char *event, uint32_t size) {
	(void)delta;
	dr_test.emitted.kept = true;
	dr_append(&dr_test.emitted, event, size);
	dr_append(&dr_test.emitted, "\n", 1);
	return 0;
}

// The SDK searches itself.
static inline int64_t dr__host_field(uint32_t delta, uint32_t which, const char *path, uint32_t path_size) {
	(void)delta, (void)which, (void)path, (void)path_size;
	return DR_DENIED;
}

static inline int64_t dr__host_now_ns(void) { return dr_test.now_ns; }

static inline int32_t dr__host_random(char *buf, uint32_t size) {
	for (uint32_t i = 0; i < size; i++) buf[i] = (char)rand();
	return 0;
}

#endif
