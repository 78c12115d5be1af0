// Package version describes a build of the router.
package version

import (
	"runtime"
	"runtime/debug"
)

// clientGo is the module whose version is that of the Kubernetes client.
const clientGo = "k8s.io/client-go"

// Info is the output of router version -o json. Keys are added only, and never renamed.
type Info struct {
	Version    string `json:"version"`
	Commit     string `json:"commit,omitempty"`     // empty: built outside of a git repository
	CommitTime string `json:"commitTime,omitempty"` // RFC 3339
	Modified   bool   `json:"modified,omitempty"`   // built from files that differ from the commit
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Kubernetes string `json:"kubernetes"` // version of the Kubernetes client

	Formats
}

// Formats are the versions of the interfaces to handlers, and of the state file.
type Formats struct {
	// Handlers are the versions of the interfaces to handlers, by kind of handler and interface.
	Handlers map[string]map[string]int `json:"handlers"`
	State    int                       `json:"stateFormat"` // format of the state file that this build writes
}

// The linker writes these into a binary, with go build -ldflags
// "-X github.com/deltarouter/deltarouter/internal/version.version=…", see the Makefile and
// tools/release.
var (
	version            = "dev"
	commit, commitTime string
	modified           string
)

// Stamped returns the stamp of this binary.
func Stamped() Stamp {
	return Stamp{Version: version, Commit: commit, CommitTime: commitTime, Modified: modified}
}

// Stamp contains the values that the linker writes into a binary. The compiler's own record of the
// commit is missing in git worktrees and depends on the tags of the clone, so that builds of one
// commit would differ.
type Stamp struct {
	Version    string
	Commit     string // empty: the compiler's record is used
	CommitTime string
	Modified   string // "true" or "false"
}

// Describe combines the stamp with the compiler's record in the binary.
func Describe(stamp Stamp, build *debug.BuildInfo, formats Formats) Info {
	info := Info{
		Version: stamp.Version, Commit: stamp.Commit, CommitTime: stamp.CommitTime, Modified: stamp.Modified == "true",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Formats: formats,
	}
	if build == nil {
		return info
	}
	if stamp.Commit == "" {
		info.readCommit(build.Settings)
	}
	for _, m := range build.Deps {
		if m.Path == clientGo {
			info.Kubernetes = m.Version
			if m.Replace != nil {
				info.Kubernetes = m.Replace.Version
			}
		}
	}
	return info
}

func (i *Info) readCommit(settings []debug.BuildSetting) {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.time":
			i.CommitTime = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		}
	}
}
