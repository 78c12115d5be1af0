package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/internal/inspect/api"
)

func TestResume(t *testing.T) {
	addr := serveControl(t, api.ControlConfig{
		Resume: func(route string) error {
			if route != "purge" {
				return fmt.Errorf("there is no route %q", route)
			}
			return nil
		},
	})
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
