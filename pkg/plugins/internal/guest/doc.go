// Package guest runs the guests of a handler, which are instances of a WebAssembly module. The
// kinds of handlers share it. They differ in the module and in the [engine.Protocol] of its guests.
//
// The parts, in the order in which a batch passes them:
//
//	Handler   splits a batch into calls; after a trap halves it until the faulty delta is alone
//	pool      lends an instance to one call at a time, and discards instances that trapped or are worn out
//	engine    compiles the module once, makes instances of it, and calls them
//	host      the functions that guests import, and the state of a call
//	fetch     the HTTP requests of guests
//	files     the files that commands may read
//	abi       the encoding of batches and answers
//	meter     rewrites the module so that fuel and stack are counted and guests pause
package guest

// Example is the example of the keys that all kinds have, for the reference.
const Example = `fields: [metadata.labels, status.phase]   # absent: all, or those that the module declares
allow:                    # nothing unless it is said here
  lookup: [pods.byNode, nodes]
  http:
    - host: "api.example.com:443"
      scheme: https
      methods: [GET, POST]
      paths: ["/v1/tickets", "/v1/tickets/*"]
      headers: {Authorization: {file: /secrets/token}}
      rate: 10
      private: false
  kv: true
  clock: false
  random: false
limits:                   # the defaults are right for most guests
  module: 32Mi
  memory: 64Mi
  instances: 4
  calls: 100k
  fuel: 75M
  initFuel: 2G
  timeout: 1s
  initTimeout: 5s
  batch: 256
  input: 1Mi
  output: 1Mi
  events: 64
  message: 4Ki
  log: 100
  logLine: 4Ki
  kv: 1Mi
`
