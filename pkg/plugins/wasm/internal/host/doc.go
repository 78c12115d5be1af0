// Package host has the functions that guests may import: those of the ABI rtr_v1 and WASI preview
// 1, and the pauses that package meter puts in. A [Host] is what the guests of one handler may do;
// a [Scope] is what one guest does in its present call: its fuel, its time, and what it emits and
// writes, which takes effect when the call has succeeded.
package host
