package api

import (
	"context"
	"net/http"
)

// Resync says what to put through once more.
type Resync struct {
	// Source is whose objects; empty: those of all sources, or of all that Route has.
	Source string `json:"source,omitempty"`
	// Route gets them, whatever its `ops` are: its filter decides. Empty: the routes whose `ops`
	// have sync.
	Route string `json:"route,omitempty"`
	// Relist has the sources listed anew instead, and what differs from the cache put through, to
	// all routes that want such changes.
	Relist bool `json:"relist,omitempty"`
	// DryRun counts what Route would be given, and gives it nothing.
	DryRun bool `json:"dryRun,omitempty"`
}

// Resynced is what came of a Resync.
type Resynced struct {
	Sources []ResyncedSource `json:"sources"`
	// Repeats: the route has a condition, so what it is given was told before and is told once
	// more.
	Repeats bool `json:"repeats,omitempty"`
}

// ResyncedSource is what came of a Resync of one source.
type ResyncedSource struct {
	Name string `json:"name"`
	// put through, that are in the cache; with Relist those that the API server has
	Objects int `json:"objects"`
	Taken   int `json:"taken,omitempty"`  // of them, those that a route wanted
	Deltas  int `json:"deltas,omitempty"` // with Relist: what differed
	// Unsynced says why the cache does not have all objects yet; empty: it does.
	Unsynced string `json:"unsynced,omitempty"`
	// Error says why this source was not put through, or not to its end; empty: it was.
	Error string `json:"error,omitempty"`
}

// resyncAll answers when everything is put through.
func (c *control) resyncAll(r *http.Request) (any, error) {
	var ask Resync
	if err := decode(r, &ask); err != nil {
		return nil, err
	}
	done, err := c.Resync(r.Context(), ask)
	return done, refuse(http.StatusUnprocessableEntity, err)
}

// Resync puts objects through once more, or lists sources anew. It waits until that is done.
func (c *Client) Resync(ctx context.Context, ask Resync) (done Resynced, err error) {
	patient := *c
	patient.http.Timeout = 0
	err = patient.call(ctx, http.MethodPost, "/api/v1/resync", ask, &done)
	return done, err
}
