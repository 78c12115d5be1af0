// Package host contains the functions that guests may import: those of the ABI rtr_v1 and of WASI
// preview 1, and the pauses that package meter inserts. A [Host] has the grants of the guests of
// one handler. A [Scope] is the state of one guest in a call: its fuel, its time, and its events
// and writes, which take effect when the call has succeeded.
package host
