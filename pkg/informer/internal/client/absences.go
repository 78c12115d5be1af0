package client

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Absences discovers the resources that do not exist yet, for all watches: those of one group, and
// of all groups that the API server does not have, share the requests. It is safe for concurrent
// use.
type Absences struct {
	client *Client

	mu      sync.Mutex
	answers map[string]*shared // by path
}

// shared is an answer for several watches.
type shared struct {
	turn  chan struct{} // held during a request; guards the fields below
	asked time.Time
	text  json.RawMessage
	err   error
}

// NewAbsences returns Absences without answers.
func NewAbsences(client *Client) *Absences {
	return &Absences{client: client, answers: make(map[string]*shared)}
}

// Discover is [Client.Discover] with answers that are not older than maxAge. It begins with the
// list of groups: for a group that the API server does not have, nothing else is requested.
func (a *Absences) Discover(ctx context.Context, gvr schema.GroupVersionResource, maxAge time.Duration) (Found, error) {
	get := func(ctx context.Context, path string, into any) error { return a.get(ctx, path, maxAge, into) }
	if gvr.Group != "" {
		// Any other error says nothing of the resource.
		if err := confirmNoVersion(ctx, gvr.GroupVersion(), errThere, get); !errors.Is(err, errThere) {
			return Found{}, err
		}
	}
	return discover(ctx, gvr, get)
}

var errThere = errors.New("the API server has the version")

func (a *Absences) get(ctx context.Context, path string, maxAge time.Duration, into any) error {
	since := time.Now().Add(-maxAge)
	a.mu.Lock()
	s := a.answers[path]
	if s == nil {
		s = &shared{turn: make(chan struct{}, 1)}
		a.answers[path] = s
	}
	a.mu.Unlock()
	// The holder of the turn asks; the others wait for its answer.
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.turn }()
	if !s.asked.After(since) {
		asked := time.Now()
		var text json.RawMessage
		err := a.client.GetJSON(ctx, path, &text)
		if ctx.Err() != nil {
			return ctx.Err() // the next holder of the turn makes its own request
		}
		s.asked, s.text, s.err = asked, text, err
	}
	if s.err != nil {
		return s.err
	}
	return json.Unmarshal(s.text, into)
}
