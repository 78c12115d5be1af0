package main

import (
	"debug/buildinfo"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

// TestParse: the statements of a POST of each program.
func TestParse(t *testing.T) {
	const object = `{"kind":"ConfigMap","metadata":{"name":"a"},"data":{"stamp":"7","text":"x"}}`
	changed, removed := told{"a", 7, false}, told{"a", 7, true}
	attribute := func(kind string) http.Header {
		return http.Header{"Ce-Type": {"dev.knative.apiserver.resource." + kind}}
	}
	otlp := func(kind, fields string) string {
		return `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"kvlistValue":{"values":[{"key":"type","value":{"stringValue":"` + kind + `"}},` +
			`{"key":"object","value":{"kvlistValue":{"values":[{"key":"metadata","value":{"kvlistValue":{"values":[{"key":"name","value":{"stringValue":"a"}}]}}},` +
			fields + `]}}}]}}}]}]}]}`
	}
	const data = `{"key":"data","value":{"kvlistValue":{"values":[{"key":"stamp","value":{"stringValue":"7"}}]}}}`
	for _, tt := range []struct {
		name    string
		program program
		header  http.Header
		body    string
		want    []told // nil: an error
	}{
		{"fields", router(), nil, `{"op":"updated","name":"a","stamp":"7"}`, []told{changed}},
		{"a delete", bento(), nil, `{"op":"DELETED","name":"a","stamp":"7"}`, []told{removed}},
		{"a delete of Argo Events", argoEvents(), nil, `{"op":"DELETE","name":"a","stamp":"7"}`, []told{removed}},
		{"no name", router(), nil, `{}`, nil},
		{"kubewatch", kubewatch(), nil, `{"data":{"operation":"update","obj":` + object + `}}`, []told{changed}},
		{"kubewatch, delete", kubewatch(), nil, `{"data":{"operation":"delete","obj":` + object + `}}`, []told{removed}},
		{"kubewatch, delete of a list", kubewatch(), nil, `{"data":{"operation":"delete","obj":null,"description":"A ` + "`config map` in namespace `x` has been `Deleted`:\\n`x/a`" + `"}}`, []told{{"a", 0, true}}},
		{"kubewatch, nothing", kubewatch(), nil, `{"data":{"operation":"update"}}`, nil},
		{"Knative", knative(), attribute("update"), object, []told{changed}},
		{"Knative, delete", knative(), attribute("delete"), object, []told{removed}},
		{"metacontroller", metacontroller(), nil, `{"object":` + object + `,"finalizing":false}`, []told{changed}},
		{"collector", collector(), nil, otlp("MODIFIED", data), []told{changed}},
		{"collector, delete", collector(), nil, otlp("DELETED", data), []told{removed}},
		{"collector, Event", collector(), nil, otlp("ADDED", `{"key":"message","value":{"stringValue":"7"}}`), []told{changed}},
		{"shell-operator", shellOperator(), nil, `[{"op":"Modified","name":"a","stamp":"7"},{"op":"Deleted","name":"a","stamp":"7"}]`, []told{changed, removed}},
		{"shell-operator, no JSON", shellOperator(), nil, `[`, nil},
		{"KEE", eventExporter(), nil, `{"op":"added","name":"a","stamp":"7"}`, []told{changed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.program.parse(tt.header, []byte(tt.body))
			if (err != nil) != (tt.want == nil) || err == nil && !slices.Equal(got, tt.want) {
				t.Errorf("got %v, error %v, want %v", got, err, tt.want)
			}
		})
	}
}

// TestBrief: the body of the loop is that of the programs that select fields.
func TestBrief(t *testing.T) {
	for line, want := range map[string]brief{
		`{"type":"MODIFIED","object":{"metadata":{"name":"a"},"data":{"stamp":"7"}}}`: {"MODIFIED", "a", "7"},
		`{"type":"ADDED","object":{"metadata":{"name":"a"},"message":"7"}}`:           {"ADDED", "a", "7"},
	} {
		if got, err := briefOf([]byte(line)); err != nil || got != want {
			t.Errorf("got %v, error %v, want %v", got, err, want)
		}
	}
}

// TestSetUp: the programs that need no cluster for it write a configuration and name their process.
func TestSetUp(t *testing.T) {
	for _, p := range []program{router(), bareLoop(), kubewatch(), bento(), knative(), shellOperator(), argoEvents(), eventExporter()} {
		home := &place{dir: t.TempDir(), kubeconfig: "/k", receiver: "http://127.0.0.1:1", work: p.works[0], binary: func(name string) string { return name }}
		commands, err := p.setUp(t.Context(), home)
		if err != nil || len(commands) == 0 {
			t.Errorf("%s: %d commands, error %v", p.name, len(commands), err)
		}
	}
}

func TestVersions(t *testing.T) {
	settings := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-08-20T10:00:00Z"}}
	for _, tt := range []struct {
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"v1.2.3", nil, "v1.2.3"},
		{"(devel)", settings, "012345678, 2026-08-20"},
		{"v0.0.0-20260820100000-0123456789ab", settings, "012345678, 2026-08-20"},
		{"v0.1.1-0.20260820100000-0123456789ab", settings, "012345678, 2026-08-20"},
		{"v1.2.3", settings, "v1.2.3, 012345678, 2026-08-20"},
		{"(devel)", nil, "unknown"},
	} {
		if got := recorded(&buildinfo.BuildInfo{Main: debug.Module{Version: tt.version}, Settings: tt.settings}); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.version, got, tt.want)
		}
	}
	for text, want := range map[string]string{
		"Version: v1.20\nDate: 1": "v1.20", "nats-server: v2.12.0\n": "v2.12.0", "router 0123-dirty go1.26\n": "0123-dirty go1.26",
		"otelcol-contrib version 0.111.0\n": "0.111.0", "none\n": "", "": "",
	} {
		if got := firstLine(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	home := &place{dir: "/tmp/x", kubeconfig: "/tmp/y/kubeconfig", receiver: "http://127.0.0.1:1"}
	got := commandLine([]command{
		{path: "/opt/server", args: []string{"-c", "/tmp/x/a.conf"}},
		{path: "/opt/tool", args: []string{"--to", "http://127.0.0.1:1", "--at=127.0.0.1:2"}, env: []string{"KUBE=/tmp/y/kubeconfig", "LONG=0123456789012345678901234567890123456789012345678901234567890"}},
	}, home)
	if want := "server -c DIR/a.conf; KUBE=KUBECONFIG LONG=… tool --to URL --at=127.0.0.1:PORT"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCPU: the time of a process includes that of its children that have ended.
func TestCPU(t *testing.T) {
	const stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 9 0 1"
	if got := cpuOf(stat); got != 1270*time.Millisecond {
		t.Errorf("got %v", got)
	}
	if cpuOf("") != 0 {
		t.Error("a process that has ended has used something")
	}
}

func touch(t *testing.T, file string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}
