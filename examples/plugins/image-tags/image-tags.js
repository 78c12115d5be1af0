// Reports the images of a workload that no digest or version pins.

/** @type {import("../../../sdk/javascript/deltarouter").Handler} */
export default function (delta, ctx) {
  const containers = (object) => object?.spec.template.spec.containers ?? [];
  const before = new Set(containers(delta.oldObject).map((c) => c.image));
  const loose = containers(delta.object).filter((c) => !pinned(c.image) && !before.has(c.image));
  if (loose.length === 0) return ctx.drop;
  console.log(`${delta.namespace}/${delta.name}:`, loose.map((c) => c.name));
  return [{ type: 'example.image-tags', data: { team: owner(delta.namespace, ctx), images: loose.map((c) => c.image) } }];
}

function pinned(image) {
  return image.includes('@sha256:') || /:[^/]*\d[^/]*$/.test(image);
}

// owner reads a label of the namespace from the router's cache.
function owner(namespace, ctx) {
  return ctx.get('namespaces', '', namespace)?.metadata.labels?.team ?? ctx.config.team;
}
