// A handler that tells which labels of an object were added, removed or changed. See README.md.
#include "deltarouter.h"

static dr_str prefix; // of the labels that count

static const char *setup(dr_json config) {
	for (dr_iter it = dr_each(config); dr_next(&it);)
		if (!dr_eq(dr_text(it.key), DR("prefix")) || dr_kind(it.value) != '"') return "config: only prefix, a string, is known";
	prefix = dr_text(dr_get(config, "prefix"));
	return NULL;
}

static dr_json labels(dr_json object) { return dr_path(object, "metadata.labels"); }

// compare writes the labels of `these` that count: those that `others` does not have, or (changed) has with another value.
static int compare(dr_buf *data, const char *member, dr_json these, dr_json others, bool changed) {
	int n = 0;
	for (dr_iter it = dr_each(these); dr_next(&it);) {
		dr_str key = dr_text(it.key), value = dr_text(it.value);
		dr_json other = dr_member(others, key);
		if (!dr_has_prefix(key, prefix) || changed != (other.n != 0) || (changed && dr_eq(value, dr_text(other)))) continue;
		if (n++ == 0) dr_key(data, member), dr_open(data, '{');
		dr_string(data, key), dr_append(data, ":", 1);
		if (!changed) {
			dr_string(data, value);
			continue;
		}
		dr_open(data, '{');
		dr_key(data, "from"), dr_string(data, dr_text(other));
		dr_key(data, "to"), dr_string(data, value);
		dr_close(data, '}');
	}
	if (n) dr_close(data, '}');
	return n;
}

static int handle(const dr_delta *d, dr_out *out) {
	if (d->op != DR_UPDATED || !d->old_object.n) return DR_OK;
	dr_json before = labels(d->old_object), after = labels(d->object);
	dr_buf data = {0};
	dr_open(&data, '{');
	dr_key(&data, "kind"), dr_string(&data, d->kind);
	if (d->ns.n) dr_key(&data, "namespace"), dr_string(&data, d->ns);
	dr_key(&data, "name"), dr_string(&data, d->name);
	int n = compare(&data, "added", after, before, false);
	n += compare(&data, "removed", before, after, false);
	n += compare(&data, "changed", after, before, true);
	dr_close(&data, '}');
	if (n) dr_raw(dr_event(out, "deltarouter.label-audit", NULL), (dr_json){data.p, data.n});
	return DR_OK;
}

DR_HANDLER(setup, handle)
