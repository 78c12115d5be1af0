// Reads one field and emits one event, see ../../README.md.
#include "deltarouter.h"

static int handle(const dr_delta *d, dr_out *out) {
	dr_buf *data = dr_event(out, NULL, NULL);
	dr_open(data, '{');
	dr_key(data, "phase"), dr_string(data, dr_text(dr_field(d, "status.phase")));
	dr_close(data, '}');
	return DR_OK;
}

DR_HANDLER(NULL, handle)
