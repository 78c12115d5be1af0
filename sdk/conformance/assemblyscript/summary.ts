// The handler that every SDK has, see ../README.md.

import { Delta, Event, Op, Result, Value, Writer, onDelta, onSetup, opName } from "../../assemblyscript/assembly";
export { rtr_abi_version, rtr_alloc, rtr_init, rtr_handle } from "../../assemblyscript/assembly/exports";

let note = ""; // the annotation that is told

onSetup((config: Value): string => {
  note = config.get("note").text();
  return note.length > 0 ? "" : "config: note is missing";
});

onDelta((d: Delta): Result => {
  const annotations = d.path("metadata.annotations");
  const verdict = annotations.get("verdict").text();
  if (verdict == "fail") return Result.fail("as you wish");
  if (verdict == "retry") return Result.retry("later", 90000);
  if (verdict == "drop") return Result.drop();

  const says = annotations.get(note).text();
  const data = new Writer().open("{");
  if (d.isEvent) {
    const seconds = d.eventTimeNs / 1000000000;
    data.key("event").text([
      d.eventId, d.eventType, d.eventSource, d.eventSubject, d.eventRoute, seconds.toString(), d.eventData.get("team").text(),
    ].join(" "));
  }
  data.key("labels").int(d.path("metadata.labels").members().length);
  if (d.late) data.key("late").bool(true);
  data.key("note").text(says);
  data.key("object").text(d.namespace.length > 0 ? d.namespace + "/" + d.name : d.name);
  data.key("op").text(opName(d.op));
  if (d.repeat) data.key("repeat").bool(true);
  const before = d.oldPath("spec.replicas").int();
  const after = d.path("spec.replicas").int();
  if (d.op == Op.Updated && before != after) data.key("replicas").open("[").int(before).int(after).close("]");
  if (d.sinceNs != 0) data.key("since").int(d.sinceNs / 1000000000);
  if (d.suppressed != 0) data.key("suppressed").int(d.suppressed);
  const team = d.path("metadata.annotations.example\\.com/team").text();
  if (team.length > 0) data.key("team").text(team);
  if (d.traceparent.length > 0) data.key("traceparent").text(d.traceparent);
  if (!d.withValues.isAbsent) data.key("with").int(d.withValues.get("pods").int());
  data.close("}");
  return Result.ok([new Event(data, "summary", says.length > 0 ? "" : "nothing to say")]);
});
