package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What a caller may ask for.
const (
	maxBody      = 1 << 20
	defaultLimit = 100
	maxLimit     = 1000
)

// ControlConfig is what the control API needs.
type ControlConfig struct {
	Addr        string        // as in listen.api: a loopback host:port, or unix:/path
	DeadLetters DeadLetters   // nil: none are kept, see [ErrNoLetters]
	Status      func() Status // called from any goroutine
	// Reload reads the configuration anew and returns why it was refused. Called from any
	// goroutine.
	Reload func(ctx context.Context) error
	// Resync puts objects through once more. Called from any goroutine.
	Resync func(ctx context.Context, ask Resync) (Resynced, error)
	// Resume lets a paused route go on. Called from any goroutine.
	Resume func(route string) error
	Cache  Cache // what is cached
	Tap    Tap   // what goes by. Called from any goroutine
	// Active returns the objects for which the condition of a route holds, and whether there are
	// more behind. An error that is a *[QueryError] is the asker's fault, as all are. Called from
	// any goroutine.
	Active func(q ActiveQuery) (items []Active, more bool, err error)
	Log    *slog.Logger
}

// control answers on /api/v1.
type control struct {
	ControlConfig

	closing chan struct{} // closed when the server closes, for answers that have no end
}

// NewControl makes a Server of the control API, which listens nowhere yet:
//
//	GET  /api/v1/status                                        Status
//	POST /api/v1/reload                                        {"reloaded": true}; 422 if the configuration was refused
//	POST /api/v1/resync {source, route, relist}                Resynced, when it is done
//	GET  /api/v1/sources                                       {"sources": [SourceInfo…]}
//	GET  /api/v1/sources/{source}?namespace=&name=&filter=&limit=&continue=   Answer
//	GET  /api/v1/sources/{source}/indexes/{index}?value=&…     Answer; the parameters of a source too
//	GET  /api/v1/routes/{route}/active?limit=&continue=        ActiveAnswer
//	POST /api/v1/routes/{route}/resume                         {"resumed": true}; 422 if it is not paused
//	GET  /api/v1/tap?route=&rejected=                          a Tapped on each line, without an end
//	GET  /api/v1/deadletters?route=&after=&limit=              {"letters": [Letter…], "next": after-of-the-next-page}
//	GET  /api/v1/deadletters/{id}                              Letter, with its objects
//	POST /api/v1/deadletters/retry {ids | route, current}      Outcome
//	POST /api/v1/deadletters/drop  {ids | route}               Outcome
//
// An error is {"error": text} with a status of 4xx or 5xx. There is no authentication: whoever
// reaches the socket or the loopback address may use it. Web pages may not: a request has to name a
// loopback host and to come from no page, and a POST to be of type application/json. Each POST is
// logged with who sent it.
func NewControl(cfg ControlConfig) *Server {
	c := &control{cfg, make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/tap", c.stream)
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"GET /api/v1/status":                           c.statusNow,
		"POST /api/v1/reload":                          c.reloaded,
		"POST /api/v1/routes/{route}/resume":           c.resumed,
		"GET /api/v1/sources":                          c.sources,
		"GET /api/v1/sources/{source}":                 c.query,
		"GET /api/v1/sources/{source}/indexes/{index}": c.query,
		"GET /api/v1/routes/{route}/active":            c.actives,
		"GET /api/v1/deadletters":                      c.list,
		"GET /api/v1/deadletters/{id}":                 c.show,
		"POST /api/v1/deadletters/retry":               c.retry,
		"POST /api/v1/deadletters/drop":                c.drop,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { conclude(w, r, answer) })
	}
	mux.HandleFunc("POST /api/v1/resync", func(w http.ResponseWriter, r *http.Request) {
		// it takes as long as routes take that let their sources wait
		conn := http.NewResponseController(w)
		// a connection that has none needs none
		_, _ = conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})
		conclude(w, r, c.resyncAll)
	})
	s := newServer("api", cfg.Addr, guarded(audited(mux, cfg.Log), strings.HasPrefix(cfg.Addr, unixPrefix)), cfg.Log)
	s.http.RegisterOnShutdown(sync.OnceFunc(func() { close(c.closing) }))
	return s
}

// conclude answers with what a function returns as JSON.
func conclude(w http.ResponseWriter, r *http.Request, answer func(*http.Request) (any, error)) {
	body, err := answer(r)
	if err != nil {
		fail(w, statusOf(err), err)
		return
	}
	reply(w, http.StatusOK, body)
}

// refused is an error with the status of its answer.
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

// statusNow completes the status.
func (c *control) statusNow(*http.Request) (any, error) {
	s := c.Status()
	s.Ready = len(holding(s.Checks)) == 0
	for i := range s.Checks {
		s.Checks[i].Message = short(s.Checks[i].Message)
	}
	return s, nil
}

// guarded keeps web pages out: those whose own name resolves to the loopback address (by the host),
// those that send forms (by the content type, for which a browser asks first), and those that ask
// at all: a browser says for which site (Origin, Sec-Fetch-Site), also where the page does not get
// to see the answer. Browsers cannot reach a socket.
func guarded(next http.Handler, socket bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !socket && !loopback(r.Host) {
			fail(w, http.StatusForbidden, fmt.Errorf("host %q is not a loopback address: use 127.0.0.1 or localhost", r.Host))
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); r.Header.Get("Origin") != "" || site != "" && site != "none" && site != "same-origin" {
			fail(w, http.StatusForbidden, errors.New("web pages may not use the router's API"))
			return
		}
		if r.Method == http.MethodPost {
			if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
				fail(w, http.StatusUnsupportedMediaType, errors.New("the Content-Type must be application/json"))
				return
			}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")).IsLoopback()
}

// page is an answer to a list.
type page struct {
	Letters []Letter `json:"letters"`
	Next    uint64   `json:"next,omitempty"` // after, for the next page; 0: this is the last
}

func (c *control) list(r *http.Request) (any, error) {
	if c.DeadLetters == nil {
		return nil, refuse(http.StatusConflict, ErrNoLetters)
	}
	query := r.URL.Query()
	after, err := number(query.Get("after"), 0)
	limit, err2 := number(query.Get("limit"), defaultLimit)
	if err := errors.Join(err, err2); err != nil {
		return nil, refuse(http.StatusBadRequest, err)
	}
	most := int(min(max(limit, 1), maxLimit)) //nolint:gosec // bounded
	letters, err := c.DeadLetters.Letters(r.Context(), query.Get("route"), after, most+1)
	answer := page{Letters: append([]Letter{}, letters...)}
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

// parameters reads the parameters of a request: each is known, and there once.
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
			return nil, fmt.Errorf("parameter %s is there twice", name)
		}
	}
	return values, nil
}

// limitOf reads the parameter limit.
func limitOf(values url.Values) (int, error) {
	limit, err := number(values.Get("limit"), defaultLimit)
	if err != nil || limit < 1 || limit > maxLimit {
		return 0, fmt.Errorf("limit: %q is no number from 1 to %d", values.Get("limit"), maxLimit)
	}
	return int(limit), nil
}

func (c *control) show(r *http.Request) (any, error) {
	if c.DeadLetters == nil {
		return nil, refuse(http.StatusConflict, ErrNoLetters)
	}
	id, err := number(r.PathValue("id"), 0)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err)
	}
	letter, err := c.DeadLetters.Letter(id)
	if err == nil && letter == nil {
		err = refuse(http.StatusNotFound, fmt.Errorf("there is no dead letter %d", id))
	}
	return letter, err
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

// selection reads a body that says which dead letters are meant.
func (c *control) selection(r *http.Request, body any, which *Selection) error {
	if c.DeadLetters == nil {
		return refuse(http.StatusConflict, ErrNoLetters)
	}
	err := decode(r, body)
	_, tooLong := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLong:
		return refuse(http.StatusRequestEntityTooLarge, fmt.Errorf("the body is longer than %d bytes: name the letters in several requests", maxBody))
	case err == nil && (len(which.IDs) == 0) == (which.Route == ""):
		return refuse(http.StatusBadRequest, errors.New("name either ids or a route"))
	}
	return err
}

// decode reads a body.
func decode(r *http.Request, body any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		return refuse(http.StatusBadRequest, fmt.Errorf("the body: %w", err))
	}
	return nil
}

// problem is the answer to what could not be done.
type problem struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, status int, err error) { reply(w, status, problem{err.Error()}) }

func reply(w http.ResponseWriter, status int, body any) {
	begin(w, status, "application/json")
	_ = json.NewEncoder(w).Encode(body) // a client that went away misses nothing
}

// errNoResume is about a router that is embedded without that.
var errNoResume = errors.New("this router resumes no routes")

// resumed lets a paused route go on.
func (c *control) resumed(r *http.Request) (any, error) {
	if c.Resume == nil {
		return nil, refuse(http.StatusConflict, errNoResume)
	}
	return map[string]bool{"resumed": true}, refuse(http.StatusUnprocessableEntity, c.Resume(r.PathValue("route")))
}

// Resume lets a paused route go on.
func (c *Client) Resume(ctx context.Context, route string) error {
	var done struct{ Resumed bool }
	return c.call(ctx, http.MethodPost, "/api/v1/routes/"+url.PathEscape(route)+"/resume", struct{}{}, &done)
}
