package commands

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
)

// TestPromote: the command waits until the standby leads, and shows a refusal.
func TestPromote(t *testing.T) {
	behind := 0.8
	fleet := &api.FleetStatus{Name: "f", Member: "b", Role: "standby", Members: []api.Member{
		{Name: "a", Role: "leader", Version: "v1", Config: strings.Repeat("c", 64), Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
		{Name: "b", Role: "standby", Behind: &behind},
	}}
	asked := make(chan struct{}, 1)
	addr := serveControl(t, api.ControlConfig{
		Status: func(context.Context) api.Status {
			select {
			case <-asked: // at the first look after the request it is still a standby
				asked = nil
			default:
				if asked == nil {
					leads := *fleet
					leads.Role = "leader"
					return api.Status{Fleet: &leads}
				}
			}
			return api.Status{Fleet: fleet}
		},
		Promote: func(context.Context) error { asked <- struct{}{}; return nil },
		Standby: func() error { return errors.New("this member is a standby of fleet \"f\": ask the leader, a") },
	})
	checkRun(t, []string{"status", "-api", addr}, 0, "\nMEMBER  ROLE     BEHIND  SINCE                 VERSION  CONFIG\n"+
		"a       leader   -       2026-01-02T03:04:05Z  v1       cccccccccccc\nb *     standby  0.8s    -                     -        -\n", "")
	checkRun(t, []string{"dlq", "retry", "-route", "r", "-api", addr}, 1, "", `this member is a standby of fleet "f": ask the leader, a`)
	checkRun(t, []string{"promote", "-api", addr}, 0, "b leads\n", "")
	checkRun(t, []string{"promote", "x"}, 2, "", `unexpected argument "x"`)
	addr = serveControl(t, api.ControlConfig{Promote: func(context.Context) error { return errors.New("this member leads already") }})
	checkRun(t, []string{"promote", "-api", addr}, 1, "", "this member leads already")
	addr = serveControl(t, api.ControlConfig{})
	checkRun(t, []string{"promote", "-api", addr}, 1, "", "in no fleet")
}
