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

	"github.com/deltarouter/deltarouter/internal/access"
)

// streamPatience bounds the time that the reader of a stream may take for one line.
const streamPatience = 10 * time.Second

// TapQuery selects the lines of a tap.
type TapQuery struct {
	Route    string // only this route; empty: all routes of the delta's source
	Rejected bool   // also deltas that routes reject
}

// Tapped is the decision of one route about one delta. It contains only the identity of the object.
type Tapped struct {
	Time            time.Time `json:"time"`
	Op              string    `json:"op"`
	Source          string    `json:"source"`
	Key             string    `json:"key"` // namespace/name
	UID             string    `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	// for a downstream route: type and upstream route of the event, such as pod.broken of
	// broken-pods
	Event string `json:"event,omitempty"`
	Route string `json:"route"`
	// match, no match or error; for a condition: holds, does not hold or error; suppressed or given
	// up
	Verdict string `json:"verdict"`
	// the first part of the condition that is not met, as configured
	Why    string `json:"why,omitempty"`
	At     string `json:"at,omitempty"`     // file:line:column of this part
	Reason string `json:"reason,omitempty"` // the reason for an error
	// the state of the object in the route, as in an [Active]; empty: none
	State string    `json:"state,omitempty"`
	Since time.Time `json:"since,omitzero"` // begin of this state
	Due   time.Time `json:"due,omitzero"`   // time of the report, or of the reminder
	// number of earlier deltas that arrived too fast to be shown
	Missed int64 `json:"missed,omitempty"`
}

// Tap calls show for each line until ctx is done or show returns an error. It must not block the
// flow of deltas. A *[QueryError] is a mistake in the query.
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

// tap writes a line for each Tapped.
func (c *control) tap(w http.ResponseWriter, r *http.Request) {
	q, err := parseTap(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	c.stream(w, r, func(ctx context.Context, out *stream) error {
		return c.Tap(ctx, q, func(t Tapped) error {
			if t == (Tapped{}) { // the first one only makes the answer begin
				return out.write(nil)
			}
			return out.write(t)
		})
	})
}

// stream is an answer of lines of JSON. A client that does not read in time ends it.
type stream struct {
	w       http.ResponseWriter
	conn    *http.ResponseController
	encoder *json.Encoder
	begun   bool
}

// write writes a line; nil only makes the answer begin.
func (s *stream) write(line any) error {
	// Connections without deadlines return an error; it is harmless.
	_ = s.conn.SetWriteDeadline(time.Now().Add(streamPatience))
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "application/x-ndjson")
		s.w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	if line != nil {
		if err := s.encoder.Encode(line); err != nil {
			return err
		}
	}
	return s.conn.Flush()
}

// stream answers with the lines that run writes until the client disconnects or the server closes.
func (c *control) stream(w http.ResponseWriter, r *http.Request, run func(ctx context.Context, out *stream) error) {
	ctx, cancel := c.lasting(r.Context(), r.URL.Path)
	defer cancel()
	out := &stream{w: w, conn: http.NewResponseController(w), encoder: json.NewEncoder(w)}
	err := run(ctx, out)
	// The end of an answer that was idle for long must not meet an old deadline.
	_ = out.conn.SetWriteDeadline(time.Now().Add(streamPatience))
	_, mistake := errors.AsType[*QueryError](err)
	_, denied := errors.AsType[*access.Error](err)
	switch {
	case out.begun:
	case mistake || denied:
		fail(w, statusOf(err), err)
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err)
	}
}

// Tap calls show for each line until ctx is done or show returns an error. An end by the router is
// an error too.
func (c *Client) Tap(ctx context.Context, q TapQuery, show func(Tapped) error) error {
	values := url.Values{"rejected": {strconv.FormatBool(q.Rejected)}}
	if q.Route != "" {
		values.Set("route", q.Route)
	}
	response, err := c.open(ctx, "/api/v1/tap?"+values.Encode())
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
	if err := lines.Err(); err != nil {
		return interrupted("the router closed the tap", err)
	}
	return errors.New("the router closed the tap")
}

// open begins to read a stream, without a limit of time. The caller closes the body.
func (c *Client) open(ctx context.Context, path string) (*http.Response, error) {
	patient := *c
	patient.http.Timeout = 0
	return patient.send(ctx, http.MethodGet, path, nil)
}
