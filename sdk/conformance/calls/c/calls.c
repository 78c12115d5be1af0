// Calls every host function, see ../../README.md.
#include "deltarouter.h"

static dr_str url;

static const char *setup(dr_json config) {
	url = dr_text(dr_get(config, "url"));
	return NULL;
}

static dr_str name(dr_json object) { return dr_text(dr_path(object, "metadata.name")); }

static int64_t length(dr_json array) {
	int64_t n = 0;
	for (dr_iter it = dr_each(array); dr_next(&it);) n++;
	return n;
}

// keep appends an x to what is kept under the object's name, and returns what was kept.
static int keep(dr_str key, dr_str *seen) {
	int code = dr_kv_get(key, seen);
	if (code == DR_NOTFOUND) *seen = DR("");
	else if (code < 0) return code;
	dr_buf value = {0};
	dr_append(&value, seen->p, seen->n), dr_append(&value, "x", 1);
	if ((code = dr_kv_set(key, (dr_str){value.p, value.n}, 0)) < 0) return code;
	if ((code = dr_kv_set(DR("gone"), DR(""), 0)) < 0) return code;
	return dr_kv_del(DR("gone"));
}

static int ask(dr_json *answer) {
	dr_buf r = {0};
	dr_open(&r, '{');
	dr_key(&r, "method"), dr_string(&r, DR("POST"));
	dr_key(&r, "url"), dr_string(&r, url);
	dr_key(&r, "headers"), dr_open(&r, '{'), dr_key(&r, "X-Ask"), dr_string(&r, DR("1")), dr_close(&r, '}');
	dr_key(&r, "body"), dr_string(&r, DR("\xc3\xa9"));
	dr_close(&r, '}');
	return dr_http((dr_json){r.p, r.n}, answer);
}

static int early(const dr_delta *d) {
	char bytes[8];
	dr_buf e = {0};
	dr_open(&e, '{');
	dr_key(&e, "type"), dr_string(&e, DR("early"));
	dr_key(&e, "data"), dr_string(&e, d->name);
	dr_close(&e, '}');
	return dr_random(bytes, sizeof bytes) < 0 || dr_now_ns() < 0 ? -1 : dr_emit(d, (dr_json){e.p, e.n});
}

static int handle(const dr_delta *d, dr_out *out) {
	dr_str seen;
	dr_json pods, nodes, one, none, denied, answer;
	if (keep(d->name, &seen) < 0) return dr_fail(out, "kv");
	int64_t count = dr_count(DR("pods.byNode"), DR("n1"));
	if (dr_lookup(DR("pods.byNode"), DR("n1"), &pods) < 0 || dr_list(DR("nodes"), &nodes) < 0) return dr_fail(out, "lookup");
	if (dr_lookup_one(DR("nodes"), DR(""), DR("n1"), &one) < 0) return dr_fail(out, "get");
	if (ask(&answer) < 0) return dr_fail(out, "http");
	if (early(d) < 0) return dr_fail(out, "emit");

	dr_buf *data = dr_event(out, NULL, NULL);
	dr_open(data, '{');
	dr_key(data, "bytes"), dr_number(data, dr_text(dr_get(answer, "body")).n);
	dr_key(data, "count"), dr_number(data, count);
	dr_key(data, "denied"), dr_bool(data, dr_lookup(DR("secrets.byName"), DR("x"), &denied) == DR_DENIED);
	dr_key(data, "header"), dr_string(data, dr_text(dr_get(dr_get(answer, "headers"), "x-answer")));
	dr_key(data, "list"), dr_number(data, length(nodes));
	dr_key(data, "none"), dr_bool(data, dr_lookup_one(DR("nodes"), DR(""), DR("n9"), &none) == DR_NOTFOUND);
	dr_key(data, "one"), dr_string(data, name(one));
	dr_key(data, "path"), dr_raw(data, dr_field(d, "metadata.name"));
	dr_key(data, "pods"), dr_open(data, '[');
	for (dr_iter it = dr_each(pods); dr_next(&it);) dr_string(data, name(it.value));
	dr_close(data, ']');
	dr_key(data, "seen"), dr_string(data, seen);
	dr_key(data, "status"), dr_raw(data, dr_get(answer, "status"));
	dr_close(data, '}');
	return DR_OK;
}

DR_HANDLER(setup, handle)
