// Package engine compiles and meters a module, and makes instances of it. Each [Engine] has its own
// runtime. An [Instance] is one guest with its own memory. A protocol defines the communication
// with guests. The only one is rtr_v1.
package engine
