// The handler that every SDK has, see ../README.md.
#include "deltarouter.h"

static dr_str note; // the annotation that is told

static const char *setup(dr_json config) {
	note = dr_text(dr_get(config, "note"));
	return note.n ? NULL : "config: note is missing";
}

static void event(dr_buf *data, const dr_made *e) {
	dr_buf text = {0};
	dr_str parts[] = {e->id, e->type, e->source, e->subject, e->route};
	for (int i = 0; i < 5; i++) dr_append(&text, parts[i].p, parts[i].n), dr_append(&text, " ", 1);
	char digits[20];
	uint32_t at = sizeof digits;
	for (int64_t seconds = e->time_ns / 1000000000; seconds > 0; seconds /= 10) digits[--at] = (char)('0' + seconds % 10);
	dr_append(&text, digits + at, sizeof digits - at), dr_append(&text, " ", 1);
	dr_str team = dr_text(dr_get(e->data, "team"));
	dr_append(&text, team.p, team.n);
	dr_string(data, (dr_str){text.p, text.n});
}

static int handle(const dr_delta *d, dr_out *out) {
	dr_json annotations = dr_field(d, "metadata.annotations");
	dr_str verdict = dr_text(dr_get(annotations, "verdict"));
	if (dr_eq(verdict, DR("fail"))) return dr_fail(out, "as you wish");
	if (dr_eq(verdict, DR("retry"))) return dr_retry(out, "later", 90000);
	if (dr_eq(verdict, DR("drop"))) return DR_DROP;

	int64_t labels = 0;
	for (dr_iter it = dr_each(dr_field(d, "metadata.labels")); dr_next(&it);) labels++;
	int64_t before = dr_int(dr_old_field(d, "spec.replicas"), 0), after = dr_int(dr_field(d, "spec.replicas"), 0);
	dr_str says = dr_text(dr_member(annotations, note));

	dr_buf *data = dr_event(out, "summary", says.n ? NULL : "nothing to say");
	dr_open(data, '{');
	if (d->event.id.n) dr_key(data, "event"), event(data, &d->event);
	dr_key(data, "labels"), dr_number(data, labels);
	if (d->late) dr_key(data, "late"), dr_bool(data, true);
	dr_key(data, "note"), dr_string(data, says);
	dr_buf name = {0};
	dr_append(&name, d->ns.p, d->ns.n);
	if (d->ns.n) dr_append(&name, "/", 1);
	dr_append(&name, d->name.p, d->name.n);
	dr_key(data, "object"), dr_string(data, (dr_str){name.p, name.n});
	dr_key(data, "op"), dr_string(data, dr_op(d));
	if (d->repeat) dr_key(data, "repeat"), dr_bool(data, true);
	if (d->op == DR_UPDATED && before != after) {
		dr_key(data, "replicas");
		dr_open(data, '[');
		dr_number(data, before), dr_number(data, after);
		dr_close(data, ']');
	}
	if (d->since_ns) dr_key(data, "since"), dr_number(data, d->since_ns / 1000000000);
	if (d->suppressed) dr_key(data, "suppressed"), dr_number(data, d->suppressed);
	dr_str team = dr_text(dr_field(d, "metadata.annotations.example\\.com/team"));
	if (team.n) dr_key(data, "team"), dr_string(data, team);
	if (d->traceparent.n) dr_key(data, "traceparent"), dr_string(data, d->traceparent);
	if (d->with.n) dr_key(data, "with"), dr_number(data, dr_int(dr_get(d->with, "pods"), 0));
	dr_close(data, '}');
	return DR_OK;
}

DR_HANDLER(setup, handle)
