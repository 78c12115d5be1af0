// deltarouter.h is the SDK for handlers in C. Include it once per module. A handler is a function that gets a change of
// a Kubernetes object and writes the events to deliver; it runs in a sandbox inside the router:
//
//	#include "deltarouter.h"
//
//	static int handle(const dr_delta *d, dr_out *out) {
//		dr_buf *data = dr_event(out, NULL, NULL);
//		dr_open(data, '{');
//		dr_key(data, "pod"), dr_string(data, d->name);
//		dr_close(data, '}');
//		return DR_OK;
//	}
//
//	DR_HANDLER(NULL, handle)
//
// It needs no library. With wasi-libc it takes memory by malloc, else from the end of the module's data. For this machine
// it is a program that tests the handler: deltarouter_test.h. A host function that is not called is not imported.
#ifndef DELTAROUTER_H
#define DELTAROUTER_H

#include "deltarouter_json.h"

enum { DR_ADDED = 1, DR_UPDATED, DR_DELETED, DR_DESELECTED, DR_SYNC, DR_ENTERED, DR_LEFT };
enum { DR_OK, DR_RETRY, DR_DROP, DR_FAIL };
enum { DR_DEBUG, DR_INFO, DR_WARN, DR_ERROR };
enum { DR_NOTFOUND = -1, DR_DENIED = -2, DR_QUOTA = -3, DR_INVALID = -4, DR_DEADLINE = -5 };

// dr_made is an event that another route made.
typedef struct {
	dr_str id, type, source, subject;
	dr_str route;    // that made it
	int64_t time_ns; // since 1970
	dr_json data;
} dr_made;

// dr_delta is one change of one object. Its texts are valid until the handler returns.
typedef struct {
	uint8_t op; // DR_ADDED to DR_LEFT; entered and left of a route with a condition. Deleted means gone; an object that merely left the source's selector is deselected
	bool initial;     // the object was there before the router was
	bool stale;       // inferred from a list: old_object is the last state known
	bool redelivered; // redelivered from the dead letters
	bool late;        // entered was due while the router was down
	bool repeat;      // a reminder: entered was reported before
	dr_str source, cluster, resource, kind; // resource: [group/]version/resource
	dr_str ns, name, uid, resource_version; // ns is empty for a cluster-scoped object
	dr_json object;     // after the change; for deleted and deselected its last state
	dr_json old_object; // before the change; n is 0 for added and sync, and where the source keeps no objects
	int64_t seen_ns;    // when the router saw the change, since 1970
	int64_t since_ns;   // when the condition began to hold, likewise; 0: unknown
	int64_t suppressed; // number of deltas that the limit of the route suppressed before this one
	dr_json with;       // the values of the route's with, a JSON object; n is 0: the route has none
	dr_str traceparent; // the span of the delta in its route (W3C Trace Context), for requests; n is 0: the router exports no traces
	dr_made event;      // the event that an upstream route made of the delta; id.n is 0: the delta comes from its source
	uint32_t index;     // in the batch
} dr_delta;

// dr_out takes the events of one delta.
typedef struct {
	dr_buf bytes;
	uint32_t events, from; // of this delta
	uint32_t retry_ms;
	dr_str message;
	bool open; // the last event
} dr_out;

// dr_op returns the op as the router's configuration spells it.
static inline dr_str dr_op(const dr_delta *d) {
	switch (d->op) {
	case DR_ADDED: return DR("added");
	case DR_UPDATED: return DR("updated");
	case DR_DELETED: return DR("deleted");
	case DR_DESELECTED: return DR("deselected");
	case DR_ENTERED: return DR("entered");
	case DR_LEFT: return DR("left");
	}
	return DR("sync");
}

static inline void dr__put32(char *p, uint32_t v) {
	for (int i = 0; i < 4; i++) p[i] = (char)(v >> 8 * i);
}

static inline uint32_t dr__get32(const char *p) {
	const unsigned char *b = (const unsigned char *)p;
	return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

// dr__end closes the last event: its data is null if nothing was written.
static inline void dr__end(dr_out *out) {
	if (!out->open) return;
	out->open = false;
	if (out->bytes.p[out->bytes.n - 1] == ':') dr_append(&out->bytes, "null", 4);
	dr_append(&out->bytes, "}", 1);
	dr__put32(out->bytes.p + out->from, out->bytes.n - out->from - 4);
}

// dr_event begins an event; the text that is then written is its data: one JSON value. Without a type (NULL) it is io.deltarouter.<op>, without a
// subject namespace/name.
static inline dr_buf *dr_event(dr_out *out, const char *type, const char *subject) {
	dr_buf *b = &out->bytes;
	dr__end(out);
	out->open = true, out->events++, out->from = b->n;
	dr_append(b, "\0\0\0\0{", 5);
	if (type) dr_key(b, "type"), dr_string(b, dr_z(type));
	if (subject) dr_key(b, "subject"), dr_string(b, dr_z(subject));
	dr_key(b, "data");
	return b;
}

// dr_fail fails the delta: the route's retry and onFailure decide. The message, of at most 4 KiB, must not contain parts of the object.
static inline int dr_fail(dr_out *out, const char *message) {
	out->message = dr_z(message);
	return DR_FAIL;
}

// dr_retry retries the delta, not before the given time; 0: according to the route's retry.
static inline int dr_retry(dr_out *out, const char *message, uint32_t after_ms) {
	out->message = dr_z(message), out->retry_ms = after_ms;
	return DR_RETRY;
}

// dr_setup_fn is called once per instance with the handler's `config` (null if there is none), which may be kept. It returns NULL, or
// why the router must not start.
typedef const char *(*dr_setup_fn)(dr_json config);
typedef int (*dr_handle_fn)(const dr_delta *d, dr_out *out);

#include "deltarouter_host.h"
#include "deltarouter_batch.h"

#ifdef __wasm__
// DR_HANDLER makes the module's exports. The setup may be NULL.
#define DR_HANDLER(setup, handle)                                                                                                \
	__attribute__((export_name("rtr_abi_version"))) uint32_t rtr_abi_version(void) { return 1; }                                 \
	__attribute__((export_name("rtr_alloc"))) uint32_t rtr_alloc(uint32_t size) {                                                \
		return (uint32_t)(uintptr_t)dr_keep(size);                                                                               \
	}                                                                                                                            \
	__attribute__((export_name("rtr_init"))) uint32_t rtr_init(const char *config, uint32_t size) {                              \
		return (uint32_t)(uintptr_t)dr__init(setup, (dr_str){config, size});                                                     \
	}                                                                                                                            \
	__attribute__((export_name("rtr_handle"))) uint64_t rtr_handle(const char *batch, uint32_t size) {                           \
		return dr__handle(handle, (dr_str){batch, size});                                                                        \
	}
#else
#define DR_HANDLER(setup, handle)                                                                                                \
	static const dr_setup_fn dr_test_setup = setup;                                                                              \
	static const dr_handle_fn dr_test_handle = handle;

#include "deltarouter_test.h"
#endif

#endif
