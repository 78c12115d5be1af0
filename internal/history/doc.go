// Package history keeps the changes of the sources and the decisions of the routes on disk, for
// some time and in bounded space, and answers questions about them: what happened to an object,
// what a route did with it, and what it was at a time.
//
//	Engine.Admit ──Delta──┐
//	                      ├──► Log ──► segments ──► Reader ──► history, why, runs, backtest
//	routes ──Decision─────┘
//
// A [Log] takes both without a wait: it never holds up a delta. Its writer works in batches of a
// second, so a crash loses the last second of the history, and no more. What it cannot write,
// because the disk is full or too slow, is lost and counted, and the history says so.
//
// The state of an object is stored as its difference to the one before, see package difference. The
// first change of an object in a segment has the state before it as a whole, so each segment can be
// read alone, and the state at a time is that before the first change after it. Secrets have no
// texts, only their identity.
package history
