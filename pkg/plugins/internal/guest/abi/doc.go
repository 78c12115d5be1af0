// Package abi encodes the batches and decodes the answers of the ABI rtr_v1, which docs/ABI.md
// specifies, and encodes deltas and parses answers as JSON for guests of other kinds. [Limits] are
// the limits of a handler of WebAssembly modules. The package depends on no engine.
package abi

// Version is the version of rtr_v1 in batches, which guests must support.
const Version = 1
