package api

import (
	"context"
	"net/http"
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
