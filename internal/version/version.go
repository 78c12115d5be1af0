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

// Formats are the versions of what the router exchanges with handlers, and with other versions of
// itself.
type Formats struct {
	// Handlers are the versions of the interfaces to handlers, by kind of handler and interface.
	Handlers map[string]map[string]int `json:"handlers"`
	State    int                       `json:"stateFormat"` // format of the state file that this build writes
}

// Describe completes a version with what the compiler recorded in the binary.
func Describe(version string, build *debug.BuildInfo, formats Formats) Info {
	info := Info{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Formats: formats}
	if build == nil {
		return info
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.time":
			info.CommitTime = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
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
