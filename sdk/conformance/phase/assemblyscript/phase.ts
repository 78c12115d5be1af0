// Reads one field and emits one event, see ../../README.md.

import { Delta, Event, Result, Writer, onDelta } from "../../../assemblyscript/assembly";
export { rtr_abi_version, rtr_alloc, rtr_init, rtr_handle } from "../../../assemblyscript/assembly/exports";

onDelta((d: Delta): Result => {
  const data = new Writer().open("{").key("phase").text(d.path("status.phase").text()).close("}");
  return Result.ok([new Event(data)]);
});
