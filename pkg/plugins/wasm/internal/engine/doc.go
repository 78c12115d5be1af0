// Package engine compiles a module, meters it, and makes instances of it. An [Engine] has a runtime
// of its own; an [Instance] is one guest with a memory of its own. How to speak with a guest is a
// protocol: there is one so far, rtr_v1.
package engine
