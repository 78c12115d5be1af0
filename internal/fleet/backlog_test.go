package fleet_test

import (
	"context"
	"testing"

	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

// TestBacklog: the number of messages is without the lead record, and unknown at the end.
func TestBacklog(t *testing.T) {
	t.Parallel()
	s := embedded.Start(t, nil)
	c := connect(t, "{servers: ["+s.ClientURL()+"]}")
	type report struct {
		messages uint64
		known    bool
	}
	reports := func() (all []report) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c.Backlog(ctx, func(messages uint64, known bool) {
			all = append(all, report{messages, known})
			cancel()
		})
		return all
	}
	if got := reports(); len(got) != 2 || got[0].known || got[1].known {
		t.Errorf("without the stream: got %v", got)
	}
	if err := c.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		publish(t, c, c.Names.Work(), c.Names.WorkLead(), c.Names.WorkSubject("r", 1, 0, "k"))
	}
	if got := reports(); len(got) != 2 || got[0] != (report{2, true}) || got[1].known {
		t.Errorf("got %v", got)
	}
}
