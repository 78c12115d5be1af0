package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Resync selects the objects of a resync.
type Resync struct {
	// Source is the source of the objects; empty: all sources, or all of Route.
	Source string `json:"source,omitempty"`
	// Route is the only route that gets the objects, whatever its `ops` are; its filter applies.
	// Empty: all routes whose `ops` contain sync.
	Route string `json:"route,omitempty"`
	// Relist lists the sources again instead. The differences from the cache go to all routes whose
	// ops contain them.
	Relist bool `json:"relist,omitempty"`
	// DryRun counts the deltas that Route would get, without enqueuing them.
	DryRun bool `json:"dryRun,omitempty"`
}

// Resynced is the result of a Resync.
type Resynced struct {
	Sources []ResyncedSource `json:"sources"`
	// Repeats: the route has a condition, so it repeats earlier reports.
	Repeats bool `json:"repeats,omitempty"`
}

// ResyncedSource is the result of a Resync of one source.
type ResyncedSource struct {
	Name string `json:"name"`
	// repeated objects of the cache; with Relist: listed objects
	Objects int `json:"objects"`
	Taken   int `json:"taken,omitempty"`  // objects that a route enqueued
	Deltas  int `json:"deltas,omitempty"` // with Relist: differences from the cache
	// Unsynced is the reason why the cache does not have all objects yet; empty: it has them.
	Unsynced string `json:"unsynced,omitempty"`
	// Error is the reason why this source was not resynced completely; empty: it was.
	Error string `json:"error,omitempty"`
}

// resyncAll answers after the resync.
func (c *control) resyncAll(r *http.Request) (any, error) {
	var ask Resync
	if err := decode(r, &ask); err != nil {
		return nil, err
	}
	done, err := c.Resync(r.Context(), ask)
	return done, refuse(http.StatusUnprocessableEntity, err)
}

// Resync repeats objects or lists sources again, and returns when that is done.
func (c *Client) Resync(ctx context.Context, ask Resync) (done Resynced, err error) {
	patient := *c
	patient.http.Timeout = 0
	err = patient.call(ctx, http.MethodPost, "/api/v1/resync", ask, &done)
	return done, err
}

// pauser pauses and resumes routes. Its methods are called from any goroutine.
type pauser interface {
	// Pause pauses a route until Resume, or until a time; zero: without end.
	Pause(route string, until time.Time) error
	// Resume resumes a paused route.
	Resume(route string) error
}

// maxPause bounds the time of a pause: a longer one is a mistake, or meant to have no end.
const maxPause = 366 * 24 * time.Hour

// errNoPause is the answer of a process without a Pauser, such as a worker.
var errNoPause = errors.New("this process cannot pause and resume routes: ask the router")

// Paused is the answer to the request for a pause.
type Paused struct {
	// Until is the end of the pause; nil: it has none.
	Until *time.Time `json:"until,omitempty"`
}

// pausing is the body of the request.
type pausing struct {
	For string `json:"for,omitempty"` // as in 2h30m; empty: until the route is resumed
}

// paused pauses a route.
func (c *control) paused(r *http.Request) (any, error) {
	if c.Pauser == nil {
		return nil, refuse(http.StatusConflict, errNoPause)
	}
	var ask pausing
	if err := decode(r, &ask); err != nil {
		return nil, err
	}
	if ask.For == "" {
		return Paused{}, refuse(http.StatusUnprocessableEntity, c.Pauser.Pause(r.PathValue("route"), time.Time{}))
	}
	length, err := time.ParseDuration(ask.For)
	if err != nil || length < time.Second || length > maxPause {
		return nil, refuse(http.StatusBadRequest, fmt.Errorf("for: %q is no time from 1s to %dh, as in 2h30m", ask.For, maxPause/time.Hour))
	}
	until := time.Now().UTC().Truncate(time.Second).Add(length)
	return Paused{&until}, refuse(http.StatusUnprocessableEntity, c.Pauser.Pause(r.PathValue("route"), until))
}

// Pause pauses a route for a time; 0: until it is resumed.
func (c *Client) Pause(ctx context.Context, route string, length time.Duration) (done Paused, err error) {
	var ask pausing
	if length > 0 {
		ask.For = length.String()
	}
	err = c.call(ctx, http.MethodPost, "/api/v1/routes/"+url.PathEscape(route)+"/pause", ask, &done)
	return done, err
}

// resumed resumes a paused route.
func (c *control) resumed(r *http.Request) (any, error) {
	if c.Pauser == nil {
		return nil, refuse(http.StatusConflict, errNoPause)
	}
	return map[string]bool{"resumed": true}, refuse(http.StatusUnprocessableEntity, c.Pauser.Resume(r.PathValue("route")))
}

// Resume resumes a paused route.
func (c *Client) Resume(ctx context.Context, route string) error {
	var done struct{ Resumed bool }
	return c.call(ctx, http.MethodPost, "/api/v1/routes/"+url.PathEscape(route)+"/resume", struct{}{}, &done)
}
