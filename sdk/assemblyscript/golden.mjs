// Runs golden files against a module: node golden.mjs handler.wasm testdata/*.txtar
//
// A file is in the txtar format, with the sections config.json, deltas.json ({"op", "object", "oldObject"} one after the other) and
// results.json (a value per delta: {"events": […]}, {"error": "…"}, {"retry": "…"}, {"drop": true} or {}).

import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { load } from "./host.mjs";

const [module, ...files] = process.argv.slice(2);
if (files.length === 0) throw new Error("usage: node golden.mjs handler.wasm file.txtar …");

let failures = 0;
for (const file of files) {
  const sections = split(readFileSync(file, "utf8"));
  const guest = await load(module, { config: JSON.parse(sections["config.json"] ?? "null") });
  const deltas = values(sections["deltas.json"]);
  const want = values(sections["results.json"]).map((v) => JSON.parse(v));
  const got = guest.handle(deltas.map(delta));
  got.forEach((result, i) => {
    if (isDeepStrictEqual(result, want[i])) return;
    failures++;
    console.error(`${file}: delta ${i + 1}:\ngot  ${JSON.stringify(result)}\nwant ${JSON.stringify(want[i])}`);
  });
  if (got.length !== want.length || got.length === 0) {
    failures++;
    console.error(`${file}: ${got.length} deltas, ${want.length} results`);
  }
}
if (failures > 0) process.exit(1);
console.log("ok");

// delta keeps the text of the objects: what JSON.parse makes of large numbers is not what stands there.
function delta(json) {
  const d = JSON.parse(json);
  for (const key of ["object", "oldObject"]) if (d[key] !== undefined) d[key] = member(json, key);
  return d;
}

function split(file) {
  const sections = {};
  for (const part of file.split(/^-- /m).slice(1)) {
    const end = part.indexOf("\n");
    sections[part.slice(0, end).replace(/ --\s*$/, "")] = part.slice(end + 1);
  }
  return sections;
}

// values splits a text into its JSON values.
function values(s) {
  const all = [];
  for (let rest = s.trim(); rest !== ""; ) {
    const end = skip(rest, 0);
    all.push(rest.slice(0, end));
    rest = rest.slice(end).trim();
  }
  return all;
}

// skip returns what follows the object at i.
function skip(s, i) {
  for (let depth = 0, quoted = false; i < s.length; i++) {
    if (quoted && s[i] === "\\") i++;
    else if (s[i] === '"') quoted = !quoted;
    else if (!quoted && "{[".includes(s[i])) depth++;
    else if (!quoted && "}]".includes(s[i]) && --depth === 0) return i + 1;
  }
  throw new Error("a JSON value has no end");
}

// member returns the text of a member, an object, of an object.
function member(json, key) {
  for (let i = 1, depth = 0; i < json.length; i++) {
    if (json[i] === '"') {
      let end = i + 1;
      while (json[end] !== '"') end += json[end] === "\\" ? 2 : 1;
      if (depth === 0 && json.slice(i, end + 1) === `"${key}"`) {
        const from = json.indexOf("{", end);
        return json.slice(from, skip(json, from));
      }
      i = end;
    } else if ("{[".includes(json[i])) depth++;
    else if ("}]".includes(json[i])) depth--;
  }
  throw new Error(`no ${key}`);
}
