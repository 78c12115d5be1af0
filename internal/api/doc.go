// Package api is the HTTP interface of the router. internal/router supplies the functions that
// answer; the package does not know the stages of the flow.
//
// A [Server] of the probes serves nothing else, so it may listen on an address that the whole
// cluster can reach: /healthz (the process answers), /readyz (the checks by name, see [Check]) and
// /metrics. The control API (see [NewControl]) shows objects and changes things. It is a second
// Server, on a loopback address or a socket that only its owner may use, and [Client] is its
// client, which `router dlq` uses.
package api
