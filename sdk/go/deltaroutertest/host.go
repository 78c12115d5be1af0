//go:build !wasip1

package deltaroutertest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/deltarouter/deltarouter/sdk/go/internal/host"
)

// The results of host functions.
const (
	notFound = -1
	denied   = -2
	invalid  = -4
)

// Host answers the host functions in a test. The zero value answers only functions that need no
// grant.
type Host struct {
	// KV contains the handler's values; nil: not granted.
	KV map[string][]byte
	// Indexes contains the JSON of objects by index ("pods.byNode") and key. Other indexes are not
	// granted.
	Indexes map[string]map[string][]string
	// Objects contains the JSON of objects by source, for Get and List. Other sources are not
	// granted.
	Objects map[string][]string
	// HTTP answers requests to all hosts; nil: not granted.
	HTTP http.Handler

	// Emitted contains the events of Delta.Emit, as JSON.
	Emitted []string

	expires map[string]time.Time // of keys with a ttl
	asked   string               // the request whose answer exceeded the buffer
	answer  []byte
}

// Use makes h answer the host functions until the test ends. Tests that call it must not run in
// parallel.
func (h *Host) Use(t testing.TB) {
	t.Helper()
	before := host.Use(h.functions())
	t.Cleanup(func() { host.Use(before) })
}

func (h *Host) functions() host.Functions {
	f := host.Functions{Lookup: h.lookup, Random: random, Emit: func(_ uint32, event []byte) int32 {
		h.Emitted = append(h.Emitted, string(event))
		return 0
	}}
	if h.KV != nil {
		f.KVGet, f.KVSet, f.KVDelete = h.kvGet, h.kvSet, h.kvDelete
	}
	if h.HTTP != nil {
		f.HTTP = h.http
	}
	return f
}

// give writes an answer if it fits into the buffer.
func give(buf, answer []byte) int32 {
	if len(answer) <= len(buf) {
		copy(buf, answer)
	}
	return int32(len(answer))
}

// random fills buf with ascending numbers, so that tests are deterministic.
func random(buf []byte) int32 {
	for i := range buf {
		buf[i] = byte(i + 1)
	}
	return 0
}

func (h *Host) kvGet(key string, buf []byte) int32 {
	if until, ok := h.expires[key]; ok && !time.Now().Before(until) {
		h.kvDelete(key)
	}
	value, ok := h.KV[key]
	if !ok {
		return notFound
	}
	return give(buf, value)
}

func (h *Host) kvSet(key string, value []byte, ttl int64) int32 {
	if ttl < 0 {
		return invalid
	}
	if h.expires == nil {
		h.expires = map[string]time.Time{}
	}
	delete(h.expires, key)
	if ttl > 0 {
		h.expires[key] = time.Now().Add(time.Duration(ttl) * time.Millisecond)
	}
	h.KV[key] = append([]byte(nil), value...)
	return 0
}

func (h *Host) kvDelete(key string) int32 {
	if _, ok := h.KV[key]; !ok {
		return notFound
	}
	delete(h.KV, key)
	delete(h.expires, key)
	return 0
}

func (h *Host) lookup(request, buf []byte) int32 {
	var r struct {
		Index, Key, List, Get, Namespace, Name string
		Count                                  bool
	}
	if json.Unmarshal(request, &r) != nil {
		return invalid
	}
	keys, granted := h.Indexes[r.Index]
	found := keys[r.Key]
	if source := r.Get + r.List; source != "" {
		found, granted = h.Objects[source]
	}
	if r.Get != "" {
		found = named(found, r.Namespace, r.Name)
	}
	switch {
	case !granted:
		return denied
	case r.Count:
		answer, _ := json.Marshal(map[string]int{"count": len(found)})
		return give(buf, answer)
	}
	return give(buf, []byte(`{"objects":[`+strings.Join(found, ",")+`]}`))
}

// named returns the object with a name, if all contains it.
func named(all []string, namespace, name string) []string {
	for _, object := range all {
		var o struct {
			Metadata struct{ Namespace, Name string }
		}
		if json.Unmarshal([]byte(object), &o) == nil && o.Metadata.Namespace == namespace && o.Metadata.Name == name {
			return []string{object}
		}
	}
	return nil
}

func (h *Host) http(request, buf []byte) int32 {
	var r struct {
		Method, URL, Body string
		BodyBase64        []byte
		Headers           map[string]string
	}
	if json.Unmarshal(request, &r) != nil {
		return invalid
	}
	req := httptest.NewRequest(r.Method, r.URL, strings.NewReader(r.Body+string(r.BodyBase64)))
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	if h.answer != nil && string(request) == h.asked { // asked again for a larger buffer
		text := h.answer
		h.answer = nil
		return give(buf, text)
	}
	rec := httptest.NewRecorder()
	h.HTTP.ServeHTTP(rec, req)
	answer := rec.Result()
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return invalid
	}
	headers := map[string]string{}
	for name, values := range answer.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	text, err := json.Marshal(map[string]any{"status": answer.StatusCode, "headers": headers, "bodyBase64": body})
	if err != nil {
		return invalid
	}
	h.asked, h.answer = "", nil
	if len(text) > len(buf) {
		h.asked, h.answer = string(request), text
	}
	return give(buf, text)
}
