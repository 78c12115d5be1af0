package gclimits

import (
	"runtime/debug"
	"sync"
)

// whileLoading is the garbage, in percent of the objects in use, after which Go collects while the
// objects of the first lists arrive. The heap grows all the time then, so with 100 it takes up to
// twice the needed size, and users look at the memory of a process in its first minutes. Each
// object is marked about five times instead of twice.
const whileLoading = 25

// Loading makes Go collect more often while a router fills its caches. loaded ends that, and
// returns the memory to the system that is free then, which takes one collection. It may be called
// several times. A value of GOGC that the user has set is not changed.
func Loading(m Machine) (loaded func()) {
	if m.Getenv(percentVariable) != "" {
		return sync.OnceFunc(debug.FreeOSMemory)
	}
	usual := debug.SetGCPercent(whileLoading)
	return sync.OnceFunc(func() {
		debug.SetGCPercent(usual)
		debug.FreeOSMemory()
	})
}
