// Package engine compiles and meters a module, and makes instances of it. Each [Engine] has its own
// runtime. An [Instance] is one guest with its own memory. A [Protocol] defines the
// communication with guests.
package engine
