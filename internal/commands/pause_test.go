package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
)

// pauser is both methods of an [api.Pauser].
type pauser func(route string) error

func (p pauser) Pause(route string, _ time.Time) error { return p(route) }
func (p pauser) Resume(route string) error             { return p(route) }

// onlyPurge is an API with one route.
var onlyPurge = api.ControlConfig{Pauser: pauser(func(route string) error {
	if route != "purge" {
		return fmt.Errorf("there is no route %q", route)
	}
	return nil
})}

func TestPauseAndResume(t *testing.T) {
	at := "-api " + serveControl(t, onlyPurge)
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"help pause", 0, "router pause ROUTE", ""},
		{"pause -h", 0, "router pause ROUTE", ""},
		{"pause", 2, "", "name the route, as in router pause ROUTE"},
		{"pause " + at + " purge other", 2, "", `unexpected argument "other"`},
		{"pause " + at + " purge -for 1ms", 2, "", "-for 1ms: give at least 1s"},
		{"pause " + at + " purge", 0, "route purge is paused until router resume purge\n", ""},
		{"pause " + at + " purge -for 2h", 0, "route purge is paused until 20", ""},
		{"pause " + at + " a/b", 1, "", `router pause: there is no route "a/b"`},
		{"help resume", 0, "router resume ROUTE", ""},
		{"resume -h", 0, "router resume ROUTE", ""},
		{"resume", 2, "", "name the route, as in router resume ROUTE"},
		{"resume purge", 2, "", "config.yaml: "},
		{"resume " + at + " purge other", 2, "", `unexpected argument "other"`},
		{"resume " + at + " purge", 0, "route purge goes on\n", ""},
		{"resume purge " + at, 0, "route purge goes on\n", ""},
		{"resume " + at + " a/b", 1, "", `router resume: there is no route "a/b"`},
	} {
		checkRun(t, strings.Fields(c.args), c.code, c.stdout, c.stderr)
	}
}
