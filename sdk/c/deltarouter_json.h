// Reading and writing JSON without a library, for deltarouter.h.
//
// A value is a piece of the text it stands in: nothing is copied or built, and a look-up scans the text before it. Text that is not JSON
// reads as absent. No read leaves the text, whatever its content is.
#ifndef DELTAROUTER_JSON_H
#define DELTAROUTER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// dr_str is a piece of text: no zero at its end.
typedef struct {
	const char *p;
	uint32_t n;
} dr_str;

// dr_json is the text of one JSON value, without spaces around it; n is 0 if there is none.
typedef dr_str dr_json;

// DR makes a dr_str of a string constant.
#define DR(s) ((dr_str){(s), sizeof(s) - 1})

// dr_alloc returns memory, aligned to 8 bytes, that is valid until the handler returns. It never fails: without memory the guest traps.
static inline void *dr_alloc(uint32_t size);
// dr_keep is dr_alloc for memory that is valid for ever, and never freed.
static inline void *dr_keep(uint32_t size);

static inline void dr_copy(char *to, const char *from, uint32_t n) { __builtin_memcpy(to, from, n); }

// dr_z makes a dr_str of a C string; NULL is empty.
static inline dr_str dr_z(const char *s) {
	uint32_t n = 0;
	while (s && s[n]) n++;
	return (dr_str){s, n};
}

static inline bool dr_eq(dr_str a, dr_str b) {
	if (a.n != b.n) return false;
	for (uint32_t i = 0; i < a.n; i++)
		if (a.p[i] != b.p[i]) return false;
	return true;
}

static inline bool dr_has_prefix(dr_str s, dr_str prefix) {
	return s.n >= prefix.n && dr_eq((dr_str){s.p, prefix.n}, prefix);
}

// ---- reading

static inline const char *dr__space(const char *p, const char *end) {
	while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) p++;
	return p;
}

// dr__string returns the text behind the string at p, which is its opening quote.
static inline const char *dr__string(const char *p, const char *end) {
	for (p++; p < end && *p != '"'; p++)
		if (*p == '\\') p++;
	return p < end ? p + 1 : end;
}

// dr__skip returns the text behind the value at p. It counts brackets, so that depth costs no stack.
static inline const char *dr__skip(const char *p, const char *end) {
	uint32_t depth = 0;
	while (p < end) {
		if (*p == '"') {
			p = dr__string(p, end);
		} else if (*p == '{' || *p == '[') {
			depth++;
			p++;
			continue;
		} else if (*p == '}' || *p == ']') {
			if (depth == 0) return p;
			depth--;
			p++;
		} else if (depth == 0 && (*p == ',' || *p == ':' || *p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) {
			return p;
		} else {
			p++;
			if (depth == 0) continue; // within a number or a word
		}
		if (depth == 0) return p;
	}
	return end;
}

// dr_kind is the first byte of a value: one of { [ " t f n - 0 to 9, and 0 if there is none.
static inline char dr_kind(dr_json v) { return v.n ? v.p[0] : 0; }

// dr_iter goes through the members of an object or the elements of an array; see dr_each.
typedef struct {
	const char *p, *end;
	bool object;
	dr_json key;   // of an object's member, with its quotes: dr_text reads it
	dr_json value;
} dr_iter;

// dr_each begins to go through v: `for (dr_iter it = dr_each(v); dr_next(&it);)`. A value that is neither object nor array has no elements.
static inline dr_iter dr_each(dr_json v) {
	char kind = dr_kind(v);
	dr_iter it = {v.p, v.p, kind == '{', {0, 0}, {0, 0}};
	if (kind == '{' || kind == '[') it.p = v.p + 1, it.end = v.p + v.n;
	return it;
}

static inline bool dr_next(dr_iter *it) {
	const char *p = dr__space(it->p, it->end);
	if (p < it->end && *p == ',') p = dr__space(p + 1, it->end);
	if (p >= it->end || *p == '}' || *p == ']') return false;
	if (it->object) {
		if (*p != '"') return false;
		const char *after = dr__string(p, it->end);
		it->key = (dr_json){p, (uint32_t)(after - p)};
		p = dr__space(after, it->end);
		if (p >= it->end || *p != ':') return false;
		p = dr__space(p + 1, it->end);
	}
	it->p = dr__skip(p, it->end);
	it->value = (dr_json){p, (uint32_t)(it->p - p)};
	return it->p > p;
}

static inline int dr__hex(const char *p, const char *end) {
	int code = 0;
	if (end - p < 4) return -1;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
		if (digit < 0) return -1;
		code = code * 16 + digit;
	}
	return code;
}

static inline char *dr__utf8(char *to, uint32_t code) {
	if (code < 0x80) {
		*to++ = (char)code;
	} else if (code < 0x800) {
		*to++ = (char)(0xc0 | code >> 6), *to++ = (char)(0x80 | (code & 0x3f));
	} else if (code < 0x10000) {
		*to++ = (char)(0xe0 | code >> 12), *to++ = (char)(0x80 | (code >> 6 & 0x3f)), *to++ = (char)(0x80 | (code & 0x3f));
	} else {
		*to++ = (char)(0xf0 | code >> 18), *to++ = (char)(0x80 | (code >> 12 & 0x3f));
		*to++ = (char)(0x80 | (code >> 6 & 0x3f)), *to++ = (char)(0x80 | (code & 0x3f));
	}
	return to;
}

// dr__unicode reads the digits behind \u, both halves of a pair; half a pair is U+FFFD.
static inline const char *dr__unicode(const char *p, const char *end, uint32_t *code) {
	int unit = dr__hex(p, end);
	*code = 0xfffd;
	if (unit < 0) return p;
	p += 4;
	if (unit >= 0xd800 && unit < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
		int low = dr__hex(p + 2, end);
		if (low >= 0xdc00 && low < 0xe000) {
			*code = 0x10000 + (((uint32_t)unit - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
			return p + 6;
		}
	}
	if (unit < 0xd800 || unit >= 0xe000) *code = (uint32_t)unit;
	return p;
}

// dr_text returns the content of a string, its escapes resolved; empty if v is none. It is a piece of v if there are no escapes, else it
// is valid until the handler returns.
static inline dr_str dr_text(dr_json v) {
	if (v.n < 2 || v.p[0] != '"' || v.p[v.n - 1] != '"') return (dr_str){0, 0};
	const char *p = v.p + 1, *end = v.p + v.n - 1;
	dr_str raw = {p, (uint32_t)(end - p)};
	while (p < end && *p != '\\') p++;
	if (p == end) return raw;
	char *text = dr_alloc(raw.n + 4), *to = text; // an escape is never shorter than its character
	for (p = raw.p; p < end;) {
		if (*p != '\\' || p + 1 == end) {
			*to++ = *p++;
			continue;
		}
		char c = p[1];
		p += 2;
		switch (c) {
		case 'b': *to++ = '\b'; break;
		case 'f': *to++ = '\f'; break;
		case 'n': *to++ = '\n'; break;
		case 'r': *to++ = '\r'; break;
		case 't': *to++ = '\t'; break;
		case 'u': {
			uint32_t code;
			const char *after = dr__unicode(p, end, &code);
			if (after > p) to = dr__utf8(to, code);
			p = after;
			break;
		}
		default: *to++ = c;
		}
	}
	return (dr_str){text, (uint32_t)(to - text)};
}

// dr_member returns the value of a member of an object.
static inline dr_json dr_member(dr_json v, dr_str key) {
	for (dr_iter it = dr_each(v); it.object && dr_next(&it);) {
		dr_str plain = {it.key.p + 1, it.key.n - 2};
		if (dr_eq(plain, key) || dr_eq(dr_text(it.key), key)) return it.value;
	}
	return (dr_json){0, 0};
}

// dr_get is dr_member for a C string.
static inline dr_json dr_get(dr_json v, const char *key) { return dr_member(v, dr_z(key)); }

// dr__key reads a key of a path until a dot: a backslash takes the character behind it literally.
static inline const char *dr__key(const char *path, dr_str *key) {
	uint32_t n = 0;
	while (path[n] && path[n] != '.' && path[n] != '\\') n++;
	*key = (dr_str){path, n};
	if (path[n] != '\\') return path + n;
	char *text = dr_alloc(dr_z(path).n);
	for (n = 0; *path && *path != '.'; path++) {
		if (*path == '\\' && path[1]) path++;
		text[n++] = *path;
	}
	*key = (dr_str){text, n};
	return path;
}

// dr_path follows keys that are separated by dots: dr_path(d->event.data, "pod.labels"). In a key, \\. is a dot. For the objects of
// a delta dr_field is faster.
static inline dr_json dr_path(dr_json v, const char *path) {
	while (v.n) {
		dr_str key;
		path = dr__key(path, &key);
		v = dr_member(v, key);
		if (!*path++) break;
	}
	return v;
}

// dr_int returns a whole number that fits; otherwise if v is none.
static inline int64_t dr_int(dr_json v, int64_t otherwise) {
	uint32_t i = v.n && v.p[0] == '-' ? 1 : 0;
	if (i == v.n) return otherwise;
	uint64_t sum = 0, most = (uint64_t)INT64_MAX + i;
	for (; i < v.n; i++) {
		uint64_t digit = (uint64_t)(v.p[i] - '0');
		if (v.p[i] < '0' || v.p[i] > '9' || sum > (most - digit) / 10) return otherwise;
		sum = sum * 10 + digit;
	}
	return v.p[0] == '-' ? (int64_t)(0 - sum) : (int64_t)sum;
}

// dr_true reports whether v is true.
static inline bool dr_true(dr_json v) { return dr_eq(v, DR("true")); }

// ---- writing

// dr_buf is a text that grows. {0} is an empty one, valid until the handler returns.
typedef struct {
	char *p;
	uint32_t n, size;
	bool kept; // its memory is of dr_keep
} dr_buf;

static inline void dr_append(dr_buf *b, const char *p, uint32_t n) {
	if (b->size - b->n < n) {
		uint32_t size = b->size ? b->size : 256;
		while (size - b->n < n) {
			if (size > 1u << 30) __builtin_trap();
			size *= 2;
		}
		char *larger = b->kept ? dr_keep(size) : dr_alloc(size);
		if (b->n) dr_copy(larger, b->p, b->n);
		b->p = larger, b->size = size;
	}
	if (n) dr_copy(b->p + b->n, p, n);
	b->n += n;
}

// dr__comma separates a value from the one before.
static inline void dr__comma(dr_buf *b) {
	char last = b->n ? b->p[b->n - 1] : '{';
	if (last != '{' && last != '[' && last != ':') dr_append(b, ",", 1);
}

// dr_raw writes a value that is JSON already.
static inline void dr_raw(dr_buf *b, dr_json v) {
	dr__comma(b);
	dr_append(b, v.p, v.n);
}

// dr_open begins an object with '{' or an array with '['; dr_close ends it with '}' or ']'.
static inline void dr_open(dr_buf *b, char bracket) {
	dr__comma(b);
	dr_append(b, &bracket, 1);
}

static inline void dr_close(dr_buf *b, char bracket) { dr_append(b, &bracket, 1); }

// dr_string writes a string. The text must be UTF-8.
static inline void dr_string(dr_buf *b, dr_str s) {
	static const char hex[] = "0123456789abcdef", shorts[] = "btn?fr"; // \b is 8
	dr__comma(b);
	dr_append(b, "\"", 1);
	uint32_t from = 0;
	for (uint32_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];
		if (c >= ' ' && c != '"' && c != '\\') continue;
		dr_append(b, s.p + from, i - from);
		from = i + 1;
		char escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
		if (c >= ' ') escape[1] = (char)c;
		else if (c >= 8 && c <= 13 && c != 11) escape[1] = shorts[c - 8];
		dr_append(b, escape, escape[1] == 'u' ? 6 : 2);
	}
	dr_append(b, s.p + from, s.n - from);
	dr_append(b, "\"", 1);
}

// dr_key writes the key of the member whose value comes next.
static inline void dr_key(dr_buf *b, const char *key) {
	dr_string(b, dr_z(key));
	dr_append(b, ":", 1);
}

static inline void dr_number(dr_buf *b, int64_t v) {
	char digits[20];
	uint32_t at = sizeof digits;
	uint64_t left = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
	do digits[--at] = (char)('0' + left % 10);
	while (left /= 10);
	if (v < 0) digits[--at] = '-';
	dr_raw(b, (dr_str){digits + at, (uint32_t)sizeof digits - at});
}

static inline void dr_bool(dr_buf *b, bool v) { dr_raw(b, v ? DR("true") : DR("false")); }

#endif
