// Calls every host function, see ../../README.md.

import {
  Delta, Errno, Event, Result, Value, Writer, count, emit, get, http, kvDelete, kvGet, kvSet, list, lookup, now, onDelta, onSetup, random,
} from "../../../assemblyscript/assembly";
export { rtr_abi_version, rtr_alloc, rtr_init, rtr_handle } from "../../../assemblyscript/assembly/exports";

let url = "";

onSetup((config: Value): string => {
  url = config.get("url").text();
  return "";
});

function name(object: Value): string {
  return object.path("metadata.name").text();
}

onDelta((d: Delta): Result => {
  const kept = kvGet(d.name);
  if (!kept.ok && kept.status != Errno.NotFound) return Result.fail("kv");
  if (kvSet(d.name, kept.text + "x") < 0 || kvSet("gone", "") < 0 || kvDelete("gone") < 0) return Result.fail("kv");
  const pods = lookup("pods.byNode", "n1").value.get("objects").items();
  const nodes = list("nodes").value.get("objects").items();
  const denied = lookup("secrets.byName", "x").status == Errno.Denied;
  const request = new Writer().open("{").key("method").text("POST").key("url").text(url);
  request.key("headers").open("{").key("X-Ask").text("1").close("}").key("body").text("é").close("}");
  const answer = http(request);
  if (!answer.ok) return Result.fail("http");
  if (random(new ArrayBuffer(8)) < 0 || now() < 0) return Result.fail("random");
  if (emit(d, new Event(new Writer().text(d.name), "early")) < 0) return Result.fail("emit");

  const data = new Writer().open("{");
  data.key("bytes").int(String.UTF8.byteLength(answer.value.get("body").text()));
  data.key("count").int(count("pods.byNode", "n1")).key("denied").bool(denied);
  data.key("header").text(answer.value.path("headers.x-answer").text());
  data.key("list").int(nodes.length).key("none").bool(get("nodes", "", "n9").isAbsent);
  data.key("one").text(name(get("nodes", "", "n1")));
  data.key("path").value(d.path("metadata.name"));
  data.key("pods").open("[");
  for (let i = 0; i < pods.length; i++) data.text(name(pods[i]));
  data.close("]").key("seen").text(kept.text).key("status").value(answer.value.get("status"));
  return Result.ok([new Event(data.close("}"))]);
});
