package sim_test

import (
	"net/http"
	"slices"
	"time"
)

// barren is the answer to each watch that requests no initial events: it is opened and brings
// nothing.
type barren int

const (
	fertile barren = iota
	empty
	loginPage
	failing
	silent // it stays open
)

// answers returns the answer to a watch. The stream of a silent one is open.
func (b barren) answers(s *stream) *http.Response {
	switch b {
	case fertile, empty:
	case loginPage:
		return answer(200, "<html>log in</html>")
	case failing:
		return answer(200, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","message":"starting","reason":"TooManyRequests","code":429}}`+"\n")
	case silent:
		s.silent = true
		s.c.streams = append(s.c.streams, s)
		return s.response()
	}
	return answer(200, "")
}

// dry ends all connections, and makes all later watches barren.
func (c *cluster) dry(b barren) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.barren = b
	c.hangUp(false)
}

// barren makes changes that no stream brings, because each watch is barren until both are listed:
// the router must list them by itself, while the API server answers all its requests.
func (w *world) barren(a, b int) {
	if w.l == nil {
		return
	}
	lists, began := w.c.listed(), time.Now()
	kind := 1 + barren(a)%(silent-1)
	if a%8 == 7 { // rare, since the silence of an open watch counts after three minutes only
		kind = silent
	}
	w.c.dry(kind)
	for i := range 1 + b%3 {
		w.c.happen(nameOf(a+i), change(b+i)%changes, i%2 == 0)
	}
	noticed := func() bool { return w.c.listed() >= lists+w.watches() }
	for w.l != nil && !noticed() && time.Since(began) < 10*time.Minute {
		w.pass(3 * time.Second)
	}
	blocks := func(r *route) bool { return r.overflow == "block" } // and so may block its source
	if w.l != nil && !noticed() && !slices.ContainsFunc(w.all(), blocks) {
		w.fail("life %d lists %d times in %v of barren watches, want %d", w.lives, w.c.listed()-lists, time.Since(began), w.watches())
	}
	w.c.dry(fertile)
	w.pass(1500 * time.Millisecond)
	w.c.bookmark() // the watches prove themselves, so that the next ones may be listed at once
}
