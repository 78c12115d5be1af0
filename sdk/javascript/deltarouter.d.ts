// The types of a handler for deltarouter, for editors and tsc. A handler in JavaScript names them in
// a comment:
//
//   /** @type {import("./sdk/deltarouter").Handler} */
//   export default function (delta, ctx) { … }

/** A function that turns a change into events. It may be async. */
export type Handler = (delta: Delta, ctx: Context) => Result | Promise<Result>;

/** Nothing and null are no events. */
export type Result = Event[] | null | undefined | void | typeof Drop;

declare const Drop: unique symbol;

/** An event. Without a type it is io.deltarouter.<op>, without a subject namespace/name. */
export interface Event {
  type?: string;
  subject?: string;
  /** Any value that JSON.stringify takes. */
  data: unknown;
}

/** An object of Kubernetes, as the API server sent it, or the `fields` of it that the handler declares. */
export interface KubernetesObject {
  metadata: { name: string; namespace?: string; uid?: string; resourceVersion?: string; labels?: Record<string, string>; annotations?: Record<string, string>; [key: string]: any };
  [key: string]: any;
}

/** A change of an object. Times are texts, as in 2026-01-02T15:04:05.123Z. */
export interface Delta {
  op: "added" | "updated" | "deleted" | "deselected" | "sync" | "entered" | "left";
  source: string;
  cluster: string;
  /** [group/]version/resource */
  resource: string;
  kind: string;
  namespace: string;
  name: string;
  uid: string;
  resourceVersion: string;
  /** The state after the change, or the last one of a deleted object. Parsed when it is first read. */
  object: KubernetesObject;
  /** The state before the change, if there are both. */
  oldObject?: KubernetesObject;
  initial: boolean;
  stale: boolean;
  redelivered: boolean;
  late: boolean;
  repeat: boolean;
  seen: string;
  since?: string;
  suppressed?: number;
  traceParent?: string;
  /** The values of the route's with. */
  with?: Record<string, any>;
  /** What another route made of the delta. */
  event?: { id: string; type: string; source: string; subject: string; route: string; time: string; data: any };
}

/** The functions of the router. Those without a grant throw an error. */
export interface Context {
  /** The configuration of the handler. */
  readonly config: any;
  /** return ctx.drop: handled without events, and counted as dropped. */
  readonly drop: typeof Drop;
  /** throw ctx.retry("not yet", 5000): handle the delta again, not before so many milliseconds. It is no attempt; any other exception is one. */
  retry(message: string, afterMs?: number): Error;
  /** The objects of an index, as in lookup("pods.byNode", "n1"). Needs allow.lookup. */
  lookup(index: string, key: string): KubernetesObject[];
  list(source: string): KubernetesObject[];
  get(source: string, namespace: string, name: string): KubernetesObject | undefined;
  /** The number of objects of an index, or of a source. */
  count(indexOrSource: string, key?: string): number;
  /** A request to a host of allow.http. Without an answer, status is 0 and error has the reason. */
  http(request: { url: string; method?: string; headers?: Record<string, string>; body?: string; bodyBase64?: string }): {
    status: number;
    headers?: Record<string, string>;
    body?: string;
    bodyBase64?: string;
    error?: string;
  };
  /** Values that all instances share and restarts keep, written as JSON. Needs allow.kv. An exception drops what the call has written. */
  readonly kv: {
    get(key: string): any;
    set(key: string, value: unknown, options?: { ttlMs?: number }): void;
    delete(key: string): boolean;
  };
}
