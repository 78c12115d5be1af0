// Package api is what others ask the router over HTTP. It stands beside the flow: internal/router
// tells it what to answer, and it knows no stage.
//
// [Server] serves the probes and nothing else, so that it may listen on an address that the whole
// cluster reaches: /healthz (the process answers), /readyz (who waits for what, see [Check]) and
// /metrics. The control API (see [NewControl]) shows objects and changes things: it is a second
// Server, on a loopback address or a socket, and [Client] is how `router dlq` talks to it.
package api
