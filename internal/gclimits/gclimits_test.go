package gclimits_test

import (
	"bytes"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/deltarouter/deltarouter/internal/gclimits"
	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// files has the content of files of a machine by their names.
type files map[string]string

func (f files) fs() fstest.MapFS {
	root := fstest.MapFS{}
	for name, content := range f {
		root[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return root
}

const (
	v1 = "9:name=systemd:/\n4:cpuset,memory:/kubepods/pod1/c1\n1:cpu:/x\n0::/\n"
	v2 = "0::/system.slice/router.service\n"
)

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		files files
		want  gclimits.Limit
	}{
		"none":                             {files{}, gclimits.Limit{}},
		"version 2, a container":           {files{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, gclimits.Limit{Bytes: 512 << 20, File: "/sys/fs/cgroup/memory.max"}},
		"version 2, no limit":              {files{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, gclimits.Limit{}},
		"version 2, outside of the folder": {files{"proc/self/cgroup": "0::/../../other\n", "sys/fs/cgroup/memory.max": "7\n"}, gclimits.Limit{Bytes: 7, File: "/sys/fs/cgroup/memory.max"}},
		"version 2, the group around has less": {
			files{"proc/self/cgroup": v2, "sys/fs/cgroup/system.slice/memory.max": "100\n", "sys/fs/cgroup/system.slice/router.service/memory.max": "200\n"},
			gclimits.Limit{Bytes: 100, File: "/sys/fs/cgroup/system.slice/memory.max"},
		},
		"version 2, the group around has more": {
			files{"proc/self/cgroup": v2, "sys/fs/cgroup/system.slice/memory.max": "300\n", "sys/fs/cgroup/system.slice/router.service/memory.max": "200\n"},
			gclimits.Limit{Bytes: 200, File: "/sys/fs/cgroup/system.slice/router.service/memory.max"},
		},
		"version 1, the whole machine": {
			files{"proc/self/cgroup": v1, "sys/fs/cgroup/memory/kubepods/pod1/c1/memory.limit_in_bytes": "100\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
			gclimits.Limit{Bytes: 100, File: "/sys/fs/cgroup/memory/kubepods/pod1/c1/memory.limit_in_bytes"},
		},
		"version 1, its own group only": {
			files{"proc/self/cgroup": v1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "100\n"},
			gclimits.Limit{Bytes: 100, File: "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
		},
		"version 1, no limit": {files{"proc/self/cgroup": v1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, gclimits.Limit{}},
		"both versions":       {files{"proc/self/cgroup": v1, "sys/fs/cgroup/unified/memory.max": "100"}, gclimits.Limit{Bytes: 100, File: "/sys/fs/cgroup/unified/memory.max"}},
		"no numbers":          {files{"proc/self/cgroup": "0::/\nx\n", "sys/fs/cgroup/memory.max": "-5\n"}, gclimits.Limit{}},
		"behind the bound":    {files{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": strings.Repeat(" ", 64) + "5"}, gclimits.Limit{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := gclimits.Read(c.files.fs()); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestSet(t *testing.T) {
	limited := files{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1048576000"}
	for name, c := range map[string]struct {
		files   files
		env     map[string]string
		bytes   int64
		percent int
		logged  string
	}{
		"no limit":          {files{}, nil, math.MaxInt64, 100, ""},
		"a limit":           {limited, nil, 943718400, 200, "limit=1000MiB from=/sys/fs/cgroup/memory.max GOMEMLIMIT=900MiB GOGC=200"},
		"GOGC is set":       {limited, map[string]string{"GOGC": "off"}, 943718400, 100, "GOMEMLIMIT=900MiB GOGC=off"},
		"GOMEMLIMIT is set": {limited, map[string]string{"GOMEMLIMIT": "off"}, math.MaxInt64, 100, "limit=1000MiB from=/sys/fs/cgroup/memory.max GOMEMLIMIT=off GOGC=100"},
	} {
		t.Run(name, func(t *testing.T) {
			// The environment of the test may have its own goals.
			bytesBefore, percentBefore := debug.SetMemoryLimit(math.MaxInt64), debug.SetGCPercent(100)
			defer debug.SetMemoryLimit(bytesBefore)
			defer debug.SetGCPercent(percentBefore)
			var log bytes.Buffer
			restore := gclimits.Set(gclimits.Machine{Files: c.files.fs(), Getenv: func(name string) string { return c.env[name] }}, slog.New(slog.NewTextHandler(&log, nil)))
			wantGoals(t, c.bytes, c.percent)
			if !strings.Contains(log.String(), c.logged) || (c.logged == "") != (log.Len() == 0) {
				t.Errorf("logged %s, want %s", log.String(), c.logged)
			}
			restore()
			wantGoals(t, math.MaxInt64, 100)
		})
	}
}

// wantGoals compares the goals of the garbage collector, and leaves them as they are.
func wantGoals(t *testing.T, limit int64, percent int) {
	t.Helper()
	garbage := debug.SetGCPercent(percent)
	debug.SetGCPercent(garbage)
	if got := debug.SetMemoryLimit(-1); got != limit || garbage != percent {
		t.Errorf("GOMEMLIMIT %d, GOGC %d, want %d and %d", got, garbage, limit, percent)
	}
}

// TestLoading: garbage is collected early while a router loads its objects, unless the user has set
// GOGC, and as before when they are loaded.
func TestLoading(t *testing.T) {
	before := debug.SetGCPercent(200)
	defer debug.SetGCPercent(before)
	for value, want := range map[string]int{"": 25, "70": 200} {
		loaded := gclimits.Loading(gclimits.Machine{Getenv: func(string) string { return value }})
		wantGoals(t, debug.SetMemoryLimit(-1), want)
		loaded()
		loaded()
		wantGoals(t, debug.SetMemoryLimit(-1), 200)
	}
}
