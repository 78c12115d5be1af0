package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/inspect/api"
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

func TestPause(t *testing.T) {
	addr := serveControl(t, onlyPurge)
	at := "-api " + addr
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"-h", 0, "router pause ROUTE", ""},
		{"", 2, "", "name the route"},
		{at + " purge other", 2, "", `unexpected argument "other"`},
		{at + " purge -for 1ms", 2, "", "-for 1ms: give at least 1s"},
		{at + " purge", 0, "route purge is paused until router resume purge\n", ""},
		{at + " purge -for 2h", 0, "route purge is paused until 20", ""},
		{at + " a/b", 1, "", `router pause: there is no route "a/b"`},
	} {
		checkRun(t, append([]string{"pause"}, strings.Fields(c.args)...), c.code, c.stdout, c.stderr)
	}
}

func TestResume(t *testing.T) {
	addr := serveControl(t, onlyPurge)
	at := "-api " + addr
	for _, c := range []struct {
		args           string
		code           int
		stdout, stderr string // contained
	}{
		{"help", 0, "router resume ROUTE", ""},
		{"-h", 0, "router resume ROUTE", ""},
		{"", 2, "", "name the route"},
		{"purge", 2, "", "config.yaml: "},
		{at + " purge other", 2, "", `unexpected argument "other"`},
		{at + " purge", 0, "route purge goes on\n", ""},
		{"purge " + at, 0, "route purge goes on\n", ""},
		{at + " a/b", 1, "", `router resume: there is no route "a/b"`},
	} {
		checkRun(t, append([]string{"resume"}, strings.Fields(c.args)...), c.code, c.stdout, c.stderr)
	}
}
