package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestChoose: a program whose binaries are absent is left out, and so is one that the user does not
// name. The router is always there.
func TestChoose(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"router", "kubewatch", "kubernetes-event-exporter"} {
		touch(t, filepath.Join(dir, name))
	}
	const rest = "Bento Knative metacontroller OpenTelemetry Collector shell-operator Argo Events"
	for _, tt := range []struct {
		name, dir, names string
		run, absent, err string
	}{
		{"all", dir, "", "deltarouter bare kubewatch KEE", rest, ""},
		{"some", dir, "kee,bare", "deltarouter bare KEE", "", ""},
		{"no folder", "", "", "deltarouter bare", "kubewatch " + rest + " KEE", ""},
		{"absent", dir, "bento", "deltarouter", "Bento", ""},
		{"unknown", dir, "bento,kee,cron", "", "", `there is no program ["cron"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newComparison(options{dir: tt.dir, router: filepath.Join(dir, "router")}, false)
			if err := c.choose(tt.names); err != nil {
				if err.Error() != tt.err {
					t.Errorf("got error %v, want %q", err, tt.err)
				}
				return
			}
			if got := names(c.programs); got != tt.run || tt.err != "" {
				t.Errorf("got the programs %s, want %s, error %q", got, tt.run, tt.err)
			}
			if got := names(c.absent); got != tt.absent {
				t.Errorf("got the absent programs %s, want %s", got, tt.absent)
			}
		})
	}
}

// TestContenders: Events are compared only beside a program that tells nothing else, and last.
func TestContenders(t *testing.T) {
	for _, tt := range []struct {
		programs []program
		want     string
	}{
		{[]program{router(), bareLoop(), bento()}, "deltarouter bare Bento"},
		{[]program{router(), bento(), collector(), eventExporter()}, "deltarouter Bento OpenTelemetry Collector deltarouter, Events OpenTelemetry Collector, Events KEE, Events"},
	} {
		c := &comparison{programs: tt.programs}
		var labels []string
		for _, who := range c.contenders() {
			labels = append(labels, who.label())
		}
		if got := strings.Join(labels, " "); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		options options
		err     string
	}{
		{options{parts: "cost,faults,memory", document: "x.md"}, ""},
		{options{parts: "cost", short: true}, ""},
		{options{parts: "cost", short: true, document: "x.md"}, "short run"},
		{options{parts: "cost,speed"}, `no part "speed"`},
	} {
		err := tt.options.check()
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%+v: got error %v, want %q", tt.options, err, tt.err)
		}
	}
}

func names(programs []program) string {
	var all []string
	for _, p := range programs {
		all = append(all, p.name)
	}
	return strings.Join(all, " ")
}

// TestPrograms: each program has what the tables need.
func TestPrograms(t *testing.T) {
	var seen []string
	for _, p := range programs() {
		if slices.Contains(seen, p.name) || len(p.works) == 0 || p.parse == nil || p.setUp == nil || p.name != bareName && len(p.binaries) == 0 {
			t.Errorf("%s is incomplete, or there twice", p.name)
		}
		seen = append(seen, p.name)
	}
	if seen[0] != own {
		t.Errorf("the first program is %s: the ratios are to it", seen[0])
	}
}
