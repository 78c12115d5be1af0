package gclimits

import (
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Limit is the memory that the control group of the process may use. The zero Limit: there is none.
type Limit struct {
	Bytes int64
	File  string // that has the limit
}

const (
	maxTable = 64 << 10 // bytes of /proc/self/cgroup
	maxValue = 64       // bytes of a limit
	// unlimited is more than any machine has. Version 1 shows a multiple of the page size below
	// 1<<63 if there is no limit.
	unlimited = 1 << 60
)

// Read returns the lowest memory limit of the control group of this process and of those around it.
// root is the file system of the machine.
//
// The path of the group is relative to that of the namespace, or of the whole machine, although a
// container may see only its own group, as the root of the mount. So folders of the path that do
// not exist are skipped, and the root of the mount is read in any case.
func Read(root fs.FS) (lowest Limit) {
	mounts := []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} // version 2, alone and beside version 1
	for line := range strings.Lines(read(root, "proc/self/cgroup", maxTable)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) < 3:
		case fields[1] == "":
			for _, mount := range mounts {
				lowest = lowest.orLower(within(root, mount, fields[2], "memory.max"))
			}
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			lowest = lowest.orLower(within(root, "sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"))
		}
	}
	return lowest
}

// within returns the lowest limit of a group of a mount and of the groups around it.
func within(root fs.FS, mount, group, name string) (lowest Limit) {
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		file := path.Join(mount, group, name)
		value, err := strconv.ParseInt(strings.TrimSpace(read(root, file, maxValue)), 10, 64)
		if err == nil && value > 0 && value < unlimited { // without a limit, version 2 has "max"
			lowest = lowest.orLower(Limit{value, "/" + file})
		}
		if group == "/" {
			return lowest
		}
	}
}

func (l Limit) orLower(other Limit) Limit {
	if l.Bytes == 0 || other.Bytes > 0 && other.Bytes < l.Bytes {
		return other
	}
	return l
}

// read returns the first bytes of a file; empty: it cannot be read.
func read(root fs.FS, name string, most int64) string {
	f, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	return string(text)
}
