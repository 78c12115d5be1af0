package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/test/must"
)

// TestForgedDelta: a delta that the leader has not signed for its place is delivered only if there
// are no keys.
func TestForgedDelta(t *testing.T) {
	// Guarantee: workers-signed
	t.Parallel()
	for name, keys := range map[string]string{
		"with keys": fmt.Sprintf("{members: %q, workers: %q}", strings.Repeat("m", 32), strings.Repeat("w", 32)), "without": "",
	} {
		t.Run(name, func(t *testing.T) {
			f := newSigned(t, keys)
			s := f.sink("first")
			f.publish(s, 1, "a")
			names, js := f.conn.Names, f.conn.JS
			stream, err := js.Stream(t.Context(), names.Work())
			must.Succeed(t, err)
			signed, err := stream.GetLastMsgForSubject(t.Context(), names.WorkRoute(s.Route().ID))
			must.Succeed(t, err)
			forged, err := work.NewCodec().Decode(signed.Data)
			must.Succeed(t, err)
			forged.Delta.New, err = event.ParseObject(pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"default","name":"evil","uid":"e","resourceVersion":"1"}}`)
			must.Succeed(t, err)
			put := func(subject string, body []byte, mac []string) {
				t.Helper()
				_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: body, Header: nats.Header{fleet.MACHeader: mac}})
				must.Succeed(t, err)
			}
			mac := signed.Header[fleet.MACHeader]
			put(signed.Subject, work.NewCodec().Encode(forged), nil)
			put(signed.Subject, work.NewCodec().Encode(forged), mac)
			put(signed.Subject[:strings.LastIndexByte(signed.Subject, '.')]+".other", signed.Data, mac) // of another key
			f.publish(s, 2, "a")

			w, err := open(t.Context(), f.options(), f.plan)
			must.Succeed(t, err)
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := w.run(ctx)
				ended <- err
			}()
			f.receiver.until(t, "the last one", func(events []event.Event) bool {
				return len(events) > 0 && events[len(events)-1].Of.New.ResourceVersion() == "2"
			})
			end()
			must.Succeed(t, <-ended)
			must.Succeed(t, w.close(t.Context()))
			got := make([]string, 0, len(f.receiver.events))
			for _, e := range f.receiver.events {
				got = append(got, e.Of.New.Key().Name)
			}
			all := strings.Join(got, " ")
			if keys == "" {
				if !strings.Contains(all, "evil") {
					t.Errorf("the attack is not what it was: %s", all)
				}
				return
			}
			if n := w.conn.Refused.Count(fleet.RefusedDelta); n != 3 || all != "a a" {
				t.Errorf("%d were refused, and %s delivered", n, all)
			}
		})
	}
}
