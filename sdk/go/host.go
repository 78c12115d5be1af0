package deltarouter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/sdk/go/internal/host"
)

// The errors of host functions. A module that calls a function such as [KVGet], [Lookup] or [HTTP]
// needs a grant in the handler's `allow`, or the router does not load it. In tests
// deltaroutertest.Host answers them.
var (
	ErrNotFound = errors.New("there is none")
	ErrDenied   = errors.New("not granted to this handler")
	ErrQuota    = errors.New("over the handler's quota")
	ErrInvalid  = errors.New("the request is not valid")
	ErrDeadline = errors.New("too late")
)

// status turns a result below 0 into an error.
func status(code int32) error {
	switch code {
	case -1:
		return ErrNotFound
	case -2:
		return ErrDenied
	case -3:
		return ErrQuota
	case -5:
		return ErrDeadline
	}
	if code < 0 {
		return ErrInvalid
	}
	return nil
}

// room is the size of the first buffer for an answer of unknown length.
const room = 4 << 10

// fetch calls ask again with a larger buffer if the answer does not fit.
func fetch(ask func(buf []byte) int32) ([]byte, error) {
	for buf := make([]byte, room); ; {
		n := ask(buf)
		if err := status(n); err != nil {
			return nil, err
		}
		if int(n) <= len(buf) {
			return buf[:n], nil
		}
		buf = make([]byte, n)
	}
}

// KVGet returns the value of a key in the handler's store. ok is false if there is none.
func KVGet(key string) (value []byte, ok bool, err error) {
	value, err = fetch(func(buf []byte) int32 { return host.KVGet(key, buf) })
	if errors.Is(err, ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, wrap("kv", err)
}

// KVSet stores a value for a duration (0: without expiry; less than a millisecond counts as one).
// The value is stored only if the call succeeds, which may concern further deltas. All instances of
// the handler share the store.
func KVSet(key string, value []byte, ttl time.Duration) error {
	ms := ttl.Milliseconds()
	if ttl > 0 {
		ms = max(ms, 1)
	}
	return wrap("kv", status(host.KVSet(key, value, ms)))
}

// KVDelete removes a key. The key may be absent.
func KVDelete(key string) error {
	if err := status(host.KVDelete(key)); !errors.Is(err, ErrNotFound) {
		return wrap("kv", err)
	}
	return nil
}

// Lookup returns the JSON of the objects that an index has for a key: Lookup("pods.byNode", "n1").
func Lookup(index, key string) ([]json.RawMessage, error) {
	answer, err := lookup(func(b []byte) []byte { return appendIndex(b, index, key) })
	return elements(member(answer, "objects")), err
}

// List returns the JSON of all objects of a source.
func List(source string) ([]json.RawMessage, error) {
	answer, err := lookup(func(b []byte) []byte { return appendString(append(b, `"list":`...), source) })
	return elements(member(answer, "objects")), err
}

// Count returns the number of objects that [Lookup] would return.
func Count(index, key string) (int, error) {
	answer, err := lookup(func(b []byte) []byte { return append(appendIndex(b, index, key), `,"count":true`...) })
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(string(member(answer, "count")))
	return n, wrap("lookup", err)
}

// Get returns the JSON of an object of a source, or nil if there is none.
func Get(source, namespace, name string) (json.RawMessage, error) {
	answer, err := lookup(func(b []byte) []byte {
		b = appendString(append(b, `"get":`...), source)
		b = appendString(append(b, `,"namespace":`...), namespace)
		return appendString(append(b, `,"name":`...), name)
	})
	objects := elements(member(answer, "objects"))
	if errors.Is(err, ErrNotFound) || err == nil && len(objects) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return objects[0], nil
}

func appendIndex(b []byte, index, key string) []byte {
	b = appendString(append(b, `"index":`...), index)
	return appendString(append(b, `,"key":`...), key)
}

func lookup(members func(b []byte) []byte) ([]byte, error) {
	request := append(members([]byte{'{'}), '}')
	answer, err := fetch(func(buf []byte) int32 { return host.Lookup(request, buf) })
	return answer, wrap("lookup", err)
}

// Emit emits an event at once, in addition to those that the handler returns, so that a handler
// need not collect many events. The event is delivered only if the delta succeeds.
func (d Delta) Emit(e Event) error {
	b, err := e.append(nil)
	if err != nil {
		return err
	}
	return wrap("emit", status(host.Emit(d.index, b)))
}

// Request is a request to a host that the handler is granted. The router adds headers with secrets.
type Request struct {
	Method  string // empty: GET
	URL     string
	Headers map[string]string
	Body    []byte
}

// Response is the response to a [Request]. The names of headers are in lower case.
type Response struct {
	Status  int
	Headers map[string]string
	Body    []byte
}

// wireHTTP is a request or a response in the encoding of the ABI. A body that is not UTF-8 is in
// base64, the encoding of a []byte by encoding/json.
type wireHTTP struct {
	Method     string            `json:"method,omitempty"`
	URL        string            `json:"url,omitempty"`
	Status     int               `json:"status,omitempty"`
	Error      string            `json:"error,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Body       string            `json:"body,omitempty"`
	BodyBase64 []byte            `json:"bodyBase64,omitempty"`
}

// HTTP sends a request. A response with a status of 400 or more is not an error. A missing response
// is one.
func HTTP(r Request) (Response, error) {
	wire := wireHTTP{Method: r.Method, URL: r.URL, Headers: r.Headers}
	if utf8.Valid(r.Body) {
		wire.Body = string(r.Body)
	} else {
		wire.BodyBase64 = r.Body
	}
	request, err := json.Marshal(wire)
	if err != nil {
		return Response{}, wrap("http", err)
	}
	// The router keeps a response that exceeds the buffer: the second call does not repeat the
	// request.
	text, err := fetch(func(buf []byte) int32 { return host.HTTP(request, buf) })
	if err != nil {
		return Response{}, wrap("http", err)
	}
	var answer wireHTTP
	if err := json.Unmarshal(text, &answer); err != nil {
		return Response{}, wrap("http", err)
	}
	if answer.Status == 0 {
		return Response{}, fmt.Errorf("http: %s", answer.Error)
	}
	body := answer.BodyBase64
	if body == nil {
		body = []byte(answer.Body)
	}
	return Response{answer.Status, answer.Headers, body}, nil
}

// Random fills b with random bytes. They are deterministic unless the handler is granted
// randomness.
func Random(b []byte) error { return wrap("random", status(host.Random(b))) }

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
