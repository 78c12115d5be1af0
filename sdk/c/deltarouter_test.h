// Native tests of a handler. Compiled for this machine, deltarouter.h includes this file, and the test is a main:
//
//	#include "handler.c"
//
//	int main(void) {
//		dr_test_config("{\"prefix\": \"team/\"}");
//		dr_test_want("added", NULL, "{\"metadata\": {\"name\": \"a\"}}", "{\"events\":[{\"data\":1}]}");
//		dr_test_golden("testdata/some.txtar");
//		return dr_test_end();
//	}
//
// The answers of the host functions are in dr_test, see deltarouter_fake.h.
#ifndef DELTAROUTER_TEST_H
#define DELTAROUTER_TEST_H

static inline const char *dr__test_setup(dr_setup_fn setup, const char *config) {
	char *reason = dr__init(setup, dr_z(config ? config : "null"));
	if (!reason) return NULL;
	uint32_t n = dr__get32(reason);
	char *text = dr_keep(n + 1);
	memcpy(text, reason + 4, n);
	text[n] = 0;
	return text;
}

// dr_test_config sets the handler of DR_HANDLER up with a configuration (JSON; NULL: none) and returns its error, NULL if there is none.
#define dr_test_config(config) dr__test_setup(dr_test_setup, config)

static inline dr_delta dr__test_delta(dr_str op, dr_json old_object, dr_json object) {
	dr_delta d = {0};
	for (d.op = DR_ADDED; d.op < DR_LEFT && !dr_eq(dr_op(&d), op);) d.op++;
	d.source = d.cluster = d.resource = DR("test");
	d.object = object, d.old_object = old_object;
	if (!old_object.n && (d.op == DR_DELETED || d.op == DR_DESELECTED)) d.old_object = object;
	d.kind = dr_text(dr_get(object, "kind"));
	d.ns = dr_text(dr_path(object, "metadata.namespace"));
	d.name = dr_text(dr_path(object, "metadata.name"));
	return d;
}

// dr__test_time reads a text like 2026-01-02T03:04:05Z as nanoseconds since 1970; 0: it is none.
static inline int64_t dr__test_time(dr_str text) {
	int64_t n[6] = {0};
	uint32_t of = 0;
	for (uint32_t i = 0; i < text.n && of < 6; i++) {
		if (text.p[i] < '0' || text.p[i] > '9') of++;
		else n[of] = 10 * n[of] + (text.p[i] - '0');
	}
	if (of < 6) return 0;
	int64_t year = n[1] > 2 ? n[0] : n[0] - 1, month = n[1] > 2 ? n[1] - 3 : n[1] + 9; // years that begin with March
	int64_t days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + n[2] - 719469;
	return (((days * 24 + n[3]) * 60 + n[4]) * 60 + n[5]) * 1000000000;
}

// dr__test_run handles a delta and writes the result. more is the entry of a golden file; NULL: there is none.
static inline void dr__test_run(dr_handle_fn handle, dr_buf *to, dr_str op, dr_json old_object, dr_json object, const dr_json *more) {
	dr_buf *bytes = &dr__state.out.bytes;
	dr_delta d = dr__test_delta(op, old_object, object);
	if (more) {
		d.late = dr_get(*more, "late").n == 4;
		d.repeat = dr_int(dr_get(*more, "repeat"), 0) > 0;
		d.suppressed = dr_int(dr_get(*more, "suppressed"), 0);
		d.since_ns = dr__test_time(dr_text(dr_get(*more, "since")));
		d.traceparent = dr_text(dr_get(*more, "traceparent"));
		d.with = dr_get(*more, "with");
		dr_json made = dr_get(*more, "event");
		d.event.id = dr_text(dr_get(made, "id")), d.event.type = dr_text(dr_get(made, "type"));
		d.event.source = dr_text(dr_get(made, "source")), d.event.subject = dr_text(dr_get(made, "subject"));
		d.event.route = dr_text(dr_get(made, "route")), d.event.data = dr_get(made, "data");
		d.event.time_ns = dr__test_time(dr_text(dr_get(made, "time")));
	}
	bytes->kept = dr__state.records.kept = true;
	bytes->n = dr__state.records.n = 0;
	int verdict = dr__one(handle, &d) ? dr__state.records.p[4] : DR_OK;
	dr_append(to, "{", 1);
	if (verdict == DR_DROP) {
		dr_key(to, "drop"), dr_bool(to, true);
	} else if (verdict != DR_OK) {
		dr_key(to, verdict == DR_RETRY ? "retry" : "error");
		dr_string(to, (dr_str){bytes->p, bytes->n});
	} else if (bytes->n) {
		dr_key(to, "events");
		dr_open(to, '[');
		for (uint32_t at = 0; at < bytes->n; at += 4 + dr__get32(bytes->p + at))
			dr_raw(to, (dr_json){bytes->p + at + 4, dr__get32(bytes->p + at)});
		dr_close(to, ']');
	}
	dr_append(to, "}\n", 2);
	dr__reset();
}

static inline const char *dr__test_string(dr_handle_fn handle, const char *op, const char *old_object, const char *object) {
	dr_buf text = {.kept = true};
	dr__test_run(handle, &text, dr_z(op), dr_z(old_object), dr_z(object), NULL);
	text.p[text.n - 1] = 0;
	return text.p;
}

// dr_test_run handles a delta, whose source, cluster and resource are "test". The result has the form of golden files:
// {"events":[…]}, {"error":"…"}, {"retry":"…"}, {"drop":true} or {}.
#define dr_test_run(op, old_object, object) dr__test_string(dr_test_handle, op, old_object, object)

static inline void dr__test_same(const char *file, int line, dr_str got, dr_str want) {
	if (dr_eq(got, want)) return;
	dr_test.failures++;
	fprintf(stderr, "%s:%d:\ngot  %.*s\nwant %.*s\n", file, line, (int)got.n, got.p, (int)want.n, want.p);
}

// dr_test_want compares the result of dr_test_run.
#define dr_test_want(op, old_object, object, want) \
	dr__test_same(__FILE__, __LINE__, dr_z(dr_test_run(op, old_object, object)), dr_z(want))

static inline dr_str dr__test_read(const char *path) {
	FILE *f = fopen(path, "rb");
	dr_buf text = {.kept = true};
	char piece[4096];
	if (!f) perror(path), exit(1);
	for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) dr_append(&text, piece, (uint32_t)n);
	fclose(f);
	return (dr_str){text.p, text.n};
}

// dr__test_section returns the values of a section of a txtar file, in brackets.
static inline dr_json dr__test_section(dr_str file, const char *name) {
	dr_buf marker = {.kept = true}, text = {.kept = true};
	dr_append(&marker, "\n-- ", 4), dr_append(&marker, name, (uint32_t)strlen(name)), dr_append(&marker, " --\n", 4);
	dr_append(&text, "[", 1);
	for (uint32_t i = 0; i + marker.n <= file.n; i++) {
		if (memcmp(file.p + i, marker.p, marker.n)) continue;
		for (i += marker.n - 1; i < file.n && !dr_has_prefix((dr_str){file.p + i, file.n - i}, DR("\n-- ")); i++)
			dr_append(&text, file.p + i, 1);
		break;
	}
	dr_append(&text, "]", 1);
	return (dr_json){text.p, text.n};
}

// dr__test_compact takes the spaces between tokens out.
static inline dr_str dr__test_compact(dr_json v) {
	dr_buf text = {.kept = true};
	for (const char *p = v.p, *end = v.p + v.n; p < end;) {
		const char *after = *p == '"' ? dr__string(p, end) : p + 1;
		if (dr__space(p, end) == p) dr_append(&text, p, (uint32_t)(after - p));
		p = after;
	}
	dr_append(&text, "\n", 1);
	return (dr_str){text.p, text.n};
}

static inline void dr__test_golden(dr_setup_fn setup, dr_handle_fn handle, const char *path) {
	dr_str file = dr__test_read(path);
	dr_iter config = dr_each(dr__test_section(file, "config.json"));
	dr_json results = dr__test_section(file, "results.json"), deltas = dr__test_section(file, "deltas.json");
	if (dr_next(&config) && dr__init(setup, config.value)) {
		dr_test.failures++;
		fprintf(stderr, "%s: the setup fails\n", path);
		return;
	}
	int n = 0;
	for (dr_iter d = dr_each(deltas), want = dr_each(results); dr_next(&d); n++) {
		dr_buf got = {.kept = true};
		dr__test_run(handle, &got, dr_text(dr_get(d.value, "op")), dr_get(d.value, "oldObject"), dr_get(d.value, "object"), &d.value);
		dr__test_same(path, n + 1, (dr_str){got.p, got.n}, dr_next(&want) ? dr__test_compact(want.value) : DR("no result\n"));
	}
	if (n == 0) dr_test.failures++, fprintf(stderr, "%s: no deltas\n", path);
}

// dr_test_golden runs a file with the sections `-- config.json --`, `-- deltas.json --` ({"op", "object", "oldObject"} one after the
// other) and `-- results.json --` (as dr_test_run returns them). The line of a failure is the number of the delta.
#define dr_test_golden(path) dr__test_golden(dr_test_setup, dr_test_handle, path)

// dr_test_end is the result of main.
static inline int dr_test_end(void) {
	if (!dr_test.failures) puts("ok");
	return dr_test.failures != 0;
}

#endif
