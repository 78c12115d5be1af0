package reflector

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/test/logged"
)

// TestSteps: a reason is removed by its own step only, and logged once without its variable parts.
func TestSteps(t *testing.T) {
	log := &logged.Buffer{}
	h := NewHealth("pods", slog.New(slog.NewTextHandler(log, nil)))
	want := func(reason string, refused bool) {
		t.Helper()
		if _, got, is := h.State(); got != reason || is != refused {
			t.Errorf("reason %q, refused %v; want %q, %v", got, is, reason, refused)
		}
	}
	for _, text := range []string{
		"read tcp 10.0.0.1:1234->10.0.0.2:443: reset", "read tcp 10.0.0.1:4321->10.0.0.2:443: reset",
	} {
		h.failing(stepOpen, errors.New(text))
		want(text, false)
	}
	h.failing(stepDiscovery, errors.New("expired: current time 2026-01-02T03:04:05Z is after 2026-01-01T00:00:00Z"))
	h.failing(stepDiscovery, errors.New("expired: current time 2026-01-02T03:04:06Z is after 2026-01-01T00:00:00Z"))
	h.failing(stepList, &stepError{client.ErrAbsent, stepIdentity})
	h.healthy(stepList, stepStream, stepProbe)
	want("expired: current time 2026-01-02T03:04:06Z is after 2026-01-01T00:00:00Z", true)
	h.healthy(stepDiscovery)
	want(client.ErrAbsent.Error(), true)
	h.healthy(stepIdentity)
	want("read tcp 10.0.0.1:4321->10.0.0.2:443: reset", false)
	h.healthy(stepOpen)
	want("", false)
	h.expected(errors.New("expired"))
	want("expired", false)
	if warnings := strings.Count(log.String(), "WARN"); warnings != 3 || strings.Count(log.String(), "the API server answers") != 1 {
		t.Errorf("%d warnings, want 3:\n%s", warnings, log)
	}
}
