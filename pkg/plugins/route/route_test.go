package route_test

import (
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/plugins/plugintest"
	"github.com/deltarouter/deltarouter/pkg/plugins/route"
)

func TestFeeds(t *testing.T) {
	node := plugintest.Node(t, "name: per-team")
	if problems := route.Factory().Check(node); len(problems) > 0 {
		t.Fatal(problems)
	}
	name, at := route.Factory().Feeds(node)
	if name != "per-team" || !strings.Contains(at.Problemf("here").Error(), "name") {
		t.Errorf("it feeds %q, written at %v", name, at.Problemf("here"))
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"{}": "name is missing", "nam: x": "unknown key", "name: [a]": "must be",
	} {
		problems := route.Factory().Check(plugintest.Node(t, text))
		if len(problems) == 0 || !strings.Contains(problems[0].Error(), want) {
			t.Errorf("%s: %v, want %q", text, problems, want)
		}
	}
}

// Whoever writes to it by mistake is told, and loses nothing by it.
func TestIsNotWrittenTo(t *testing.T) {
	sink, err := route.Factory().Open(t.Context(), plugintest.Node(t, "name: x"), plugins.Env{})
	if err != nil {
		t.Fatal(err)
	}
	events := plugintest.Events(t)
	errs := sink.Write(t.Context(), events)
	if len(errs) != len(events) {
		t.Fatalf("%d errors for %d events", len(errs), len(events))
	}
	for _, err := range errs {
		if err == nil {
			t.Error("an event was taken")
		}
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
