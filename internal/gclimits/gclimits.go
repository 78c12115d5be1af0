// Package gclimits sets the goals of Go's garbage collector by the memory limit of the container.
//
// Go sees no limit by itself: its heap grows to twice the objects in use, whatever the container
// may have, and the kernel ends a process that exceeds the limit. Near the limit that Set gives it,
// Go collects more often instead.
package gclimits

import (
	"cmp"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
)

// The variables by which a user sets the goals.
const (
	limitVariable   = "GOMEMLIMIT"
	percentVariable = "GOGC"
)

const (
	// share is the part of the limit for Go's memory, in percent. The rest is for compiled guests,
	// for the pages of files, and for native plugins.
	share = 90
	// percent is the garbage, in percent of the objects in use, after which Go collects if there is
	// a limit. It halves the work of the collector, and takes memory that the container has anyway:
	// close to the limit Go collects as often as necessary. Without a limit Go's 100 stays.
	percent = 200
)

// Machine is the machine of the process, and its environment.
type Machine struct {
	Files  fs.FS // from the root folder
	Getenv func(string) string
}

// This returns the machine of this process.
func This() Machine { return Machine{os.DirFS("/"), os.Getenv} }

// Set sets the goals that the user has not set, and logs both if there is a limit. restore brings
// the former ones back.
func Set(m Machine, log *slog.Logger) (restore func()) {
	limit := Read(m.Files)
	former := debug.SetMemoryLimit(-1)
	goal, undo := former, []func(){}
	if limit.Bytes > 0 && m.Getenv(limitVariable) == "" {
		goal = limit.Bytes / 100 * share
		debug.SetMemoryLimit(goal)
		undo = append(undo, func() { debug.SetMemoryLimit(former) })
	}
	garbage := cmp.Or(m.Getenv(percentVariable), "100")
	if goal < math.MaxInt64 && m.Getenv(percentVariable) == "" {
		before := debug.SetGCPercent(percent)
		garbage = strconv.Itoa(percent)
		undo = append(undo, func() { debug.SetGCPercent(before) })
	}
	if limit.Bytes > 0 {
		log.Info("memory of the router", "limit", size(limit.Bytes), "from", limit.File, limitVariable, size(goal), percentVariable, garbage)
	}
	return func() {
		for _, one := range undo {
			one()
		}
	}
}

// size words a number of bytes as GOMEMLIMIT takes it.
func size(bytes int64) string {
	if bytes == 0 || bytes == math.MaxInt64 {
		return "off"
	}
	return strconv.FormatInt(bytes>>20, 10) + "MiB"
}
