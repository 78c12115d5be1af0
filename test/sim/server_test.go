package sim_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// transport is the network between a life of the router and the API server. It has no sockets: a
// goroutine that waits for a socket would stop the fake clock.
type transport struct {
	c *cluster
	l *life
}

var errRefused = errors.New("connection refused")

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	c := t.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down || t.l.dead.Load() {
		return nil, errRefused
	}
	q := r.URL.Query()
	switch path := r.URL.Path; {
	case path == "/api/v1":
		return answer(200, `{"kind":"APIResourceList","resources":[{"name":"pods","namespaced":true,"kind":"Pod"}]}`), nil
	case path == "/api/v1/namespaces/kube-system":
		return answer(200, `{"kind":"Namespace","metadata":{"name":"kube-system","uid":"cluster"}}`), nil
	case strings.HasPrefix(path, "/api/v1/namespaces/default/pods/"):
		return c.get(strings.TrimPrefix(path, "/api/v1/namespaces/default/pods/")), nil
	case path != "/api/v1/pods":
		return status(404, "NotFound", "no such page"), nil
	case q.Get("watch") == "true":
		return c.watch(q), nil
	}
	return c.list(q), nil
}

func answer(code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Status: strconv.Itoa(code), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func status(code int, reason, message string) *http.Response {
	return answer(code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code))
}

func (c *cluster) get(name string) *http.Response {
	o, there := c.objects[name]
	if !there {
		return answer(404, fmt.Sprintf(`{"kind":"Status","status":"Failure","reason":"NotFound","details":{"name":%q,"kind":"pods"},"code":404}`, name))
	}
	return answer(200, o.text(`"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`))
}

// selects reports whether a label selector selects an object.
func selects(selector string, o *object) bool {
	switch selector {
	case "app=web":
		return o.web
	case "scope!=far":
		return !far(o.name)
	}
	return true
}

// visible returns the objects that a request selects, in the order of their names.
func (c *cluster) visible(q url.Values) []object {
	var all []object
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[name]; selects(q.Get("labelSelector"), &o) {
			all = append(all, o)
		}
	}
	return all
}

// ahead returns an error response if a request asks for a future version.
func (c *cluster) ahead(q url.Values) *http.Response {
	if v, _ := strconv.Atoi(q.Get("resourceVersion")); v > c.rv {
		return status(504, "Timeout", fmt.Sprintf("Too large resource version: %d, current: %d", v, c.rv))
	}
	return nil
}

func (c *cluster) list(q url.Values) *http.Response {
	if late := c.ahead(q); late != nil {
		return late
	}
	all, more := c.visible(q), ""
	if q.Get("limit") == "1" {
		if len(all) > 1 {
			more = fmt.Sprintf(`,"continue":"next","remainingItemCount":%d`, len(all)-1)
		}
		all = all[:min(1, len(all))]
	} else {
		c.lists++
	}
	items := make([]string, len(all))
	for i := range all {
		items[i] = all[i].text("")
	}
	return answer(200, fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s},"items":[%s]}`, c.rv, more, strings.Join(items, ",")))
}

const kindOfPod = `"kind":"Pod","apiVersion":"v1",`

func (c *cluster) watch(q url.Values) *http.Response {
	s := &stream{c: c, selector: q.Get("labelSelector"), wake: make(chan struct{}, 1)}
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	if q.Get("sendInitialEvents") == "true" {
		if c.noWatchList {
			return status(422, "Invalid", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		}
		if late := c.ahead(q); late != nil {
			return late
		}
		c.lists++
		all := c.visible(q)
		for i := range all {
			if c.truncate > 0 && i+1 == c.truncate {
				c.truncate = 0
				s.ended = true
				return s.response()
			}
			s.push(`{"type":"ADDED","object":` + all[i].text(kindOfPod) + "}\n")
		}
		s.push(fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d",`+
			`"annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", c.rv))
		from = c.rv
	}
	if c.barren != fertile && q.Get("sendInitialEvents") != "true" {
		return c.barren.answers(s)
	}
	if from < c.compacted {
		if from%2 == 0 { // the two forms of the error
			return status(410, "Expired", "too old resource version")
		}
		s.push(`{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","message":"too old resource version","code":410}}` + "\n")
		s.ended = true
		return s.response()
	}
	s.after = from
	for _, h := range c.history {
		if h.rv > from {
			s.push(s.frame(h))
		}
	}
	c.streams = append(c.streams, s)
	return s.response()
}

// stream is an answer to a watch. The cluster's lock guards it.
type stream struct {
	c        *cluster
	selector string
	after    int  // changes up to this version are not sent
	silent   bool // it brings nothing
	said     []byte
	ended    bool
	wake     chan struct{}
}

func (s *stream) response() *http.Response {
	return &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{}, Body: s}
}

// from reports whether the watch begins after a version.
func (s *stream) from(version int) bool { return s.after > version }

func (s *stream) sees(o *object) bool { return o != nil && selects(s.selector, o) }

// frame returns the watch event of a change, or "" if the watch does not see it.
func (s *stream) frame(h happening) string {
	if s.from(h.rv - 1) {
		return ""
	}
	was, is := s.sees(h.old), s.sees(h.now)
	switch {
	case is && was:
		return `{"type":"MODIFIED","object":` + h.now.text(kindOfPod) + "}\n"
	case is:
		return `{"type":"ADDED","object":` + h.now.text(kindOfPod) + "}\n"
	case was:
		last := *h.old
		last.rv = h.rv
		return `{"type":"DELETED","object":` + last.text(kindOfPod) + "}\n"
	}
	return ""
}

func (s *stream) push(text string) {
	if s.silent {
		return
	}
	s.said = append(s.said, text...)
	s.signal()
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for {
		s.c.mu.Lock()
		n := copy(p, s.said)
		s.said = s.said[n:]
		ended := s.ended
		s.c.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if ended {
			return 0, io.ErrUnexpectedEOF
		}
		<-s.wake
	}
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.ended = true
	s.signal()
	s.c.streams = slices.DeleteFunc(s.c.streams, func(other *stream) bool { return other == s })
	return nil
}
