package api

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/access"
)

// The bounds of a request.
const (
	maxBody      = 1 << 20
	defaultLimit = 100
	maxLimit     = 1000
)

// ControlConfig configures the control API.
type ControlConfig struct {
	Addr        string      // as in listen.api: a loopback host:port, or unix:/path
	DeadLetters DeadLetters // nil: the router keeps none, see [errNoLetters]
	// Status returns the state of the router, without the texts that the caller may not see. Called
	// from any goroutine.
	Status func(ctx context.Context) Status
	// Reload reads the configuration again. Its error is the reason for a refusal. Called from any
	// goroutine.
	Reload func(ctx context.Context) error
	// Resync repeats objects to routes. Called from any goroutine.
	Resync func(ctx context.Context, ask Resync) (Resynced, error)
	Pauser pauser // nil: the process cannot pause routes
	Cache  cache  // the cached objects
	Tap    Tap    // the live view of deltas. Called from any goroutine
	Watch  Watch  // the cached objects and their changes. Called from any goroutine
	// Active returns the objects for which the condition of a route holds, and whether more follow.
	// Its errors are *[QueryError]s, or those of package access. Called from any goroutine.
	Active  func(ctx context.Context, q ActiveQuery) (items []Active, more bool, err error)
	History History // nil: the router records none
	// Backup makes a copy of the state file, which the server closes; nil: the router has none. Its
	// error wraps [ErrBusy] while there is another. Called from any goroutine.
	Backup func(ctx context.Context) (Backup, error)
	// Promote asks the leader of a fleet to hand over to this member; nil: the router is in none.
	// Called from any goroutine.
	Promote func(ctx context.Context) error
	// Standby returns the answer of a standby to requests that only the leader can answer, and
	// Mirror the age of the state of which it answers the others; nil: the router is no standby.
	Standby func() error
	Mirror  func() Mirror
	Log     *slog.Logger

	TLS *tls.Config // nil: without TLS
	// Access identifies the senders of requests; nil: every request is permitted
	Access func(*http.Request) (*access.Caller, error)
	// Recheck is the interval at which the rights of a long request are checked again; 0: 10 s
	Recheck time.Duration
	// With Access, the server has the endpoints of the probes too.
	Checks  func() []Check
	Metrics http.Handler
}

// control serves /api/v1.
type control struct {
	ControlConfig

	closing chan struct{} // closed with the server, to end streams
}

// NewControl makes a Server of the control API. It does not listen yet. Its paths are in the
// comment of endpoints.
//
// An error is {"error": text} with a status of 4xx or 5xx. Without Access, the API is
// unauthenticated: every client that reaches the socket or the loopback address may use it, except
// web pages. So a request must name a loopback host and must not come from a page, and a POST must
// have the type application/json. The log contains each POST with its sender.
func NewControl(cfg ControlConfig) *Server {
	c := &control{cfg, make(chan struct{})}
	if c.Recheck == 0 {
		c.Recheck = recheck
	}
	most := maxControls
	if cfg.Access != nil {
		most = maxProbes // clients without rights must not keep the others out
	}
	s := newServer("api", cfg.Addr, most, c.handler(), cfg.Log)
	s.tls = cfg.TLS
	s.http.RegisterOnShutdown(sync.OnceFunc(func() { close(c.closing) }))
	return s
}

func (c *control) handler() http.Handler {
	return c.guarded(c.identified(audited(received(c.mux()), c.Log)))
}

// concluded serves the result of a function as JSON.
func concluded(answer func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { conclude(w, r, answer) }
}

// patiently serves a request that takes long, as a resync does if routes with overflow: block make
// their sources wait.
func patiently(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn := http.NewResponseController(w)
		// Connections without deadlines return an error; it is harmless.
		_, _ = conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})
		next(w, r)
	}
}

// conclude writes the result of a function as JSON.
func conclude(w http.ResponseWriter, r *http.Request, answer func(*http.Request) (any, error)) {
	body, err := answer(r)
	if err != nil {
		fail(w, statusOf(err), err)
		return
	}
	reply(w, http.StatusOK, body)
}

// refused is an error with its HTTP status.
type refused struct {
	error

	status int
}

func refuse(status int, err error) error {
	if err == nil {
		return nil
	}
	return refused{err, status}
}

// Unwrap is for [errors.Is].
func (r refused) Unwrap() error { return r.error }

func statusOf(err error) int {
	if denied, ok := errors.AsType[*access.Error](err); ok {
		return denied.Status
	}
	if r, ok := errors.AsType[refused](err); ok {
		return r.status
	}
	wrong, ok := errors.AsType[*QueryError](err)
	switch {
	case ok && wrong.Unknown:
		return http.StatusNotFound
	case ok:
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// statusNow returns the completed status.
func (c *control) statusNow(r *http.Request) (any, error) {
	s := c.Status(r.Context())
	s.Ready = len(holding(s.Checks)) == 0
	for i := range s.Checks {
		s.Checks[i].Message = short(s.Checks[i].Message)
	}
	return s, nil
}

// page is a page of dead letters.
type page struct {
	Letters []Letter `json:"letters"`
	// the parameter after of the next page; 0 on the last page
	Next    uint64  `json:"next,omitempty"`
	Standby *Mirror `json:"standby,omitempty"`
}

func (c *control) list(r *http.Request) (any, error) {
	if c.DeadLetters == nil {
		return nil, refuse(http.StatusConflict, errNoLetters)
	}
	query := r.URL.Query()
	after, err := number(query.Get("after"), 0)
	limit, err2 := number(query.Get("limit"), defaultLimit)
	if err := errors.Join(err, err2); err != nil {
		return nil, refuse(http.StatusBadRequest, err)
	}
	most := int(min(max(limit, 1), maxLimit)) //nolint:gosec // bounded
	letters, err := c.DeadLetters.Letters(r.Context(), query.Get("route"), after, most+1)
	answer := page{Letters: append([]Letter{}, letters...), Standby: c.mirror()}
	if len(letters) > most {
		answer.Letters = letters[:most]
		answer.Next = letters[most-1].ID
	}
	return answer, err
}

func (c *control) reloaded(r *http.Request) (any, error) {
	return map[string]bool{"reloaded": true}, refuse(http.StatusUnprocessableEntity, c.Reload(r.Context()))
}

func number(text string, otherwise uint64) (uint64, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", text)
	}
	return n, nil
}

// parameters parses the parameters of a request. Each must be known and appear once.
func parameters(text string, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, fmt.Errorf("the parameters: %w", err)
	}
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("unknown parameter %q; there are %s", name, strings.Join(known, ", "))
		case len(all) > 1:
			return nil, fmt.Errorf("parameter %s occurs twice", name)
		}
	}
	return values, nil
}

// limitOf parses the parameter limit.
func limitOf(values url.Values) (int, error) {
	limit, err := number(values.Get("limit"), defaultLimit)
	if err != nil || limit < 1 || limit > maxLimit {
		return 0, fmt.Errorf("limit: %q is no number from 1 to %d", values.Get("limit"), maxLimit)
	}
	return int(limit), nil
}

func (c *control) show(r *http.Request) (any, error) {
	if c.DeadLetters == nil {
		return nil, refuse(http.StatusConflict, errNoLetters)
	}
	id, err := number(r.PathValue("id"), 0)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err)
	}
	letter, err := c.DeadLetters.Letter(r.Context(), id)
	if err == nil && letter == nil {
		err = refuse(http.StatusNotFound, fmt.Errorf("there is no dead letter %d", id))
	}
	if err != nil {
		return nil, err
	}
	letter.Standby = c.mirror()
	return letter, nil
}

// retryBody is the body of a retry.
type retryBody struct {
	Selection

	Current bool `json:"current,omitempty"`
}

func (c *control) retry(r *http.Request) (any, error) {
	var body retryBody
	if err := c.selection(r, &body, &body.Selection); err != nil {
		return nil, err
	}
	return c.DeadLetters.Retry(r.Context(), body.Selection, body.Current)
}

func (c *control) drop(r *http.Request) (any, error) {
	var which Selection
	if err := c.selection(r, &which, &which); err != nil {
		return nil, err
	}
	return c.DeadLetters.Drop(r.Context(), which)
}

// selection decodes a body with a Selection of dead letters.
func (c *control) selection(r *http.Request, body any, which *Selection) error {
	if c.DeadLetters == nil {
		return refuse(http.StatusConflict, errNoLetters)
	}
	err := decode(r, body)
	if err == nil && (len(which.IDs) == 0) == (which.Route == "") {
		return refuse(http.StatusBadRequest, errors.New("name either ids or a route"))
	}
	return err
}

// decode decodes a body.
func decode(r *http.Request, body any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		return refuse(http.StatusBadRequest, fmt.Errorf("the body: %w", err))
	}
	understood(r.Context(), body)
	return nil
}

// problem is the answer to a failed request.
type problem struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, status int, err error) { reply(w, status, problem{err.Error()}) }

func reply(w http.ResponseWriter, status int, body any) {
	begin(w, status, "application/json")
	_ = json.NewEncoder(w).Encode(body) // a client that has disconnected needs no answer
}
