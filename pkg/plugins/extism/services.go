package extism

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/deltarouter/deltarouter/pkg/plugins/internal/guest/abi"
)

// services returns the functions that need the router.
func services() []function {
	all := []function{
		{envModule, "config_get", "I", "I", configGet},
		{envModule, "var_get", "I", "I", varGet},
		{envModule, "var_set", "II", "", varSet},
		{envModule, "http_request", "II", "I", httpRequest},
		{envModule, "http_status_code", "", "i", httpStatus},
		{envModule, "http_headers", "", "I", httpHeaders},
		{envModule, "get_log_level", "", "i", logLevel},
		{userModule, "lookup", "I", "I", lookup},
	}
	// Extism has one level below debug.
	for i, name := range []string{"log_trace", "log_debug", "log_info", "log_warn", "log_error"} {
		all = append(all, function{envModule, name, "I", "", logAt(uint32(max(i-1, 0)))})
	}
	return all
}

// text returns the content of a block, which is empty if the address is none.
func (s *session) text(at uint64) string {
	bytes, _ := s.memory.read(at, s.memory.length(at))
	s.services.Called(len(bytes))
	return string(bytes)
}

// put returns the address of a new block with content for the guest.
func (s *session) put(content []byte) uint64 {
	s.services.Called(len(content))
	return s.checked(s.memory.put(content))
}

// checked ends the guest after an error.
func (s *session) checked(at uint64, err error) uint64 {
	if err != nil {
		s.end(err)
	}
	return at
}

// errStatus are the messages of negative answers of the host.
var errStatus = map[int32]error{
	abi.StatusNotFound: errors.New("there is none"),
	abi.StatusQuota:    errors.New("a limit was exceeded"),
	abi.StatusInvalid:  errors.New("an argument is not valid"),
	abi.StatusTooLate:  errors.New("no answer in time"),
}

// refuse ends the guest after a negative answer of the host.
func (s *session) refuse(function, grant string, status int32) {
	switch err := errStatus[status]; {
	case status == abi.StatusDenied:
		s.end(fmt.Errorf("%s: not granted: see allow.%s", function, grant))
	case err != nil:
		s.end(fmt.Errorf("%s: %w", function, err))
	}
}

func configGet(_ context.Context, s *session, stack []uint64) {
	value, ok := s.config[s.text(stack[0])]
	stack[0] = 0
	if ok {
		stack[0] = s.put([]byte(value))
	}
}

func varGet(_ context.Context, s *session, stack []uint64) {
	value, status := s.services.Load(s.text(stack[0]))
	stack[0] = 0
	if status == abi.StatusNotFound {
		return
	}
	s.refuse("var_get", "kv", status)
	stack[0] = s.put(value)
}

func varSet(_ context.Context, s *session, stack []uint64) {
	key := s.text(stack[0])
	if stack[1] == 0 {
		if status := s.services.Remove(key); status != abi.StatusNotFound {
			s.refuse("var_set", "kv", status)
		}
		return
	}
	s.refuse("var_set", "kv", s.services.Store(key, s.text(stack[1]), 0))
}

// request is a request in the form of Extism.
type request struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
}

// hostRequest is a request in the form of the router.
type hostRequest struct {
	URL        string            `json:"url"`
	Method     string            `json:"method,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	BodyBase64 string            `json:"bodyBase64,omitempty"`
}

// response is a response in the form of the router.
type response struct {
	Status           int32
	Headers          map[string]string
	Body, BodyBase64 string
	Error            string
}

// Bounds of a request, in bytes. The router has one for both together.
const (
	longestRequest = 64 << 10
	longestBody    = 1 << 20
)

// parsed charges for parsing or writing JSON.
func (s *session) parsed(bytes int) { s.services.Called(fuelPerParsed * bytes) }

// fuelPerParsed is the cost of a byte of JSON in copied bytes.
const fuelPerParsed = 12

// httpRequest implements http_request(request, body). As in other hosts of Extism, a request
// without an answer ends the guest.
func httpRequest(ctx context.Context, s *session, stack []uint64) {
	s.status, s.headers = 0, nil
	if s.memory.length(stack[0]) > longestRequest || s.memory.length(stack[1]) > longestBody {
		s.refuse("http_request", "http", abi.StatusQuota)
	}
	var of request
	s.parsed(int(s.memory.length(stack[0])))
	if err := json.Unmarshal([]byte(s.text(stack[0])), &of); err != nil {
		s.end(errors.New(`http_request: the request is not {"url": …, "method": …, "headers": {…}}`))
	}
	body := base64.StdEncoding.EncodeToString([]byte(s.text(stack[1])))
	text, err := json.Marshal(hostRequest{of.URL, strings.ToUpper(of.Method), of.Headers, body})
	if err != nil {
		s.end(fmt.Errorf("http_request: %w", err))
	}
	answer, status := s.services.HTTP(ctx, string(text))
	s.refuse("http_request", "http", status)
	s.parsed(len(answer))
	var r response
	if err := json.Unmarshal(answer, &r); err != nil {
		s.end(fmt.Errorf("http_request: %w", err))
	}
	if r.Error != "" {
		s.end(errors.New("http_request: " + r.Error))
	}
	content := []byte(r.Body)
	if r.BodyBase64 != "" {
		if content, err = base64.StdEncoding.DecodeString(r.BodyBase64); err != nil {
			s.end(fmt.Errorf("http_request: %w", err))
		}
	}
	s.status, s.headers = r.Status, r.Headers
	stack[0] = s.put(content)
}

func httpStatus(_ context.Context, s *session, stack []uint64) { stack[0] = uint64(uint32(s.status)) }

func httpHeaders(_ context.Context, s *session, stack []uint64) {
	stack[0] = 0
	if s.status == 0 {
		return
	}
	text, err := json.Marshal(s.headers)
	if err != nil {
		s.end(fmt.Errorf("http_headers: %w", err))
	}
	s.parsed(len(text))
	stack[0] = s.put(text)
}

// lookup implements lookup(request) of the router: the answer to a request of the function lookup
// of the ABI rtr_v1.
func lookup(ctx context.Context, s *session, stack []uint64) {
	answer, status := s.services.Lookup(ctx, s.text(stack[0]))
	s.refuse("lookup", "lookup", status)
	stack[0] = s.put(answer)
}

// The levels of get_log_level.
const (
	traceLevel = int64(0)
	infoLevel  = int64(2)
)

func logLevel(_ context.Context, s *session, stack []uint64) {
	level := infoLevel
	if s.debug {
		level = traceLevel
	}
	stack[0] = api.EncodeI64(s.services.Setting("log_level", level))
}

// logAt returns a function that logs a line with a level of [host.Services].
func logAt(level uint32) func(context.Context, *session, []uint64) {
	return func(ctx context.Context, s *session, stack []uint64) {
		s.services.Log(ctx, level, s.text(stack[0]))
	}
}
