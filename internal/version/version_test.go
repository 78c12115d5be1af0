package version

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// TestDescribe compares the JSON, on which scripts of users rely.
func TestDescribe(t *testing.T) {
	formats := Formats{Handlers: map[string]map[string]int{"wasm": {"rtr_v1": 1}}, State: 3}
	settings := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "false"},
	}
	client := &debug.Module{Path: "k8s.io/client-go", Version: "v0.37.2"}
	replaced := &debug.Module{Path: "k8s.io/client-go", Version: "v0.37.2", Replace: &debug.Module{Path: "example.com/fork", Version: "v9.0.0"}}
	const formatsJSON = `"handlers":{"wasm":{"rtr_v1":1}},"stateFormat":3}`
	for _, c := range []struct {
		name  string
		stamp Stamp
		build *debug.BuildInfo
		want  string
	}{
		{
			"a build in a clone",
			Stamp{Version: "v1.2.3"},
			&debug.BuildInfo{Settings: settings, Deps: []*debug.Module{client}},
			`{"version":"v1.2.3","commit":"0123abc","commitTime":"2026-01-02T03:04:05Z","go":"GO","platform":"PLATFORM","kubernetes":"v0.37.2",` + formatsJSON,
		},
		{
			"modified, a replaced client",
			Stamp{Version: "v1.2.3"},
			&debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, Deps: []*debug.Module{replaced}},
			`{"version":"v1.2.3","modified":true,"go":"GO","platform":"PLATFORM","kubernetes":"v9.0.0",` + formatsJSON,
		},
		{
			"stamped",
			Stamp{Version: "v1.2.3", Commit: "4567def", CommitTime: "2026-02-03T04:05:06Z", Modified: "true"},
			&debug.BuildInfo{Settings: settings, Deps: []*debug.Module{client}},
			`{"version":"v1.2.3","commit":"4567def","commitTime":"2026-02-03T04:05:06Z","modified":true,"go":"GO","platform":"PLATFORM","kubernetes":"v0.37.2",` + formatsJSON,
		},
		{
			"no build information",
			Stamp{Version: "v1.2.3"},
			nil,
			`{"version":"v1.2.3","go":"GO","platform":"PLATFORM","kubernetes":"",` + formatsJSON,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := json.Marshal(Describe(c.stamp, c.build, formats))
			if err != nil {
				t.Fatal(err)
			}
			want := strings.NewReplacer(`"GO"`, `"`+runtime.Version()+`"`, "PLATFORM", runtime.GOOS+"/"+runtime.GOARCH).Replace(c.want)
			if string(got) != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
