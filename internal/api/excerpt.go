package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// ExcerptQuery selects a span of the history of some sources.
type ExcerptQuery struct {
	Sources      []string
	Namespace    string    // empty: all
	Since, Until time.Time // zero: the begin of the history, and now
	Initial      bool      // only the objects as they were at Since, without the changes
}

func parseExcerpt(text string) (q ExcerptQuery, err error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return q, fmt.Errorf("the parameters: %w", err)
	}
	q.Sources = slices.Compact(slices.Sorted(slices.Values(values["source"])))
	delete(values, "source") // it may be there several times
	if values, err = parameters(values.Encode(), "namespace", "since", "until", "initial"); err != nil {
		return q, err
	}
	if len(q.Sources) == 0 {
		return q, errors.New("source is missing: write ?source=NAME, for each one")
	}
	q.Namespace = values.Get("namespace")
	if q.Initial, err = parseBool(values, "initial"); err != nil {
		return q, err
	}
	q.Since, q.Until, err = parseSpan(values)
	return q, err
}

// excerpt answers with a recording of a span. An answer without an end line is incomplete.
func (c *control) excerpt(w http.ResponseWriter, r *http.Request) {
	if c.History == nil {
		fail(w, http.StatusConflict, errNoHistory)
		return
	}
	q, err := parseExcerpt(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := c.lasting(r.Context(), r.URL.Path)
	defer cancel()
	conn := http.NewResponseController(w)
	// Connections without deadlines return an error; it is harmless.
	_, _ = conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})
	out := &begun{w: w, out: patient{ctx, w, conn}}
	err = c.History.Excerpt(ctx, q, out)
	switch {
	case err == nil:
	case !out.is:
		fail(w, statusOf(err), err)
	default:
		c.Log.Warn("an excerpt of the history was not read to its end", "peer", r.RemoteAddr, "err", err)
	}
}

// begun notes whether an answer has begun, and so can have no other status.
type begun struct {
	w   http.ResponseWriter
	out io.Writer
	is  bool
}

// Write implements io.Writer.
func (b *begun) Write(part []byte) (int, error) {
	if !b.is {
		b.is = true
		begin(b.w, http.StatusOK, "application/zstd")
	}
	return b.out.Write(part)
}

// Excerpt returns a recording of a span of the history, compressed with zstd. The caller closes it.
func (c *Client) Excerpt(ctx context.Context, q ExcerptQuery) (io.ReadCloser, error) {
	values := url.Values{"source": q.Sources}
	for name, at := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !at.IsZero() {
			values.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.Namespace != "" {
		values.Set("namespace", q.Namespace)
	}
	if q.Initial {
		values.Set("initial", "true")
	}
	response, err := c.open(ctx, "/api/v1/history?"+values.Encode())
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}
