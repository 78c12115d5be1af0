// A handler that makes a short summary of a pod. See README.md.

import { Delta, Event, Member, Op, Result, Value, Writer, onDelta, onSetup, opName } from "../../../sdk/assemblyscript/assembly";
export { rtr_abi_version, rtr_alloc, rtr_init, rtr_handle } from "../../../sdk/assemblyscript/assembly/exports";

let images = false; // whether images are told

onSetup((config: Value): string => {
  const members: Member[] = config.members();
  for (let i = 0; i < members.length; i++) {
    if (members[i].key != "images") return "config: unknown key " + members[i].key;
  }
  images = config.get("images").isTrue;
  return "";
});

// summary is the data of an event, without what differs by op.
function summary(d: Delta, pod: Value): Writer {
  const data = new Writer().open("{");
  data.key("namespace").text(d.namespace).key("pod").text(d.name);
  data.key("phase").text(phase(pod));
  const node = pod.path("spec.nodeName").text();
  if (node.length > 0) data.key("node").text(node);

  const statuses = pod.path("status.containerStatuses").items();
  let ready = 0;
  let restarts: i64 = 0;
  for (let i = 0; i < statuses.length; i++) {
    if (statuses[i].get("ready").isTrue) ready++;
    restarts += statuses[i].get("restartCount").int();
  }
  const containers = pod.path("spec.containers").items();
  data.key("ready").text(ready.toString() + "/" + containers.length.toString());
  data.key("restarts").int(restarts);
  if (images) {
    data.key("images").open("[");
    for (let i = 0; i < containers.length; i++) data.text(containers[i].get("image").text());
    data.close("]");
  }
  return data.close("}");
}

// phase is what kubectl shows: the reason that a container waits for, or ended with, says more than the pod's phase.
function phase(pod: Value): string {
  if (!pod.path("metadata.deletionTimestamp").isAbsent) return "Terminating";
  const statuses = pod.path("status.containerStatuses").items();
  for (let i = 0; i < statuses.length; i++) {
    const waiting = statuses[i].path("state.waiting.reason").text();
    if (waiting.length > 0) return waiting;
    const terminated = statuses[i].path("state.terminated.reason").text();
    if (terminated.length > 0) return terminated;
  }
  const reason = pod.path("status.reason").text();
  return reason.length > 0 ? reason : pod.path("status.phase").text();
}

onDelta((d: Delta): Result => {
  const now = summary(d, d.object).toString();
  // What is the same as before is not told again.
  if (d.op == Op.Updated && now == summary(d, d.oldObject).toString()) return Result.ok();
  const data = new Writer().open("{").key("op").text(opName(d.op)).key("summary").raw(now).close("}");
  return Result.ok([new Event(data, "deltarouter.pod-summary")]);
});
