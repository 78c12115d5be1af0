// Package abi encodes the batches and decodes the answers of the ABI rtr_v1. It knows neither an
// engine nor a module. docs/ABI.md has the layout byte by byte.
package abi

// Version is the version of rtr_v1 that batches say and that a guest must speak.
const Version = 1
