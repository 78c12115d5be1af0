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
	"strconv"
	"strings"
	"sync"
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
	// Reload reads the configuration anew and returns why it was refused. Called from any goroutine.
	Reload func(ctx context.Context) error
	// Resync puts objects through once more. Called from any goroutine.
	Resync func(ctx context.Context, ask Resync) (Resynced, error)
	Cache  Cache // what is cached
	Tap    Tap   // what goes by. Called from any goroutine
	// Active returns the objects for which the condition of a route holds, and whether there are more behind. An error that is a
	// *[QueryError] is the asker's fault, as all are. Called from any goroutine.
	Active func(q ActiveQuery) (items []Active, more bool, err error)
	Log    *slog.Logger
}

// control answers on /api/v1.
type control struct {
	letters DeadLetters
	status  func() Status
	reload  func(ctx context.Context) error
	resync  func(ctx context.Context, ask Resync) (Resynced, error)
	cache   Cache
	tap     Tap
	active  func(q ActiveQuery) (items []Active, more bool, err error)
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
//	GET  /api/v1/tap?route=&rejected=                          a Tapped on each line, without an end
//	GET  /api/v1/deadletters?route=&after=&limit=              {"letters": [Letter…], "next": after-of-the-next-page}
//	GET  /api/v1/deadletters/{id}                              Letter, with its objects
//	POST /api/v1/deadletters/retry {ids | route, current}      Outcome
//	POST /api/v1/deadletters/drop  {ids | route}               Outcome
//
// An error is {"error": text} with a status of 4xx or 5xx. There is no authentication: whoever reaches the socket or the loopback
// address may use it. Web pages may not: a request has to name a loopback host, and a POST to be of type application/json.
func NewControl(cfg ControlConfig) *Server {
	c := &control{letters: cfg.DeadLetters, status: cfg.Status, reload: cfg.Reload, resync: cfg.Resync, cache: cfg.Cache, tap: cfg.Tap, active: cfg.Active, closing: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/tap", c.stream)
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, c.status()) })
	mux.HandleFunc("POST /api/v1/reload", c.reloaded)
	mux.HandleFunc("POST /api/v1/resync", c.resyncAll)
	mux.HandleFunc("GET /api/v1/sources", c.sources)
	mux.HandleFunc("GET /api/v1/sources/{source}", c.query)
	mux.HandleFunc("GET /api/v1/sources/{source}/indexes/{index}", c.query)
	mux.HandleFunc("GET /api/v1/routes/{route}/active", c.actives)
	mux.HandleFunc("GET /api/v1/deadletters", c.list)
	mux.HandleFunc("GET /api/v1/deadletters/{id}", c.show)
	mux.HandleFunc("POST /api/v1/deadletters/retry", c.retry)
	mux.HandleFunc("POST /api/v1/deadletters/drop", c.drop)
	s := newServer("api", cfg.Addr, guarded(mux, strings.HasPrefix(cfg.Addr, unixPrefix)), cfg.Log)
	s.http.RegisterOnShutdown(sync.OnceFunc(func() { close(c.closing) }))
	return s
}

// guarded keeps web pages out: those whose own name resolves to the loopback address (by the host), and those that send forms (by the
// content type, for which a browser asks first). Browsers cannot reach a socket.
func guarded(next http.Handler, socket bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !socket && !loopback(r.Host) {
			fail(w, http.StatusForbidden, fmt.Errorf("host %q is not a loopback address: use 127.0.0.1 or localhost", r.Host))
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

func (c *control) list(w http.ResponseWriter, r *http.Request) {
	if c.letters == nil {
		fail(w, http.StatusConflict, ErrNoLetters)
		return
	}
	query := r.URL.Query()
	after, err := number(query.Get("after"), 0)
	limit, err2 := number(query.Get("limit"), defaultLimit)
	if err := errors.Join(err, err2); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	most := int(min(max(limit, 1), maxLimit)) //nolint:gosec // bounded
	letters, err := c.letters.Letters(r.Context(), query.Get("route"), after, most+1)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	answer := page{Letters: letters}
	if len(letters) > most {
		answer.Letters = letters[:most]
		answer.Next = letters[most-1].ID
	}
	if answer.Letters == nil {
		answer.Letters = []Letter{}
	}
	reply(w, http.StatusOK, answer)
}

func (c *control) reloaded(w http.ResponseWriter, r *http.Request) {
	if err := c.reload(r.Context()); err != nil {
		fail(w, http.StatusUnprocessableEntity, err)
		return
	}
	reply(w, http.StatusOK, map[string]bool{"reloaded": true})
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

func (c *control) show(w http.ResponseWriter, r *http.Request) {
	if c.letters == nil {
		fail(w, http.StatusConflict, ErrNoLetters)
		return
	}
	id, err := number(r.PathValue("id"), 0)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	switch letter, err := c.letters.Letter(id); {
	case err != nil:
		fail(w, http.StatusInternalServerError, err)
	case letter == nil:
		fail(w, http.StatusNotFound, fmt.Errorf("there is no dead letter %d", id))
	default:
		reply(w, http.StatusOK, letter)
	}
}

func (c *control) retry(w http.ResponseWriter, r *http.Request) {
	var body retryBody
	if c.decode(w, r, &body, &body.Selection) {
		outcome, err := c.letters.Retry(r.Context(), body.Selection, body.Current)
		conclude(w, outcome, err)
	}
}

// retryBody is the body of a retry.
type retryBody struct {
	Selection

	Current bool `json:"current,omitempty"`
}

func (c *control) drop(w http.ResponseWriter, r *http.Request) {
	var which Selection
	if c.decode(w, r, &which, &which) {
		outcome, err := c.letters.Drop(r.Context(), which)
		conclude(w, outcome, err)
	}
}

// decode reads a body; if that is not possible it answers and returns false.
func (c *control) decode(w http.ResponseWriter, r *http.Request, body any, which *Selection) bool {
	if c.letters == nil {
		fail(w, http.StatusConflict, ErrNoLetters)
		return false
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(body)
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		fail(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is longer than %d bytes: name the letters in several requests", maxBody))
	case err != nil:
		fail(w, http.StatusBadRequest, fmt.Errorf("the body: %w", err))
	case (len(which.IDs) == 0) == (which.Route == ""):
		fail(w, http.StatusBadRequest, errors.New("name either ids or a route"))
	default:
		return true
	}
	return false
}

func conclude(w http.ResponseWriter, outcome Outcome, err error) {
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	reply(w, http.StatusOK, outcome)
}

// problem is the answer to what could not be done.
type problem struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, status int, err error) { reply(w, status, problem{err.Error()}) }

func reply(w http.ResponseWriter, status int, body any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that went away misses nothing
}
