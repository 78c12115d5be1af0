// Package abi encodes the batches and decodes the answers of the ABI rtr_v1. It depends on no
// engine. docs/ABI.md specifies each byte.
package abi

// Version is the version of rtr_v1 in batches, which guests must support.
const Version = 1
