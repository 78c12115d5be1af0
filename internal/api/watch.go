package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The types of a [WatchEvent]. An object that does not match the query any more is DELETED too.
const (
	WatchAdded    = "ADDED"
	WatchModified = "MODIFIED"
	WatchDeleted  = "DELETED"
	WatchListed   = "LISTED" // once, behind the objects that match at the beginning
	watchError    = "ERROR"  // the last line of a stream that the router ends
)

// WatchEvent is a line of a stream of objects. The stream begins with the objects that match, in
// the order of their namespaces and names, as ADDED. LISTED follows, and then each change.
type WatchEvent struct {
	Type string `json:"type"`
	// the object, as an [Answer] shows it; for DELETED, its last state that matched
	Object json.RawMessage `json:"object,omitempty"`
	// of LISTED, as in an [Answer]
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Synced          bool   `json:"synced,omitempty"`
	Reason          string `json:"reason,omitempty"`
	Absent          int    `json:"absent,omitempty"`
	// of ERROR
	Message string `json:"message,omitempty"`
}

// Watch calls show for each event until ctx is done or show returns an error. It must not block the
// changes of the cache: it ends with an error if show is too slow. Limit and After of the query are
// not used. A *[QueryError] is a mistake in the query.
type Watch func(ctx context.Context, q Query, show func(WatchEvent) error) error

// errNoWatch is the answer of an embedded router without Watch.
var errNoWatch = errors.New("this router cannot watch objects")

// watch writes a line for each event, and the reason for the end.
func (c *control) watch(ctx context.Context, q Query, out *stream) error {
	if c.Watch == nil {
		return errNoWatch
	}
	err := c.Watch(ctx, q, func(e WatchEvent) error { return out.write(e) })
	if denied := withdrawn(ctx); denied != nil {
		err = denied
	} else if ctx.Err() != nil {
		return err // a client that has disconnected does not need the reason
	}
	if err != nil && out.begun {
		_ = out.write(WatchEvent{Type: watchError, Message: err.Error()})
	}
	return err
}

// Watch calls show for each event until ctx is done or show returns an error. An end by the router
// is an error too.
func (c *Client) Watch(ctx context.Context, q Query, show func(WatchEvent) error) error {
	path, values := queryPath(q)
	values.Set("watch", "true")
	response, err := c.open(ctx, path+"?"+values.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	for lines := json.NewDecoder(response.Body); ; {
		var e WatchEvent
		err := lines.Decode(&e)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF):
			return errors.New("the router closed the stream: is it still running?")
		case err != nil:
			return interrupted(fmt.Sprintf("the stream from %s broke off", c.addr), err)
		case e.Type == watchError:
			return errors.New(e.Message)
		}
		if err := show(e); err != nil {
			return err
		}
	}
}
