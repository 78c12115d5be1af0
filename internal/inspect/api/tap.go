package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// tapPatience is how long the reader of a tap may take for one line.
const tapPatience = 10 * time.Second

// TapQuery says what to show of what goes by.
type TapQuery struct {
	Route    string // only this; empty: all routes that have something from the source
	Rejected bool   // also what routes do not want
}

// Tapped is what a route makes of one delta. It has nothing of the object but its identity.
type Tapped struct {
	Time            time.Time `json:"time"`
	Op              string    `json:"op"`
	Source          string    `json:"source"`
	Key             string    `json:"key"` // namespace/name
	UID             string    `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// of a downstream route: type and route of the event, as in pod.broken of broken-pods
	Event string `json:"event,omitempty"`
	Route string `json:"route"`
	// match, no match or error; of a condition holds, does not hold or error; suppressed or given
	// up
	Verdict string `json:"verdict"`
	// the first condition that is not met, as in the configuration
	Why    string `json:"why,omitempty"`
	At     string `json:"at,omitempty"`     // file:line:column of it
	Reason string `json:"reason,omitempty"` // why it has no value
	// what the route knows of the object by now, as in an [Active]; empty: nothing
	State string    `json:"state,omitempty"`
	Since time.Time `json:"since,omitzero"` // since when that is so
	Due   time.Time `json:"due,omitzero"`   // when it is told, or told again
	// deltas before this one that went by too fast to be shown
	Missed int64 `json:"missed,omitempty"`
}

// Tap shows what goes by until ctx is done or show returns an error. It must not hold up what goes
// by. An error that is a *[QueryError] is the asker's fault.
type Tap func(ctx context.Context, q TapQuery, show func(Tapped) error) error

func parseTap(text string) (q TapQuery, err error) {
	values, err := parameters(text, "route", "rejected")
	if err != nil {
		return q, err
	}
	q.Route = values.Get("route")
	if values.Has("rejected") {
		if q.Rejected, err = strconv.ParseBool(values.Get("rejected")); err != nil {
			return q, fmt.Errorf("rejected: %q is neither true nor false", values.Get("rejected"))
		}
	}
	return q, nil
}

// stream answers with a line of JSON for each Tapped, until the client goes away or the server
// closes.
func (c *control) stream(w http.ResponseWriter, r *http.Request) {
	q, err := parseTap(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-c.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, encoder, begun := http.NewResponseController(w), json.NewEncoder(w), false
	err = c.Tap(ctx, q, func(t Tapped) error {
		// a connection that has none needs none
		_ = conn.SetWriteDeadline(time.Now().Add(tapPatience))
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("X-Content-Type-Options", "nosniff")
		}
		if t != (Tapped{}) { // the first is only to begin
			if err := encoder.Encode(t); err != nil {
				return err
			}
		}
		return conn.Flush()
	})
	wrong, is := errors.AsType[*QueryError](err)
	switch {
	case begun:
	case is && wrong.Unknown:
		fail(w, http.StatusNotFound, err)
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err)
	}
}

// Tap shows what goes by until ctx is done or show returns an error. That the router ends it is an
// error too.
func (c *Client) Tap(ctx context.Context, q TapQuery, show func(Tapped) error) error {
	patient := *c
	patient.http.Timeout = 0
	values := url.Values{"rejected": {strconv.FormatBool(q.Rejected)}}
	if q.Route != "" {
		values.Set("route", q.Route)
	}
	response, err := patient.send(ctx, http.MethodGet, "/api/v1/tap?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		var t Tapped
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return fmt.Errorf("the answer from %s: %w", c.addr, err)
		}
		if err := show(t); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errors.New("the router ended the tap"), lines.Err())
}
