package inspect

import (
	"context"
	"fmt"
	"sync"

	"github.com/deltarouter/deltarouter/internal/access"
)

// places bounds the requests of one kind that run at the same time: all of them, and those of each
// user, so that one user cannot take the places of the others. Without access control there are no
// users. It is safe for concurrent use.
type places struct {
	all     chan struct{}
	perUser int

	mu sync.Mutex
	of map[string]*share // by user, while the user has or waits for a place
}

// share has the places of one user.
type share struct {
	taken    chan struct{}
	requests int // that have or wait for a place
}

func newPlaces(most, perUser int) *places {
	return &places{all: make(chan struct{}, most), perUser: perUser, of: make(map[string]*share)}
}

// enter waits for a place, first among those of the caller. leave frees it.
func (p *places) enter(ctx context.Context) (leave func(), err error) {
	own, forget := p.shareOf(ctx)
	select {
	case own <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
	select {
	case p.all <- struct{}{}:
		return func() { <-p.all; <-own; forget() }, nil
	case <-ctx.Done():
		<-own
		forget()
		return nil, ctx.Err()
	}
}

// try takes a place without waiting. The error says that there is none of what, such as taps.
func (p *places) try(ctx context.Context, what string) (leave func(), err error) {
	own, forget := p.shareOf(ctx)
	select {
	case own <- struct{}{}:
	default:
		forget()
		return nil, fmt.Errorf("you have %d %s already, which is the most of one user: end one of them", p.perUser, what)
	}
	select {
	case p.all <- struct{}{}:
		return func() { <-p.all; <-own; forget() }, nil
	default:
		<-own
		forget()
		return nil, fmt.Errorf("there are %d %s already: end one of them", cap(p.all), what)
	}
}

// shareOf returns the places of the caller. forget is called after the place was freed.
func (p *places) shareOf(ctx context.Context) (own chan struct{}, forget func()) {
	caller := access.From(ctx)
	if caller == nil {
		return make(chan struct{}, 1), func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[caller.Name]
	if s == nil {
		s = &share{taken: make(chan struct{}, p.perUser)}
		p.of[caller.Name] = s
	}
	s.requests++
	return s.taken, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.requests--; s.requests == 0 {
			delete(p.of, caller.Name)
		}
	}
}
