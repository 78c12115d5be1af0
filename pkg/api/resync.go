package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Resync says what to put through once more.
type Resync struct {
	// Source is whose objects; empty: those of all sources, or of all that Route has.
	Source string `json:"source,omitempty"`
	// Route gets them, whatever its `on` is: its filter decides. Empty: the routes whose `on` has sync.
	Route string `json:"route,omitempty"`
	// Relist has the sources listed anew instead, and what differs from the cache put through, to all routes that want such changes.
	Relist bool `json:"relist,omitempty"`
}

// Resynced is what came of a Resync.
type Resynced struct {
	Sources []ResyncedSource `json:"sources"`
}

// ResyncedSource is what came of a Resync of one source.
type ResyncedSource struct {
	Name    string `json:"name"`
	Objects int    `json:"objects"`          // put through, that are in the cache; with Relist those that the API server has
	Taken   int    `json:"taken,omitempty"`  // of them, those that a route wanted
	Deltas  int    `json:"deltas,omitempty"` // with Relist: what differed
	// Unsynced says why the cache does not have all objects yet; empty: it does.
	Unsynced string `json:"unsynced,omitempty"`
	// Error says why this source was not put through, or not to its end; empty: it was.
	Error string `json:"error,omitempty"`
}

// resyncAll answers when everything is put through, which takes as long as routes take that let their sources wait.
func (c *control) resyncAll(w http.ResponseWriter, r *http.Request) {
	var ask Resync
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&ask); err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("the body: %w", err))
		return
	}
	conn := http.NewResponseController(w)
	_, _ = conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{}) // a connection that has none needs none
	done, err := c.resync(r.Context(), ask)
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, err)
		return
	}
	reply(w, http.StatusOK, done)
}

// Resync puts objects through once more, or lists sources anew. It waits until that is done.
func (c *Client) Resync(ctx context.Context, ask Resync) (done Resynced, err error) {
	patient := *c
	patient.http.Timeout = 0
	err = patient.call(ctx, http.MethodPost, "/api/v1/resync", ask, &done)
	return done, err
}
