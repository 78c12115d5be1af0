// Package module finds the module of a handler, for all kinds of handlers that run WebAssembly: in
// a file or in a registry. If the registry is not available when the router starts, the handler
// waits for it.
package module

// Example is the example of the keys of a [Source], for the reference.
const Example = `module: oci://registry.example.com/team/dns:1.2   # or a file: ./plugins/dns.wasm
sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08   # sha256sum dns.wasm; absent: any content
verify:                   # only for a module of a registry
  key: ./cosign.pub
  identity: registry.example.com/team/dns
registry:
  credentials: /secrets/.dockerconfigjson
  plainHTTP: false
  timeout: 1m
  tls: {ca: {file: ca.crt}, cert: {file: tls.crt}, key: {file: tls.key}}
`
