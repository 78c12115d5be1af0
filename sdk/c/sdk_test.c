// The tests of this SDK: build it with -fsanitize=address,undefined and run it.
#include "deltarouter.h"

#define CHECK(ok) ((ok) ? (void)0 : (void)(dr_test.failures++, fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #ok)))

static void reads(void) {
	dr_json v = dr_z("{ \"a\" : [1, -2 ,\"x}\\\"\" ,{\"b\":[]}], \"c\\u0021\": true,\"d\":{\"e\":\"f\"},\"n\":null }");
	const char *want[] = {"1", "-2", "\"x}\\\"\"", "{\"b\":[]}"};
	int n = 0;
	for (dr_iter it = dr_each(dr_get(v, "a")); dr_next(&it); n++) CHECK(n < 4 && dr_eq(it.value, dr_z(want[n])));
	CHECK(n == 4);
	CHECK(dr_true(dr_get(v, "c!")));
	CHECK(dr_eq(dr_text(dr_path(v, "d.e")), DR("f")));
	CHECK(dr_path(v, "d.x.y").n == 0 && dr_path(v, "a.b").n == 0 && dr_kind(dr_get(v, "n")) == 'n');
	CHECK(dr_int(DR("9223372036854775807"), 0) == INT64_MAX && dr_int(DR("-9223372036854775808"), 0) == INT64_MIN);
	CHECK(dr_int(DR("9223372036854775808"), 7) == 7 && dr_int(DR("-"), 7) == 7 && dr_int(DR("1.5"), 7) == 7 && dr_int(DR(""), 7) == 7);
	CHECK(dr_eq(dr_text(DR("\"\\ud83d \\ude00\\ud83d\\u0041\\u12\"")), DR("\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd" "A12")));
}

// survives reads every piece of a text, each at the end of its memory.
static void survives(void) {
	const char *text = "{\"a\":[1,{\"\\u00e9\\\"\":\"\\ud83d\\ude00\"}],\"b\":tr,}]{:,";
	uint32_t size = (uint32_t)strlen(text);
	for (uint32_t i = 0; i < size; i++) {
		for (uint32_t n = 0; i + n <= size; n++) {
			char *copy = malloc(n ? n : 1);
			memcpy(copy, text + i, n);
			dr_json v = {copy, n};
			for (dr_iter it = dr_each(v); dr_next(&it);) dr_text(it.key), dr_text(it.value);
			dr_text(v), dr_int(v, 0), dr_path(v, "a.b.c");
			dr__reset();
			free(copy);
		}
	}
}

static void writes(void) {
	dr_buf b = {0};
	dr_open(&b, '{');
	dr_key(&b, "a\n");
	dr_open(&b, '[');
	dr_number(&b, INT64_MIN), dr_number(&b, 0), dr_bool(&b, true), dr_string(&b, DR("\"{\x01\x1f\xc3\xa9\b\f\r\t"));
	dr_open(&b, '['), dr_close(&b, ']'), dr_open(&b, '{'), dr_close(&b, '}');
	dr_close(&b, ']');
	dr_key(&b, "b"), dr_raw(&b, DR("[1]"));
	dr_close(&b, '}');
	dr_str want = DR("{\"a\\n\":[-9223372036854775808,0,true,\"\\\"{\\u0001\\u001f\xc3\xa9\\b\\f\\r\\t\",[],{}],\"b\":[1]}");
	CHECK(dr_eq((dr_str){b.p, b.n}, want));
}

static const char *answer(dr_json request) {
	static char text[9000];
	if (dr_get(request, "count").n) return "{\"count\":3}";
	if (dr_get(request, "get").n) return "{\"objects\":[]}";
	snprintf(text, sizeof text, "{\"objects\":[1,%8000d]}", 2);
	return text;
}

static void host(void) {
	dr_json v;
	CHECK(dr_lookup(DR("pods.byNode"), DR("n1"), &v) == DR_DENIED && dr_http(DR("{}"), &v) == DR_DENIED);
	dr_test.lookup = dr_test.http = answer;
	CHECK(dr_lookup(DR("pods.byNode"), DR("n1"), &v) == 0 && v.n > 8000 && dr_kind(v) == '[');
	CHECK(dr_count(DR("pods.byNode"), DR("n1")) == 3);
	CHECK(dr_lookup_one(DR("pods"), DR("a"), DR("b"), &v) == DR_NOTFOUND);
	CHECK(dr_http(DR("{}"), &v) == 0 && dr_get(v, "objects").n > 8000);
	CHECK(dr_list(DR("pods"), &v) == 0 && v.n > 8000);
	CHECK(dr_kv_get(DR("k"), &v) == DR_NOTFOUND && dr_kv_set(DR("k"), DR("v"), 0) == 0);
	CHECK(dr_kv_get(DR("k"), &v) == 0 && dr_eq(v, DR("v")));
	CHECK(dr_kv_del(DR("k")) == 0 && dr_kv_get(DR("k"), &v) == DR_NOTFOUND);
}

static int handle(const dr_delta *d, dr_out *out) {
	if (dr_eq(d->name, DR("nothing"))) return DR_OK;
	dr_event(out, NULL, NULL); // without data: null
	dr_string(dr_event(out, "t", "s"), d->name);
	return dr_eq(d->name, DR("fail")) ? dr_fail(out, "bad") : DR_OK;
}

DR_HANDLER(NULL, handle)

int main(void) {
	reads(), survives(), writes(), host();
	CHECK(!dr_test_config(NULL));
	dr_test_want("added", NULL, "{\"metadata\":{\"name\":\"nothing\"}}", "{}");
	dr_test_want("deleted", NULL, "{\"metadata\":{\"name\":\"fail\"}}", "{\"error\":\"bad\"}");
	dr_test_want("sync", NULL, "{\"metadata\":{\"name\":\"a\"}}", "{\"events\":[{\"data\":null},{\"type\":\"t\",\"subject\":\"s\",\"data\":\"a\"}]}");
	return dr_test_end();
}
